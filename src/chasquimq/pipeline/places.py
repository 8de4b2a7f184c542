"""Where things are: a path as Spark must be told it, whatever folder its Java was started in."""

import os
import re

_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def resolved(path: str) -> str:
    """The path, made absolute by the working directory of this process; a URL stays as it is.

    Java keeps the directory it was started in, which after an `os.chdir` is another one.
    """
    return path if _HAS_SCHEME.match(path) else os.path.abspath(path)  # noqa: PTH100 -- keeps globs, follows no link
