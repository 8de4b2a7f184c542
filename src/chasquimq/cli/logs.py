"""What a worker process writes to stderr: one line a record, safe to show."""

import logging
import sys

from chasquimq.cli.render import clean

LEVELS = ("debug", "info", "warning", "error")


class SafeFormatter(logging.Formatter):
    """Shows control characters as escapes: names and errors of jobs come from anybody."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or the lines of a traceback."""
        return clean(super().format(record))


def set_up(level: str) -> None:
    """Log everything from `level` on, whoever logs it; a module that sets it up itself, wins."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)-7s [%(process)d] %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
