"""Pure: cron expressions and time zones, over `cronsim`.

`cronsim` gives 5 and 6 fields, names, `L`, `#` and Debian's rules for changes of the clock, which
are ours: a fixed time that falls into the gap fires at its end, one that comes twice fires the
first time, and patterns that repeat by the hour or the minute go on through both passes. A time is
fixed if neither its hour nor its minute begins with `*`. Added here: nicknames, `?`, `FRI#L`, empty
items in lists, a year as seventh field, fixed offsets, and the same rules for times with seconds.

Both days restricted means either, as in cron; a field that starts with `*` is not a restriction.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

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
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_OFFSET = re.compile(r"^([+-])(\d{1,2}(?=:)|\d{2}):?(\d{2})$", re.ASCII)
# What zone files hold besides IANA's names; it means another time on another machine, or leap
# seconds.
_NO_ZONES = re.compile(r"(posix|right)/|(localtime|posixrules|Factory)$")
# What cronsim takes and the reference engine does not: that one forgets specs it cannot read.
_OURS_ALONE = re.compile(r"(^|,)(LW|L/|\*,)|,\*$")
_YEARS = re.compile(r"(\*|\d{1,4})(?:-(\d{1,4}))?(?:/0*(\d{1,4}))?", re.ASCII)
_FEWEST_FIELDS = 5
_FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week", "year")
_LAST_YEAR = 5_000
# More than every field with each of its values listed, and what is soon looked through: this is
# done where nothing else can be done meanwhile.
_MOST_CHARS = 1_024
# More than any zone there is: `ZoneInfo` goes down a name by its slashes, and by itself for long
# ones.
_MOST_ZONE_CHARS = 255
_MOST_SHOWN = 80
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
        # cronsim minds the clock change for five fields only: let it find the minutes, add the
        # seconds. What it moved to the end of the gap has none, and fires once.
        seconds = sorted(CronSim(" ".join(self.parts), _SOME_TIME).seconds)
        minutes = CronSim(" ".join(self.parts[1:]), start.replace(second=0) - timedelta(seconds=1))
        for minute in minutes:
            is_moved = minute.hour not in minutes.hours or minute.minute not in minutes.minutes
            for second in (0,) if is_moved else seconds:
                moment = minute + timedelta(seconds=second)
                if moment > start:
                    yield moment

    def _is_fixed_time(self) -> bool:
        """Whether it names its hours and minutes; as in cronsim, seconds have no say in it."""
        return not any(part.startswith("*") for part in self.parts[1:3])


@lru_cache(maxsize=1_024)
def parse_cron(expression: str, tz: str | None, *, is_stored: bool = False) -> Cron:
    """Check an expression and a zone; `ValueError` names the part that is wrong and the remedy.

    What the reference engine would forget is wrong, too, but not of one that `is_stored` already.
    """
    _check_length("cron expression", expression, _MOST_CHARS, "use ranges and steps for lists")
    text = expression.strip()
    if text.startswith("@"):
        try:
            text = _NICKNAMES[text.lower()]
        except KeyError:
            msg = f"cron nickname {_shown(expression)} is unknown: use {', '.join(_NICKNAMES)}"
            raise ValueError(msg) from None
    parts = text.upper().split()
    if not _FEWEST_FIELDS <= len(parts) <= len(_FIELDS):
        msg = (
            f"cron expression {_shown(expression)} has {len(parts)} fields: use 5 (minute hour day "
            "month weekday), 6 with seconds in front, or 7 with a year at the end"
        )
        raise ValueError(msg)
    years = _years(parts.pop()) if len(parts) == len(_FIELDS) else None
    day, weekday = len(parts) - 3, len(parts) - 1
    for position in (day, weekday):
        if parts[position] == "?":
            parts[position] = "*"
    parts[weekday] = parts[weekday].replace("-SUN", "-7")
    parts = [_spelled(part, is_weekday=at == weekday) for at, part in enumerate(parts)]
    cron = Cron(expression, parse_zone(tz, is_stored=is_stored), tuple(parts), years)
    _check(cron, is_stored=is_stored)
    return cron


def portable(expression: str, tz: str | None) -> tuple[str, str | None]:
    """The same fires in words that the reference engine knows; it forgets specs it cannot read."""
    if expression.strip().lower() == "@midnight":
        expression = _NICKNAMES["@midnight"]
    # The last Sunday is 0L there, and 7L no day at all.
    expression = re.sub(r"\b7(#?)L\b", r"0\1L", expression, flags=re.IGNORECASE)
    return expression, "Z" if tz is not None and tz.strip() in ("Z", "z") else tz


@lru_cache(maxsize=1_024)
def parse_zone(tz: str | None, *, is_stored: bool = False) -> tzinfo:
    """UTC for None, '', 'UTC' and 'Z'; an offset such as '+05:30'; else an IANA name."""
    tz = tz or ""
    remedy = "use UTC, an offset such as +05:30, or an IANA name"
    _check_length("time zone", tz, _MOST_ZONE_CHARS, remedy)
    tz = tz.strip()
    if tz.upper() in ("", "UTC", "Z"):
        return UTC
    if match := _OFFSET.match(tz):
        hours, minutes = int(match[2]), int(match[3])
        if hours < 24 and minutes < 60:  # noqa: PLR2004 -- a clock
            span = timedelta(hours=hours, minutes=minutes)
            return timezone(-span if match[1] == "-" else span)
    try:
        if is_stored or not _NO_ZONES.match(tz):
            return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    meant = [name for name in available_timezones() if name.lower() == tz.lower() and name != tz]
    msg = f"time zone {_shown(tz)} is unknown: {f'did you mean {meant[0]}?' if meant else remedy}"
    raise ValueError(msg)


def _check_length(what: str, text: str, most: int, remedy: str) -> None:
    if len(text) > most:
        msg = f"{what} {_shown(text)} is too long, at most {most:,} characters are read: {remedy}"
        raise ValueError(msg)


def _shown(text: str) -> str:
    """A value for a message: the beginning of one that is long, and how long it is."""
    if len(text) <= _MOST_SHOWN:
        return repr(text)
    return f"{text[:_MOST_SHOWN]!r}... ({len(text):,} characters)"


def _spelled(part: str, *, is_weekday: bool) -> str:
    """A field as cronsim wants it: no empty items, `5L` for `5#L` and `FRIL`, `6` for `6-6/2`."""
    items = []
    for item in filter(None, part.split(",")):
        if is_weekday and (last := re.fullmatch(r"(\w{1,3})#?L", item)):
            day = last[1]
            items.append(f"{_DAYS.index(day) if day in _DAYS else day}L")
        else:
            items.append(re.sub(r"^(\w+)-\1/0*[1-9]\d*$", r"\1", item))
    return ",".join(items) or part


def _check(cron: Cron, *, is_stored: bool) -> None:
    """Find out, field by field, which one cannot be taken."""
    names = _FIELDS[1:6] if len(cron.parts) == _FEWEST_FIELDS else _FIELDS[:6]
    try:
        _check_fields(cron.parts, is_stored=is_stored)
    except CronSimError as error:
        for position, (name, part) in enumerate(zip(names, cron.parts, strict=True)):
            alone = ["*"] * len(cron.parts)
            alone[position] = part
            try:
                _check_fields(alone, is_stored=is_stored)
            except CronSimError:
                whole = f"cron expression {_shown(cron.expression)}"
                msg = f"{whole}: {_shown(part)} is not a valid {name}"
                if len(cron.expression.split()) == _FEWEST_FIELDS + 1:
                    msg += ": with 6 fields the first is the second"
                raise ValueError(msg) from None
        msg = f"cron expression {_shown(cron.expression)} never matches: {error}"
        raise ValueError(msg) from None


def _check_fields(parts: Sequence[str], *, is_stored: bool) -> None:
    if not is_stored and any(_OURS_ALONE.search(part) for part in parts):
        raise CronSimError
    CronSim(" ".join(parts), _SOME_TIME)


def _years(part: str) -> frozenset[int] | None:
    if part == "*":
        return None
    years: set[int] = set()
    for item in filter(None, part.split(",")):
        match = _YEARS.fullmatch(item)
        first = 1 if match and match[1] == "*" else int(match[1]) if match else 0
        is_open = match is not None and (match[1] == "*" or match[3] is not None)
        last = int(match[2]) if match and match[2] else _LAST_YEAR if is_open else first
        if match is None or match[3] == "0" or not 0 < first <= _LAST_YEAR >= last:
            remedy = f"use years, ranges, lists up to {_LAST_YEAR}"
            msg = f"cron year {_shown(part)} is not valid: {remedy}"
            raise ValueError(msg)
        years.update(range(first, last + 1, int(match[3] or 1)))
    if not years:
        msg = f"cron year {_shown(part)} is an empty range: put the earlier year first"
        raise ValueError(msg)
    return frozenset(years)
