"""What really went wrong, within what Spark makes of it."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from chasquimq import errors
from chasquimq.errors import BackfillError, ChasquiError, RowError

_OURS = re.compile(r"chasquimq\.(?:errors\.)?(\w+Error): ([^\n]*?) \[CMQ-\d+\]")
_CODES = re.compile(r"^\[[A-Z_.]+\] |\s*SQLSTATE: \w+.*$")
_RAISED = re.compile(
    r'^(?:: |Exception in thread "[^"]*" )?(?:[\w$]+\.)+[\w$]+(?:Exception|Error): ([^\n]*[^\s])',
    re.MULTILINE,
)
_QUERY = re.compile(r"^Query \[id = .*?\] terminated with exception: ")
_CLASS = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+[\w$]+(?:Exception|Error): ")
# Of a thread that waited for another's work; what became of that is the cause.
_WAITED = "Exception thrown in awaitResult"
# A file that was there when Spark looked for it, or a checkpoint that went on by itself.
_GONE = re.compile(
    r"FILE_NOT_EXIST|FileNotFoundException|NoSuchFileException|CONCURRENT_STREAM_LOG_UPDATE"
)
_OF_ANOTHER = (
    "Another run, stream or compaction may be writing to the same path: one at a time may, so wait "
    "for it, or end it, and run this again"
)

SPARKS = (PySparkException, Py4JJavaError)
"""What Spark raises."""


@contextmanager
def unlogged() -> Iterator[None]:
    """Let PySpark not write errors in SQL to stderr, as JSON, besides raising them."""
    # Not `logging`'s: a logger of the usual kind under this name would break PySpark's call to it.
    found = [PySparkLogger.getLogger(f"{each}QueryContextLogger") for each in ("SQL", "DataFrame")]
    before = [each.level for each in found]
    for each in found:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each, level in zip(found, before, strict=True):
            each.setLevel(level)


def in_a_line(error: Exception) -> str:
    """What ended a job of Spark, or kept Spark from starting, without its own codes.

    In a batch of ours it is the end of a trace of Python's, within what Spark makes of it. With the
    notes that were added to it.
    """
    text = str(error)
    line = last_raised(text) or _QUERY.sub("", first_line(error))
    if line.startswith(_WAITED):
        line = _CODES.sub("", _last_cause(text))
    return ". ".join([line.removesuffix("."), *notes]) if (notes := _notes(error)) else line


def noted(error: Exception) -> Exception:
    """The error, with a note if what others do to the same tables may be why it was raised."""
    if _GONE.search(str(error)) and _OF_ANOTHER not in _notes(error):
        error.add_note(_OF_ANOTHER)
    return error


def _notes(error: Exception) -> list[str]:
    return getattr(error, "__notes__", [])


def has_no_java(error: Exception) -> bool:
    """Whether Java ended before Spark could start in it."""
    return isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED"


def last_raised(text: str) -> str | None:
    """What the last error in a text of Java's says, without Spark's own codes; None without one."""
    raised = _RAISED.findall(text)
    return _CODES.sub("", raised[-1]) if raised else None


def first_line(error: Exception) -> str:
    """What Spark says first, without its own codes."""
    line = str(error).strip().split("\n", 1)[0]
    return _CODES.sub("", line)


def ours(error: Exception) -> ChasquiError | None:
    """The error of ours that made Spark fail, None if it was none."""
    found = _OURS.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found is None or kind is None:
        return None
    try:
        made: ChasquiError = kind(found[2].removeprefix(kind.prefix))
    except TypeError:  # one that is made of more than a message
        return None
    return made


@contextmanager
def told_plainly(what: str) -> Iterator[None]:
    """Raise what ended a job of Spark as one line: ours as it was, else `BackfillError`.

    A row that cannot be a job is one, too: it is the backfill's source that has it.
    """
    try:
        yield
    except SPARKS as error:
        mine = ours(error)
        if mine is not None and not isinstance(mine, RowError):
            raise mine from error
        msg = f"{what}: {_last_cause(str(error)) if mine is None else mine.message}"
        raise BackfillError(msg) from error


def _last_cause(text: str) -> str:
    """The innermost of Java's causes, on one line; the first line if it names none."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    causes = [at for at, line in enumerate(lines) if line.startswith("Caused by: ")]
    if not causes:
        return lines[0] if lines else "no reason was given"
    last = lines[causes[-1] :]
    end = next((at for at, line in enumerate(last) if line.startswith("at ")), len(last))
    return _CLASS.sub("", " ".join(last[:end]))
