"""Pieces of SQL for the transforms. Pure.

They are written in SQL, since each call that makes a column in Python is three or four to Java, and
a batch would make some two thousand of them.
"""

import re
from collections.abc import Iterable

_PLAIN = re.compile(r"[\w ./:+-]*", re.ASCII)


def text(value: str) -> str:
    """A literal for any text: whether a backslash escapes is a setting of the session."""
    if _PLAIN.fullmatch(value):
        return f"'{value}'"
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def is_in(what: str, values: Iterable[str]) -> str:
    """Whether it is one of these."""
    listed = ", ".join(map(text, values))
    return f"({what} IN ({listed}))" if listed else "false"


def when(condition: str, value: str) -> str:
    """The value where it is so, else null."""
    return f"IF({condition}, {value}, NULL)"
