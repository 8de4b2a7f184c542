"""Pure: cron expressions and time zones, over `cronsim`.

`cronsim` gives 5 and 6 fields, names, `L`, `#` and Debian's rules for changes of the clock, which
are ours: a fixed time that falls into the gap fires at its end, one that comes twice fires the
first time, and patterns that repeat by the hour or the minute go on through both passes. Added
here: nicknames, `?`, a year as seventh field, fixed offsets, and the same rules for fixed times
with seconds.

Both days restricted means either, as in cron; a field that starts with `*` is not a restriction.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_OFFSET = re.compile(r"^([+-])(\d{2}):?(\d{2})$")
_FEWEST_FIELDS = 5
_FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week", "year")
_LAST_YEAR = 5_000
# Any instant will do to look at an expression without asking when it fires.
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cron:
    """A valid expression in a zone. Build it with `parse_cron`."""

    expression: str
    zone: tzinfo
    parts: tuple[str, ...]
    years: frozenset[int] | None = None

    def next_after(self, moment_ms: int) -> int | None:
        """The first fire strictly after an instant, in epoch ms; None if there is none any more."""
        return next(self.fires_after(moment_ms), None)

    def fires_after(self, moment_ms: int) -> Iterator[int]:
        """All fires strictly after an instant, in order, whole seconds in epoch ms."""
        moments = self._moments(datetime.fromtimestamp(moment_ms // 1_000, self.zone))
        while (moment := next(moments, None)) is not None:
            if self.years is not None and moment.year not in self.years:
                later = [year for year in self.years if year > moment.year]
                if not later:
                    return
                new_year = datetime(min(later), 1, 1, tzinfo=self.zone)
                moments = self._moments(new_year - timedelta(seconds=1))
                continue
            fire_ms = int(moment.timestamp()) * 1_000
            if fire_ms > moment_ms:
                yield fire_ms

    def describe(self) -> str:
        """The expression in words, for people."""
        # Where both days are restricted either will do, which "and" does not say.
        words = CronSim(" ".join(self.parts), _SOME_TIME).explain().replace(" and on ", " or on ")
        if self.years is not None:
            words += f" in {', '.join(map(str, sorted(self.years)))}"
        return f"{words} ({self.zone})"

    def _moments(self, start: datetime) -> Iterator[datetime]:
        if len(self.parts) == _FEWEST_FIELDS or not self._is_fixed_time():
            yield from CronSim(" ".join(self.parts), start)
            return
        # cronsim minds the clock change for five fields only: let it find the minute, add the
        # second.
        second = timedelta(seconds=int(self.parts[0]))
        hour, minute = int(self.parts[2]), int(self.parts[1])
        for moment in CronSim(" ".join(self.parts[1:]), start - second):
            is_snapped = (moment.hour, moment.minute) != (hour, minute)
            yield moment if is_snapped else moment + second

    def _is_fixed_time(self) -> bool:
        return all(part.isdigit() for part in self.parts[:3])


@lru_cache(maxsize=1_024)
def parse_cron(expression: str, tz: str | None) -> Cron:
    """Check an expression and a zone; `ValueError` names the part that is wrong and the remedy."""
    text = expression.strip()
    if text.startswith("@"):
        try:
            text = _NICKNAMES[text.lower()]
        except KeyError:
            msg = f"cron nickname {expression!r} is unknown: use {', '.join(_NICKNAMES)}"
            raise ValueError(msg) from None
    parts = text.upper().split()
    if not _FEWEST_FIELDS <= len(parts) <= len(_FIELDS):
        msg = (
            f"cron expression {expression!r} has {len(parts)} fields: use 5 (minute hour day month "
            "weekday), 6 with seconds in front, or 7 with a year at the end"
        )
        raise ValueError(msg)
    years = _years(parts.pop()) if len(parts) == len(_FIELDS) else None
    day, weekday = len(parts) - 3, len(parts) - 1
    for position in (day, weekday):
        if parts[position] == "?":
            parts[position] = "*"
    parts[weekday] = parts[weekday].replace("-SUN", "-7")
    cron = Cron(expression, parse_zone(tz), tuple(parts), years)
    _check(cron)
    return cron


@lru_cache(maxsize=1_024)
def parse_zone(tz: str | None) -> tzinfo:
    """UTC for None, '', 'UTC' and 'Z'; an offset such as '+05:30'; else an IANA name."""
    if tz is None or tz.upper() in ("", "UTC", "Z"):
        return UTC
    if match := _OFFSET.match(tz):
        hours, minutes = int(match[2]), int(match[3])
        if hours < 24 and minutes < 60:  # noqa: PLR2004 -- a clock
            span = timedelta(hours=hours, minutes=minutes)
            return timezone(-span if match[1] == "-" else span)
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = f"time zone {tz!r} is unknown: use UTC, an offset such as +05:30, or an IANA name"
        raise ValueError(msg) from None


def _check(cron: Cron) -> None:
    """Find out, field by field, which one cronsim does not take."""
    try:
        CronSim(" ".join(cron.parts), _SOME_TIME)
    except CronSimError as error:
        names = _FIELDS[1:6] if len(cron.parts) == _FEWEST_FIELDS else _FIELDS[:6]
        for position, (name, part) in enumerate(zip(names, cron.parts, strict=True)):
            alone = ["*"] * len(cron.parts)
            alone[position] = part
            try:
                CronSim(" ".join(alone), _SOME_TIME)
            except CronSimError:
                msg = f"cron expression {cron.expression!r}: {part!r} is not a valid {name}"
                raise ValueError(msg) from None
        msg = f"cron expression {cron.expression!r} never matches: {error}"
        raise ValueError(msg) from None


def _years(part: str) -> frozenset[int] | None:
    if part in ("*", "?"):
        return None
    years: set[int] = set()
    for item in part.split(","):
        match = re.fullmatch(r"(\*|\d{1,4})(?:-(\d{1,4}))?(?:/(\d{1,4}))?", item)
        first = 1 if match and match[1] == "*" else int(match[1]) if match else 0
        if match is None or not first or (match[3] is not None and int(match[3]) == 0):
            msg = f"cron year {part!r} is not valid: use years, ranges, lists up to {_LAST_YEAR}"
            raise ValueError(msg)
        is_open = match[1] == "*" or match[3] is not None
        last = int(match[2]) if match[2] else _LAST_YEAR if is_open else first
        years.update(range(first, last + 1, int(match[3] or 1)))
    if not years:
        msg = f"cron year {part!r} is an empty range: put the earlier year first"
        raise ValueError(msg)
    return frozenset(years)
