"""What makes two errors the same: type, message without its particulars, and where. Pure."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

_LENGTH = 12
_FRAMES = 3
_SEPARATOR = "\x1f"

# In this order: what is quoted may hold numbers, and a UUID holds several. A message that is but a
# quoted text, as that of every `KeyError`, keeps it: it is all that tells one cause from another.
_PARTICULARS = (
    (r"""^\s*(?:'([^']*)'|"([^"]*)")\s*$""", "$1$2"),
    (r"""'[^']*'|"[^"]*"|`[^`]*`""", "'…'"),
    (r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "#"),
    (r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "#"),
    (r"(?i)\b0x[0-9a-f]+\b", "#"),
    (r"(?i)\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b", "#"),
    (r"[0-9]+(?:[.,:][0-9]+)*", "#"),
    (r"\s+", " "),
)
_TYPE = r"^([A-Za-z_][\w.]*)(?:: |$)"
_FRAME = r'File "(?:[^"]*[/\\])?([^"/\\]+)", line \d+, in ([^\n]+)'


def normalised(message: Column) -> Column:
    """A message without what differs from case to case: quoted text, ids, numbers."""
    for pattern, stand_in in _PARTICULARS:
        message = F.regexp_replace(message, pattern, stand_in)
    return F.trim(message)


def of_message(message: Column) -> Column:
    """The fingerprint of a bare message, as events tell it; null if there is none."""
    return _digest(normalised(message))


def of_error(error: Column, traceback: Column) -> Column:
    """The fingerprint of a dead letter's error: its type, its message, and the innermost frames.

    Frames are files and functions without line numbers, so that an edit above does not make a new
    error. Null if there is no error.
    """
    parts = (error_type(error), normalised(message_of(error)), top_frames(traceback))
    return F.when(error.isNotNull(), _digest(F.concat_ws(_SEPARATOR, *parts)))


def error_type(error: Column) -> Column:
    """`ValueError` of `ValueError: no such file`; null if there is none."""
    found = F.regexp_extract(error, _TYPE, 1)
    return F.when(found != "", found)


def message_of(error: Column) -> Column:
    """`no such file` of `ValueError: no such file`; all of it if there is no type in front."""
    return F.regexp_replace(error, r"^[A-Za-z_][\w.]*: ", "")


def top_frames(traceback: Column) -> Column:
    """The innermost frames of a traceback, innermost first, as `file.py:function`."""
    files = F.regexp_extract_all(traceback, F.lit(_FRAME), 1)
    functions = F.regexp_extract_all(traceback, F.lit(_FRAME), 2)
    frames = F.zip_with(files, functions, lambda file, name: F.concat_ws(":", file, name))
    innermost = F.slice(F.reverse(frames), 1, _FRAMES)
    return F.coalesce(F.concat_ws(" < ", innermost), F.lit(""))


def _digest(text: Column) -> Column:
    return F.substring(F.sha2(text, 256), 1, _LENGTH)
