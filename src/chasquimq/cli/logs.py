"""What a worker process writes to stderr: one line a record, safe to show."""

import json
import logging
import sys

from chasquimq.cli.render import clean, iso

LEVELS = ("debug", "info", "warning", "error")
# What our records say besides their message (`extra`).
_ABOUT = ("queue", "job_id", "entry_id", "attempt")


class SafeFormatter(logging.Formatter):
    """Shows control characters as escapes: names and errors of jobs come from anybody.

    Further lines, as those of a traceback, are indented: none can pass for a record of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, or the lines of a traceback."""
        return clean(super().format(record)).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """One object a record: when, how grave, by which process, what, and which job it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback is part of the message."""
        known = {
            "time": iso(int(record.created * 1_000)),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": super().format(record),
        }
        about = {name: getattr(record, name) for name in _ABOUT if hasattr(record, name)}
        return json.dumps(known | about)


def set_up(level: str, *, as_json: bool = False) -> None:
    """Log everything from `level` on, whoever logs it; a module that sets it up itself, wins."""
    handler = logging.StreamHandler(sys.stderr)
    plain = SafeFormatter("%(asctime)s %(levelname)-7s [%(process)d] %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else plain)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
