"""Rows of a table to jobs: which column means what, and an id that is the same every time."""

import hashlib
import json
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from chasquimq.broker.runs import RunJob
from chasquimq.config import ProducerConfig
from chasquimq.errors import ConfigError
from chasquimq.spark.counts import Counts
from chasquimq.spark.options import SinkOptions, shown
from chasquimq.spark.values import values
from chasquimq.wire.codec import pack
from chasquimq.wire.entry import MAX_ID_BYTES, MAX_NAME_BYTES
from chasquimq.wire.envelope import encode_with_retry
from chasquimq.wire.retry import BackoffSpec, RetryOverride

MEANINGS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "name": ((StringType,), "text"),
    "job_id": ((StringType,), "text"),
    "delay_ms": ((IntegralType,), "a whole number of milliseconds"),
    "run_at": (
        (TimestampType, TimestampNTZType, IntegralType),
        "a timestamp, or epoch milliseconds",
    ),
    "attempts": ((IntegralType,), "a whole number"),
    "backoff": (
        (IntegralType, StringType, StructType, MapType),
        "milliseconds, or a struct, map or JSON with kind and delay_ms",
    ),
}
"""Columns that are not payload, the types they may have, and how to say that."""

_US_PER_MS = 1_000
_DIGEST_BYTES = 15
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
# A character has at most four bytes.
_SURELY_SHORT = MAX_NAME_BYTES // 4
_LONGEST_WAIT_MS = ProducerConfig().max_delay_secs * 1_000
_NO_RULES = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a table say how a job runs, and which are its payload."""

    special: tuple[str, ...]
    payload: tuple[str, ...]
    is_whole: bool
    """Whether the one payload column is the payload, rather than a map of all of them."""
    origin: str | None = None
    """The column that says where a row is from."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """A row that cannot be a job."""

    origin: str | None
    row: int
    """Its place among those of the origin, from 1; 0 if there is none."""
    problem: str

    def __str__(self) -> str:
        """What is wrong, and where."""
        return (
            self.problem
            if self.origin is None
            else f"{self.problem}, row {self.row} of {self.origin}"
        )


def layout(schema: StructType, options: SinkOptions) -> Layout:
    """Look at the columns, before anything is written; `ConfigError` if they will not do."""
    names = schema.fieldNames()
    origin = options.origin_column
    if origin is not None and (
        origin not in names or not isinstance(schema[origin].dataType, StringType)
    ):
        _refuse(f"option 'originColumn' is {origin!r}: use a column of text of {', '.join(names)}")
    chosen = options.payload_column
    special = tuple(name for name in names if name in MEANINGS and name not in {chosen, origin})
    for name in special:
        kinds, rule = MEANINGS[name]
        found = schema[name].dataType
        if not isinstance(found, kinds):
            _refuse(f"column {name!r} is {found.simpleString()}: it must be {rule}")
    if {"delay_ms", "run_at"} <= set(special):
        _refuse("columns 'delay_ms' and 'run_at' are both there: leave one out")
    rest = tuple(name for name in names if name not in special and name != origin)
    if chosen is None:
        return Layout(special, rest, is_whole=False, origin=origin)
    if chosen not in names:
        _refuse(f"option 'payloadColumn' is {chosen!r}: use one of {', '.join(names)}")
    if len(rest) > 1:
        others = ", ".join(name for name in rest if name != chosen)
        _refuse(f"columns {others} are neither the payload {chosen!r} nor known: drop them")
    return Layout(special, rest, is_whole=True, origin=origin)


class JobMaker:
    """Makes the jobs of one task of one run; the same rows give the same ids, in any order.

    An id is made of the run, the partition, what is in the row, and how many equal rows came before
    it here. So a retried task adds nothing twice even where its rows come in another order, as they
    do after a shuffle. `Counts` has the equal rows, in memory that does not grow; rows with a
    `job_id` need none of it.

    With an origin an id is made of the run, the origin and the row's place there: it does not
    depend on how rows are spread over tasks, and costs nothing, but the order must be the same.
    """

    def __init__(self, plan: Layout, options: SinkOptions, run_id: str, partition: int) -> None:
        """`run_id` must be the same when the run is repeated, and `partition` for the same rows."""
        self._plan = plan
        self._options = options
        where = "" if plan.origin else partition
        self._key = hashlib.blake2b(f"{where}/{run_id}".encode()).digest()
        self._keyed = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=self._key)
        self._places: dict[str | None, int] = {}
        self._counts = Counts()
        self._backoffs: dict[Any, BackoffSpec] = {}

    def close(self) -> None:
        """Give up what was kept of the rows."""
        self._counts.close()

    def jobs(self, batch: pa.RecordBatch, now_ms: int) -> Iterator[RunJob | Unfit]:
        """For each row of one batch its job, or why it cannot be one."""
        empty = [None] * batch.num_rows
        given = {name: _values(batch.column(name), name) for name in self._plan.special}
        name, job_id, *times_and_rules = (given.get(each, empty) for each in MEANINGS)
        rows = zip(name, *times_and_rules, strict=True)
        places = self._next_places(batch)
        for data, chosen_id, rules, place in zip(
            self._payloads(batch), job_id, rows, places, strict=True
        ):
            try:
                job = self._job(pack(data, name="payload"), rules, chosen_id, now_ms, place)
            except (TypeError, ValueError) as error:
                yield Unfit(*(place or (None, 0)), str(error))
            else:
                yield job

    def rows_of(self, origin: str | None) -> int:
        """How many rows of an origin have come so far."""
        return self._places.get(origin, 0)

    def _next_places(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, int] | None]:
        """Where each row stands in its origin; None for each where there are no origins."""
        if self._plan.origin is None:
            return repeat(None, batch.num_rows)
        return map(self._next_place, batch.column(self._plan.origin).to_pylist())

    def _next_place(self, origin: str | None) -> tuple[str | None, int]:
        number = self._places[origin] = self._places.get(origin, 0) + 1
        return origin, number

    def _payloads(self, batch: pa.RecordBatch) -> Iterator[Any]:
        names = self._plan.payload
        columns = [values(batch.column(name)) for name in names]
        if self._plan.is_whole:
            return iter(columns[0])
        if not columns:
            return ({} for _ in range(batch.num_rows))
        return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))

    def _job(
        self,
        payload: bytes,
        rules: tuple[Any, ...],
        chosen_id: str | None,
        now_ms: int,
        place: tuple[str | None, int] | None,
    ) -> RunJob:
        if place is not None and place[0] is None:
            _refuse_row(
                self._plan.origin or "", None, "text: nulls of two tasks would be one origin"
            )
        name = rules[0] or self._options.job_name
        if len(name) > _SURELY_SHORT and len(name.encode()) > MAX_NAME_BYTES:
            _refuse_row("name", name, f"at most {MAX_NAME_BYTES} bytes of UTF-8")
        if chosen_id is not None:
            if not chosen_id.strip():
                _refuse_row("job_id", chosen_id, "text that is not blank, or null")
            if len(chosen_id.encode()) > MAX_ID_BYTES:
                _refuse_row("job_id", chosen_id, f"at most {MAX_ID_BYTES} bytes")
        job_id = chosen_id or self._id(payload, rules, place)
        delay_ms, run_at_ms, retry = 0, None, None
        if rules[1:] != _NO_RULES:
            _, delay_ms, run_at_ms, attempts, backoff = rules
            if delay_ms is not None and delay_ms < 0:
                _refuse_row("delay_ms", delay_ms, "0 or more")
            _check_distance(delay_ms, run_at_ms, now_ms)
            retry = self._retry(attempts, backoff)
        envelope = encode_with_retry(job_id, payload, now_ms, retry)
        if len(envelope) > self._options.max_payload_bytes:
            size, most = len(envelope), self._options.max_payload_bytes
            msg = f"a row is a job of {size} bytes: it must be at most maxPayloadBytes, {most}"
            raise ValueError(msg)
        return RunJob(job_id, envelope, name, delay_ms or 0, run_at_ms, chosen_id is not None)

    def _id(
        self, payload: bytes, rules: tuple[Any, ...], place: tuple[str | None, int] | None
    ) -> str:
        if place is not None:
            digest = self._digest(pack(place))
        else:
            digest = self._digest(pack([payload, *rules]))
            count = self._counts.note(digest)
            if count:
                digest = self._digest(digest + count.to_bytes(8, "big"))
        # Not the shape of a ULID, whose first characters would be read as a time.
        return "s-" + b2a_base64(digest, newline=False).translate(_URL_SAFE).decode()

    def _digest(self, content: bytes) -> bytes:
        hashed = self._keyed.copy()
        hashed.update(content)
        return hashed.digest()

    def _retry(self, attempts: int | None, backoff: object) -> RetryOverride | None:
        if attempts is None and backoff is None:
            return None
        if attempts is not None and attempts < 1:
            _refuse_row("attempts", attempts, "1 or more: it counts the first run too")
        return RetryOverride(attempts, None if backoff is None else self._backoff(backoff))

    def _backoff(self, value: Any) -> BackoffSpec:  # noqa: ANN401 -- a number, a dict or JSON
        key = tuple(sorted(value.items())) if isinstance(value, Mapping) else value
        known = self._backoffs.get(key)
        if known is None:
            try:
                known = self._backoffs[key] = _backoff_of(value)
            except (TypeError, ValueError, RecursionError) as error:
                _refuse_row("backoff", value, f"ms, or JSON as BackoffSpec has it ({error})")
        return known


def _backoff_of(value: object) -> BackoffSpec:
    if isinstance(value, int):
        return BackoffSpec.fixed(value)
    fields = json.loads(value) if isinstance(value, str) else value
    if not isinstance(fields, Mapping):
        msg = "JSON, but no object"
        raise ValueError(msg)  # noqa: TRY004 -- the column's type is right, its content is not
    return BackoffSpec.from_dict({key: each for key, each in fields.items() if each is not None})


def _values(column: pa.Array, name: str) -> list[Any]:
    if name == "run_at" and pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if each is None else each // _US_PER_MS for each in micros]
    return values(column)


def _refuse(problem: str) -> NoReturn:
    raise ConfigError(problem)


def _refuse_row(column: str, value: object, rule: str) -> NoReturn:
    msg = f"column {column!r} of a row is {shown(value)}: it must be {rule}"
    raise ValueError(msg)


def _check_distance(delay_ms: int | None, run_at_ms: int | None, now_ms: int) -> None:
    """Refuse a time too far away, as `Queue.add` does: mostly it is in another unit."""
    column, value = ("delay_ms", delay_ms) if run_at_ms is None else ("run_at", run_at_ms)
    wait_ms = (delay_ms or 0) if run_at_ms is None else run_at_ms - now_ms
    if wait_ms > _LONGEST_WAIT_MS:
        _refuse_row(column, value, f"at most {_LONGEST_WAIT_MS} ms from now")
