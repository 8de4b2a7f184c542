"""Instants as columns: periods, days and hours in UTC, whatever the session's time zone is. Pure.

Spark's `date_trunc` and `date_format` follow the session's zone, so two sessions would put one
event into different folders. These are arithmetic on epoch milliseconds.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
BUCKET_MS = 10 * MINUTE_MS

OTHER_BUCKETS = "id-"
"""How the names of buckets begin that tell no time."""

_MANY_OTHERS = 64
_ULID = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
# Crockford's alphabet leaves out I, L, O and U; `conv` counts without gaps.
_CROCKFORD = "ABCDEFGHJKMNPQRSTVWXYZ"
_PLAIN = "ABCDEFGHIJKLMNOPQRSTUV"


def period(at: Column, unit_ms: Column | int) -> Column:
    """The beginning of the period that an instant is in."""
    ms = F.unix_millis(at)
    return F.timestamp_millis(ms - F.pmod(ms, F.lit(unit_ms).cast("long")))


def day(at: Column) -> Column:
    """`2026-01-31`."""
    return F.date_from_unix_date(F.floor(F.unix_millis(at) / DAY_MS).cast("int")).cast("string")


def hour(at: Column) -> Column:
    """`2026-01-31T09`."""
    return F.concat(day(at), F.lit("T"), _two(_within(at, DAY_MS, HOUR_MS)))


def bucket(job_id: Column) -> Column:
    """The part of a table that a job is in, by its id alone: so all its events agree on it.

    A ULID says when the job was made, so the bucket is that time, to ten minutes. An id of the
    user's own says nothing: those are spread over a fixed number of buckets.
    """
    made_at = ulid_time(job_id)
    by_time = F.concat(hour(made_at), F.lit("-"), _two(_within(made_at, HOUR_MS, MINUTE_MS, 10)))
    by_hash = F.concat(F.lit(OTHER_BUCKETS), _two(F.pmod(F.crc32(job_id), F.lit(_MANY_OTHERS))))
    return F.when(made_at.isNotNull(), by_time).when(job_id.isNotNull(), by_hash)


def ulid_time(job_id: Column) -> Column:
    """When a ULID was made; null for any other id."""
    digits = F.translate(F.substring(job_id, 1, 10), _CROCKFORD, _PLAIN)
    ms = F.conv(digits, 32, 10).cast("long")
    return F.when(job_id.rlike(_ULID), F.timestamp_millis(ms))


def _within(at: Column, whole_ms: int, unit_ms: int, step: int = 1) -> Column:
    """The number of a unit within a larger one, down to a multiple of `step`."""
    ms = F.pmod(F.unix_millis(at), F.lit(whole_ms))
    return F.floor(ms / (unit_ms * step)) * step


def _two(number: Column) -> Column:
    return F.lpad(number.cast("string"), 2, "0")
