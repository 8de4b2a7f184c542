"""Patterns of names of folders, so that Spark lists those that are asked for and no others. Pure.

A table grows for years, and Spark lists all folders of a path that it is given before it looks
which of them it needs: what a batch costs would grow with the table. Patterns are Hadoop's.
"""

import re
from collections.abc import Collection

EVERY = "*"
"""All names."""

PATTERNS = frozenset("*?[]{}\\")
"""Characters of which Hadoop makes something else."""

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_PLAIN = re.compile(r"[\w+-]+", re.ASCII)
# A pattern of so many names is some ten thousand characters.
_MOST = 1_000


def is_pattern(path: str) -> bool:
    """Whether a path may stand for several, in Hadoop's words."""
    return not PATTERNS.isdisjoint(path)


def one_of(names: Collection[str], *beginnings: str) -> str:
    """These names, and those that begin so; all, if they are too many or strange in a pattern."""
    given = {*names, *beginnings}
    if not 0 < len(given) <= _MOST or not all(map(_PLAIN.fullmatch, given)):
        return EVERY
    return f"{{{','.join([*sorted(names), *(f'{each}*' for each in sorted(beginnings))])}}}"


def since(day: str) -> str:
    """Days from this one on, such as `2026-01-31`; all, if it is none that a calendar has."""
    if not _DAY.fullmatch(day):
        return EVERY
    later = [
        f"{day[:place]}[{int(digit) + 1}-9]{'?' * (len(day) - place - 1)}"
        for place, digit in enumerate(day)
        if digit.isdigit() and digit != "9"
    ]
    # Years of five digits have a sign.
    return f"{{{','.join([day, *later, '+*'])}}}"
