"""Instants in SQL: periods, days and hours in UTC, whatever the session's time zone is. Pure.

Spark's `date_trunc` and `date_format` follow the session's zone, so two sessions would put one
event into different folders. These are arithmetic on epoch milliseconds.
"""

from chasquimq.pipeline.sql import when

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
STRETCH_MS = 10 * MINUTE_MS

OTHER_BUCKETS = "id-"
"""How the names of buckets begin that tell no time."""

_MANY_OTHERS = 64
_ULID = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
# Crockford's alphabet leaves out I, L, O and U; `conv` counts without gaps.
_CROCKFORD = "ABCDEFGHJKMNPQRSTVWXYZ"
_PLAIN = "ABCDEFGHIJKLMNOPQRSTUV"


def period(at: str, unit_ms: str | int) -> str:
    """The beginning of the period that an instant is in."""
    ms = f"unix_millis({at})"
    return f"timestamp_millis({ms} - pmod({ms}, CAST({unit_ms} AS BIGINT)))"


def day(at: str) -> str:
    """`2026-01-31`."""
    number = f"CAST(floor(unix_millis({at}) / {DAY_MS}) AS INT)"
    return f"CAST(date_from_unix_date({number}) AS STRING)"


def hour(at: str) -> str:
    """`2026-01-31T09`."""
    return f"concat({day(at)}, 'T', {_two(_within(at, DAY_MS, HOUR_MS))})"


def stretch(at: str) -> str:
    """`2026-01-31T09-10`, of ten minutes."""
    return f"concat({hour(at)}, '-', {_two(_within(at, HOUR_MS, MINUTE_MS, 10))})"


DAY_OF_STRETCH = "substring_index(stretch, 'T', 1)"
"""The day that a row's stretch is in."""


def bucket(job_id: str) -> str:
    """The part of a table that a job is in, by its id alone: so all its events agree on it.

    A ULID says when the job was made, so the bucket is the stretch of that time. An id of the
    user's own says nothing: those are spread over a fixed number of buckets.
    """
    made_at = ulid_time(job_id)
    by_hash = f"concat('{OTHER_BUCKETS}', {_two(f'pmod(crc32({job_id}), {_MANY_OTHERS})')})"
    return (
        f"CASE WHEN {made_at} IS NOT NULL THEN {stretch(made_at)} "
        f"WHEN {job_id} IS NOT NULL THEN {by_hash} END"
    )


def ulid_time(job_id: str) -> str:
    """When a ULID was made; null for any other id."""
    digits = f"translate(substring({job_id}, 1, 10), '{_CROCKFORD}', '{_PLAIN}')"
    ms = f"CAST(conv({digits}, 32, 10) AS BIGINT)"
    return when(f"{job_id} RLIKE '{_ULID}'", f"timestamp_millis({ms})")


def _within(at: str, whole_ms: int, unit_ms: int, step: int = 1) -> str:
    """The number of a unit within a larger one, down to a multiple of `step`."""
    return f"floor(pmod(unix_millis({at}), {whole_ms}) / {unit_ms * step}) * {step}"


def _two(number: str) -> str:
    return f"lpad(CAST({number} AS STRING), 2, '0')"
