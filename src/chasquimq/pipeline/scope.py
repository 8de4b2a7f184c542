"""Which folders of a table a step is about."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Self

from chasquimq.pipeline import sql

_SEPARATOR = "\x1f"
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Scope:
    """Folders, each a queue and a bucket, an hour or a day; None for all there are."""

    folders: frozenset[tuple[str, str]] | None
    since: str | None = field(default=None, compare=False)
    """The day of the earliest event that is known to belong to it."""

    @classmethod
    def of(cls, folders: Iterable[tuple[str, str]], since: str | None = None) -> Self:
        """These folders."""
        return cls(frozenset(folders), since)

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return self.folders is None or bool(self.folders)

    def __len__(self) -> int:
        """How many folders; 0 if it is all of them."""
        return len(self.folders or ())

    def holds(self, folder: str) -> str:
        """Whether a row is in it, by its queue and what `folder` says, in SQL.

        Written so that Spark skips folders, and flat, however many there are: by each column alone,
        then exactly, which takes no more where there is one queue.
        """
        if self.folders is None:
            return "true"
        queues, names = map(sorted, map(set, zip(*self.folders, strict=True))) if self else ((), ())
        by_each = f"({sql.is_in('queue', queues)} AND {sql.is_in(folder, names)})"
        if len(queues) < 2:  # noqa: PLR2004 -- one, or none
            return by_each
        pairs = [_SEPARATOR.join(each) for each in sorted(self.folders)]
        pair = f"concat_ws({sql.text(_SEPARATOR)}, queue, {folder})"
        return f"({by_each} AND {sql.is_in(pair, pairs)})"

    def days(self) -> "Scope":
        """The days that hours are in."""
        if self.folders is None:
            return self
        return Scope.of((queue, hour.partition("T")[0]) for queue, hour in self.folders)

    def span_ms(self) -> tuple[int, int] | None:
        """From the first of its days to the end of the last, epoch ms; None if it has no bounds."""
        if not self.folders:
            return None
        try:
            days = [date.fromisoformat(day).toordinal() - _EPOCH for _, day in self.folders]
        except ValueError:  # an id of a year that no calendar has
            return None
        return min(days) * _DAY_MS, (max(days) + 1) * _DAY_MS


EVERYTHING = Scope(None)
"""All folders."""


def day_before(day: str) -> str:
    """The day before one such as `2026-01-31`; empty, which is before all, if it is none."""
    try:
        return (date.fromisoformat(day) - timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):  # of an id of a year that no calendar has
        return ""
