"""Where things are: a path as Spark must be told it, whatever folder its Java was started in."""

import os
import re
from pathlib import Path

_FILE = re.compile(r"file:(?://[^/]*)?(?=/)")
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def resolved(path: str) -> str:
    """The path, made absolute by the working directory of this process; a URL stays as it is.

    Java keeps the directory it was started in, which after an `os.chdir` is another one.
    """
    return path if _HAS_SCHEME.match(path) else os.path.abspath(path)  # noqa: PTH100 -- keeps globs, follows no link


def on_this_machine(path: str) -> Path | None:
    """The path if it is one of files here, with or without `file:`; None for another scheme."""
    whole = _FILE.sub("", resolved(path))
    return None if _HAS_SCHEME.match(whole) else Path(whole)
