"""What really went wrong, within what Spark makes of it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from chasquimq import errors
from chasquimq.errors import BackfillError, ChasquiError

_OURS = re.compile(r"chasquimq\.(?:errors\.)?(\w+Error): ([^\n]*?) \[CMQ-\d+\]")
_A_ROW = re.compile(r"^ValueError: ([^\n]+)$", re.MULTILINE)
_CODES = re.compile(r"^\[[A-Z_.]+\] |\s*SQLSTATE: \w+.*$")
_CLASS = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+[\w$]+(?:Exception|Error): ")


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
    """Raise what ended a job of Spark as one line: ours as it was, else `BackfillError`."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if (mine := ours(error)) is not None:
            raise mine from error
        row = _A_ROW.search(str(error))
        msg = f"{what}: {row[1] if row else _last_cause(str(error))}"
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
