"""Lines of the log: what jobs bring along cannot pass for a record."""

import logging

from chasquimq.cli.logs import SafeFormatter


def shown(message):
    record = logging.LogRecord("chasquimq", logging.INFO, "", 0, message, None, None)
    return SafeFormatter("%(levelname)s %(message)s").format(record)


def test_further_lines_are_indented_so_that_none_passes_for_a_record():
    assert shown("job 1 (a\nINFO job 2 (n) done)") == "INFO job 1 (a\n    INFO job 2 (n) done)"


def test_control_characters_are_shown_as_escapes():
    assert shown("a\x1b[31m\x00\r") == "INFO a\\x1b[31m\\x00\\r"
