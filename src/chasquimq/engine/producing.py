"""What a producer does, as steps without I/O: validate, wrap, choose the call, read the answer.

`Producer` and `SyncProducer` drive the same steps, one over asyncio, one over a blocking
connection.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chasquimq.broker import delayed, dlq, results, stream
from chasquimq.broker.call import Call, Steps, together
from chasquimq.broker.delayed import DelayedJob
from chasquimq.broker.dlq import Revival
from chasquimq.broker.ring import Ring
from chasquimq.broker.server import ServerInfo
from chasquimq.broker.stream import Added, Capacity, NewJob, Telling
from chasquimq.clock import Clock
from chasquimq.config import UNIQUE_GRACE_SECS, ProducerConfig
from chasquimq.errors import ConfigError, DecodeError, QueueFullError
from chasquimq.wire.entry import MAX_NAME_BYTES, DeadLetter
from chasquimq.wire.envelope import decode, encode_with_retry, with_attempt
from chasquimq.wire.ids import ulid, ulids
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.retry import RetryOverride

# Below this many entries a limit is checked exactly, by the script, on every add.
_SMALL_LIMIT = 10_000
# Adds may skip the check while the depth we last saw is fresh and leaves this part of the limit
# free.
_FREE_PART = 0.2
_FRESH_US = 1_000_000
# Jobs in one script call: long enough to be cheap, short enough not to hold the server up.
_CHUNK = 1_000
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Order:
    """A job that has been checked and wrapped, and the road it takes."""

    id: str
    name: str
    envelope: bytes
    created_at_ms: int
    is_unique: bool = False
    delay_ms: int = 0
    run_at_ms: int | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether it goes to the delayed set."""
        return self.delay_ms > 0 or self.run_at_ms is not None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller asks for: the packed data and how it should be run."""

    name: str
    payload: bytes
    job_id: str | None = None
    retry: RetryOverride | None = None
    delay_ms: int = 0
    run_at_ms: int | None = None


class Producing:
    """The steps of one producer on one queue."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        """`server` is filled in by whoever connects."""
        self.config = config
        self.keys = QueueKeys(config.queue_name)
        self.producer_id = str(uuid.uuid4())
        self.server: ServerInfo | None = None
        self._clock = clock
        self._ring = Ring(self.producer_id)
        self._capacity = Capacity(config.max_stream_len, trim=config.overflow == "trim")
        self._depth = 0
        self._depth_seen_us: int | None = None

    def prepare(self, wishes: Sequence[Wish]) -> list[Order]:
        """Check and wrap every wish before anything is sent; the first bad one raises."""
        now_ms = self._clock.now_ms()
        fresh_ids = iter([ulid(now_ms)] if len(wishes) == 1 else ulids(now_ms, len(wishes)))
        return [self._order(wish, next(fresh_ids), now_ms) for wish in wishes]

    def _order(self, wish: Wish, fresh_id: str, now_ms: int) -> Order:
        name_bytes = len(wish.name.encode())
        if name_bytes > MAX_NAME_BYTES:
            msg = (
                f"job name exceeds {MAX_NAME_BYTES}-byte cap (got {name_bytes} bytes): "
                "put what varies into the data"
            )
            raise ConfigError(msg)
        self._check_delay(wish, now_ms)
        job_id = fresh_id if wish.job_id is None else wish.job_id
        envelope = encode_with_retry(job_id, wish.payload, now_ms, wish.retry)
        if len(envelope) > self.config.max_payload_bytes:
            msg = (
                f"job {wish.name!r} takes {len(envelope)} bytes, max_payload_bytes is "
                f"{self.config.max_payload_bytes}: store the data elsewhere and pass a reference"
            )
            raise ValueError(msg)
        run_at_ms = wish.run_at_ms
        if run_at_ms is not None and run_at_ms <= now_ms:
            run_at_ms = None
        return Order(
            job_id, wish.name, envelope, now_ms, wish.job_id is not None, wish.delay_ms, run_at_ms
        )

    def _check_delay(self, wish: Wish, now_ms: int) -> None:
        longest = self.config.max_delay_secs
        delay_ms = wish.delay_ms if wish.run_at_ms is None else wish.run_at_ms - now_ms
        if longest and delay_ms // 1_000 > longest:
            msg = (
                f"delay {delay_ms // 1_000}s exceeds max_delay_secs {longest}s: "
                "shorten it, or raise max_delay_secs (0 accepts any)"
            )
            raise ConfigError(msg)

    def add(self, orders: Sequence[Order]) -> Steps[list[bool]]:
        """Send orders in one pipeline; for each, whether its id was taken already.

        Raises `QueueFullError` when immediate jobs do not fit: then none of them was added.
        """
        fresh = [o for o in orders if not o.is_delayed and not o.is_unique]
        unique = [o for o in orders if not o.is_delayed and o.is_unique]
        later = [o for o in orders if o.is_delayed]
        is_near_cap = self._is_near_cap(len(fresh) + len(unique))
        if is_near_cap and fresh and (unique or later):
            # Near the limit the jobs that may be refused go first, so that a refusal leaves
            # nothing.
            yield from self._send(fresh, [], [], is_near_cap=True)
            taken = yield from self._send([], unique, later, is_near_cap=True)
        else:
            taken = yield from self._send(fresh, unique, later, is_near_cap=is_near_cap)
        return [order.id in taken for order in orders]

    def add_as_many_as_fit(self, orders: Sequence[Order]) -> Steps[int]:
        """Append immediate jobs of several callers in one call; how many, from the front, fit."""
        single = len(orders) == 1 and self._can_add_directly()
        if single and not self._is_near_cap(1):
            call = stream.add_one(
                self.keys,
                _new_job(orders[0]),
                producer_id=self.producer_id,
                telling=self._telling(),
            )
        else:
            call = self._add_call(orders, whole=False)
        added: Added = yield call
        self._note_depth(added)
        return added.count

    def full(self, wanted: int) -> QueueFullError:
        """The error for jobs that do not fit."""
        limit = self.config.max_stream_len
        msg = (
            f"queue {self.keys.name!r} holds its max_stream_len of {limit} jobs and {wanted} more "
            "do not fit: add workers, raise max_stream_len, or use overflow='wait'"
        )
        return QueueFullError(msg)

    def cancel(self, job_id: str) -> Steps[bool]:
        """Take a delayed job out."""
        return (yield from delayed.cancel(self.keys, job_id))

    def peek_dlq(self, limit: int) -> Steps[list[DeadLetter]]:
        """The oldest dead letters."""
        letters: list[DeadLetter] = yield dlq.peek(self.keys, limit=limit)
        return letters

    def replay_dlq(self, limit: int, wanted: Callable[[DeadLetter], bool]) -> Steps[int]:
        """Send up to `limit` wanted dead letters round again, oldest first.

        Letters that hold no job are passed over and never block those behind them.
        """
        moved = 0
        chosen: list[DeadLetter] = yield from self._choose_letters(
            limit, lambda letter: wanted(letter) and _revival(letter) is not None
        )
        revivals = [revival for letter in chosen if (revival := _revival(letter))]
        for at in range(0, len(revivals), _PAGE):
            page = revivals[at : at + _PAGE]
            count: int = yield dlq.replay(self.keys, page, telling=self._telling())
            moved += count
        return moved

    def discard_dlq(self, limit: int, wanted: Callable[[DeadLetter], bool]) -> Steps[int]:
        """Delete up to `limit` wanted dead letters, oldest first."""
        removed = 0
        chosen: list[DeadLetter] = yield from self._choose_letters(limit, wanted)
        for at in range(0, len(chosen), _PAGE):
            ids = [letter.dlq_id for letter in chosen[at : at + _PAGE]]
            count: int = yield dlq.discard(self.keys, ids)
            removed += count
        return removed

    def read_results(self, job_ids: Sequence[str]) -> Steps[list[results.Kept]]:
        """What is kept of each job."""
        if not job_ids:
            return []
        kept: list[results.Kept] = yield results.read(self.keys, job_ids)
        return kept

    def _choose_letters(
        self, limit: int, wanted: Callable[[DeadLetter], bool]
    ) -> Steps[list[DeadLetter]]:
        chosen: list[DeadLetter] = []
        after = "-"
        while len(chosen) < limit:
            page: list[DeadLetter] = yield dlq.peek(self.keys, limit=_PAGE, after=after)
            chosen += [letter for letter in page if wanted(letter)]
            if len(page) < _PAGE:
                break
            after = f"({page[-1].dlq_id}"
        return chosen[:limit]

    def _send(
        self,
        fresh: Sequence[Order],
        unique: Sequence[Order],
        later: Sequence[Order],
        *,
        is_near_cap: bool,
    ) -> Steps[set[str]]:
        """One pipeline for all; returns the ids that were taken already."""
        chunk = max(1, len(fresh)) if is_near_cap else _CHUNK
        fresh_calls: list[Call[Any]] = [
            self._add_call(part, whole=True) for part in _parts(fresh, chunk)
        ]
        unique_parts, later_parts = _parts(unique, _PAGE), _parts(later, _PAGE)
        calls = [
            *fresh_calls,
            *map(self._unique_call, unique_parts),
            *map(self._later_call, later_parts),
        ]
        if not calls:
            return set()
        answers = yield together(calls)
        for part, added in zip(_parts(fresh, chunk), answers, strict=False):
            self._note_depth(added)
            if added.count < len(part):
                raise self.full(len(fresh))
        codes = "".join(answers[len(fresh_calls) :])
        ordered = [*unique, *later]
        if "F" in codes:
            raise self.full(codes.count("F"))
        return {order.id for order, code in zip(ordered, codes, strict=True) if code == "0"}

    def _add_call(self, orders: Sequence[Order], *, whole: bool) -> Call[Added]:
        return stream.add(
            self.keys,
            [_new_job(order) for order in orders],
            ticket=self._ring.ticket(),
            capacity=self._capacity,
            telling=self._telling(),
            whole=whole,
        )

    def _unique_call(self, orders: Sequence[Order]) -> Call[str]:
        return stream.add_unique(
            self.keys,
            [_new_job(order) for order in orders],
            ticket=self._ring.ticket(),
            capacity=self._capacity,
            telling=self._telling(),
            marker_ttl_s=UNIQUE_GRACE_SECS,
        )

    def _later_call(self, orders: Sequence[Order]) -> Call[str]:
        return delayed.schedule(
            self.keys,
            [
                DelayedJob(o.id, o.envelope, o.name, o.delay_ms, o.run_at_ms, o.is_unique)
                for o in orders
            ],
            ticket=self._ring.ticket(),
            telling=self._telling(),
            grace_s=UNIQUE_GRACE_SECS,
        )

    def _telling(self) -> Telling:
        cap = self.config.events_max_stream_len if self.config.events_enabled else 0
        return Telling(self._clock.now_ms(), cap)

    def _can_add_directly(self) -> bool:
        # The direct add does not trim; the script does.
        return self.server is not None and self.server.has_idmp and not self._capacity.trim

    def _is_near_cap(self, wanted: int) -> bool:
        """Whether the limit must be checked by the script; without need that costs a third more."""
        limit = self.config.max_stream_len
        if self._capacity.trim:
            return False
        if limit < _SMALL_LIMIT or self._depth_seen_us is None:
            return True
        if self._clock.monotonic_us() - self._depth_seen_us > _FRESH_US:
            return True
        return self._depth + wanted > limit * (1 - _FREE_PART)

    def _note_depth(self, added: Added) -> None:
        self._depth = added.depth
        self._depth_seen_us = self._clock.monotonic_us()


def _new_job(order: Order) -> NewJob:
    return NewJob(order.id, order.envelope, order.name)


def _parts(orders: Sequence[Order], size: int) -> list[Sequence[Order]]:
    return [orders[at : at + size] for at in range(0, len(orders), size)]


def _revival(letter: DeadLetter) -> Revival | None:
    try:
        envelope = decode(letter.payload)
    except DecodeError:
        return None
    return Revival(letter.dlq_id, envelope.id, letter.name, with_attempt(envelope, 0))
