"""Turns what people type into values: durations, instants, JSON, backoffs."""

import contextlib
import json
import math
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, NoReturn

import click

from chasquimq.cli.render import cut, remark
from chasquimq.config import RetryConfig
from chasquimq.wire.repeat import MissedFiresPolicy
from chasquimq.wire.retry import U32_MAX

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?")
_UNIT_MS = {
    None: 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
MOST_PROCESSES = 1_024
"""A process takes some 40 MB: more than this is a slip, and would fill the machine's memory."""
# Python refuses to read numbers of some thousand digits, in words of its own.
_MOST_DIGITS = 1_000
_SPARKS_INTERVAL = re.compile(
    r"(\d+\s+(millisecond|second|minute|hour|day|week)s?\s*)+", re.IGNORECASE
)
_BACKOFF = re.compile(r"exponential:(?P<first>[^:]+)(?::(?P<most>[^:]+))?")


def duration(text: str) -> int:
    """Milliseconds of `250ms`, `30s`, `5m`, `2h`, `1d`; a bare number is milliseconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        msg = f"{cut(text)!r} is no duration: write 250ms, 30s, 5m, 2h or 1d"
        raise click.BadParameter(msg)
    value = float(found[1]) * _UNIT_MS[found[2]]
    if math.isinf(value):
        msg = f"{cut(text)!r} is too long a time: write 250ms, 30s, 5m, 2h or 1d"
        raise click.BadParameter(msg)
    return int(value)


def wait_s(text: str) -> float:
    """Seconds above 0 of a duration; unlike elsewhere a bare number is seconds."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = duration(text) / 1_000
        except click.BadParameter:
            msg = f"{cut(text)!r} is no time to wait: write 30 for seconds, or 250ms, 30s, 5m, 2h"
            raise click.BadParameter(msg) from None
    if not 0 < seconds < math.inf:
        msg = f"{cut(text)!r} is no time to wait: it must be above 0, and end"
        raise click.BadParameter(msg)
    return seconds


def spark_interval(text: str) -> str:
    """A time as Spark has it, `5 minutes`, of that or of a duration."""
    if _SPARKS_INTERVAL.fullmatch(text.strip()):
        return text
    # A bare number would be milliseconds, and is most likely not meant so.
    with contextlib.suppress(click.BadParameter):
        if not text.strip().isdigit() and (milliseconds := duration(text)):
            return f"{milliseconds} milliseconds"
    msg = (
        f"{cut(text)!r} is no interval: write '10 seconds', '5 minutes' or '1 hour', or 10s, 5m, 1h"
    )
    raise click.BadParameter(msg)


def instant(text: str) -> datetime:
    """The moment of `2030-01-31T08:00:00Z` or of epoch milliseconds; without an offset in UTC."""
    return in_zone(local_time(text), UTC)


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """The same moment; one without an offset is that time in the zone, the first if it has two."""
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def local_time(text: str) -> datetime:
    """The same as `instant`, but without an offset if it was given without."""
    try:
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(int(text) / 1_000, UTC)
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        msg = f"{cut(text)!r} is no instant: write 2030-01-31T08:00:00Z or epoch milliseconds"
        raise click.BadParameter(msg) from None


def backoff(text: str) -> int | dict[str, Any]:
    """What `Queue.add` takes for `5s`, `exponential:1s`, `exponential:1s:5m` or a JSON object."""
    if text.lstrip().startswith("{"):
        spec: dict[str, Any] = parsed(text, "--backoff")
        return spec
    growing = _BACKOFF.fullmatch(text)
    try:
        if growing is None:
            return duration(text)
        spec = {"kind": "exponential", "delay_ms": duration(growing["first"])}
        if growing["most"]:
            spec["max_delay_ms"] = duration(growing["most"])
    except click.BadParameter:
        msg = f"{cut(text)!r} is no backoff: write 5s, exponential:1s, exponential:1s:5m, or JSON"
        raise click.BadParameter(msg) from None
    if spec.get("max_delay_ms", spec["delay_ms"]) < spec["delay_ms"]:
        msg = (
            f"{cut(text)!r} has a cap of {spec['max_delay_ms']} ms, below its start of "
            f"{spec['delay_ms']} ms: write exponential:1s:5m; a bare number is milliseconds"
        )
        raise click.BadParameter(msg)
    return spec


def remark_if_cut(backoff: int | dict[str, Any] | None) -> None:
    """Say of a backoff that workers will cut it, unless they are told otherwise."""
    spec = backoff if isinstance(backoff, dict) else {"delay_ms": backoff}
    delay_ms, cap_ms = spec.get("delay_ms"), RetryConfig().max_backoff_ms
    if isinstance(delay_ms, int) and delay_ms > cap_ms and spec.get("max_delay_ms") is None:
        remark(
            f"workers cut a backoff of {delay_ms} ms to their max_backoff_ms, {cap_ms} by default:"
            f" write exponential:{delay_ms}:{delay_ms} to have it whole"
        )


def missed_fires(text: str) -> MissedFiresPolicy:
    """What is done after an outage: `skip`, `fire-once` or `fire-all:10`."""
    kind, colon, most = text.partition(":")
    try:
        if not colon:
            return MissedFiresPolicy(kind)
        return MissedFiresPolicy(kind, int(most))
    except (ValueError, TypeError):
        msg = (
            f"--missed-fires {cut(text)!r} is not known: write skip, fire-once, or fire-all:10 for "
            f"10 at most, from 1 to {U32_MAX}"
        )
        raise click.UsageError(msg) from None


def positive(value: str | int) -> int:
    """A whole number from 1; unlike click's own it does not put its range into every help line."""
    text = str(value)
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < 1:
        msg = f"{cut(text)!r} is not a whole number from 1 on"
        raise click.BadParameter(msg)
    return int(text)


def processes(value: str | int) -> int:
    """A whole number from 1 to what one machine could run."""
    count = positive(value)
    if count > MOST_PROCESSES:
        msg = f"{cut(str(count))} processes are too many: use {MOST_PROCESSES:,} or fewer"
        raise click.BadParameter(msg)
    return count


def epoch_ms(moment: datetime | None) -> int | None:
    """Epoch milliseconds of an instant; None stays None."""
    return None if moment is None else round(moment.timestamp() * 1_000)


def job_data(text: str | None) -> Any:  # noqa: ANN401 -- the user's data
    """The value an argument stands for: JSON, `@file` with JSON, `-` for JSON on stdin.

    Left out it is null.
    """
    if text is None:
        return None
    if text == "-":
        return parsed(sys.stdin.read(), "stdin")
    if text.startswith("@"):
        return parsed(_content(text[1:]), cut(text[1:], 400))
    return parsed(text, "data")


def json_lines(source: str) -> Iterator[tuple[int, Any]]:
    """The values of a file of JSON lines (`-` is stdin) with their line numbers; blanks pass."""
    text = sys.stdin if source == "-" else _content(source).splitlines()
    for number, line in enumerate(text, 1):
        if line.strip():
            yield number, parsed(line, f"line {number}")


def parsed(text: str, origin: str) -> Any:  # noqa: ANN401 -- the user's data
    """The value of a JSON text; a mistake names its place and what it looked like."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except ValueError as error:
        _refuse(text, origin, str(error))
    except RecursionError:
        _refuse(text, origin, "it is nested too deeply")


def _no_number(word: str) -> NoReturn:
    msg = f"{word} is no number that JSON has"
    raise ValueError(msg)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        msg = f"{text} is too large for a number"
        raise ValueError(msg)
    return number


def _refuse(text: str, origin: str, problem: str) -> NoReturn:
    shown = text.strip()[:40]
    hint = "" if shown[:1] in '[{"' else f"; text needs quotes: '\"{shown}\"'"
    if not shown:
        hint = "; it is empty, write null for nothing"
    msg = f"{origin} is not JSON: {problem}, in {shown!r}{hint}"
    raise click.UsageError(msg)


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        msg = f"{cut(path, 400)} cannot be read: {reason}"
        raise click.UsageError(msg) from error
