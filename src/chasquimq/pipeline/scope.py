"""Which folders of a table a step is about."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Self

from chasquimq.pipeline import sql

_SEPARATOR = "\x1f"
_MS, _STRETCH = timedelta(milliseconds=1), timedelta(minutes=10)
_FORM = "%Y-%m-%dT%H-%M"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- all are in UTC, and so are stretches


@dataclass(frozen=True, slots=True)
class Scope:
    """Folders, each a queue and a bucket, a stretch or a day; None for all there are."""

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
        return f"({by_each} AND {sql.is_in(_pair(folder), self._pairs())})"

    def place(self, folder: str) -> str | None:
        """Which of its folders a row is in, counted from 1, in SQL; None if it is all of them."""
        if self.folders is None:
            return None
        pairs = ", ".join(map(sql.text, self._pairs()))
        return f"array_position(array({pairs}), {_pair(folder)})"

    def without(self, places: Collection[int | None]) -> "Scope":
        """Its folders that are at none of these places."""
        folders = sorted(self.folders or ())
        return Scope.of(each for place, each in enumerate(folders, 1) if place not in places)

    def days(self) -> "Scope":
        """The days that stretches are in."""
        if self.folders is None:
            return self
        return Scope.of((queue, stretch.partition("T")[0]) for queue, stretch in self.folders)

    def span_ms(self) -> tuple[int, int] | None:
        """From the first of its stretches to the end of the last, epoch ms; None if unbounded."""
        if not self.folders:
            return None
        try:
            starts = [_began(stretch) - _EPOCH for _, stretch in self.folders]
        except ValueError:  # an id of a year that no calendar has
            return None
        first, end = min(starts), max(starts) + _STRETCH
        return first // _MS, end // _MS

    def _pairs(self) -> list[str]:
        return [_SEPARATOR.join(each) for each in sorted(self.folders or ())]


EVERYTHING = Scope(None)
"""All folders."""


def _pair(folder: str) -> str:
    return f"concat_ws({sql.text(_SEPARATOR)}, queue, {folder})"


def day_before(day: str) -> str:
    """The day before one such as `2026-01-31`; empty, which is before all, if it is none."""
    try:
        return (date.fromisoformat(day) - timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):  # of an id of a year that no calendar has
        return ""


def stretch_before(stretch: str) -> str:
    """The stretch before one such as `2026-01-31T09-10`; the same if no calendar has it."""
    try:
        return f"{_began(stretch) - _STRETCH:{_FORM}}"
    except (ValueError, OverflowError):
        return stretch


def _began(stretch: str) -> datetime:
    return datetime.strptime(stretch, _FORM)  # noqa: DTZ007 -- see above
