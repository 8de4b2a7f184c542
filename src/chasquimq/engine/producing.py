"""What a producer does, as steps without I/O: validate, wrap, choose the call, read the answer.

`Sender` and `SyncSender` drive the same steps, one over asyncio, one over a blocking
connection.
"""

import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from chasquimq.broker import delayed, events, results, stream, traces
from chasquimq.broker.call import Call, Steps, together
from chasquimq.broker.delayed import DelayedJob
from chasquimq.broker.ring import IDMP_CALLS, Ring, Ticket
from chasquimq.broker.server import ServerInfo
from chasquimq.broker.stream import Added, Capacity, NewJob, Telling
from chasquimq.clock import SYSTEM_CLOCK, Clock
from chasquimq.config import TRACE_TTL_SECS, UNIQUE_GRACE_SECS, ProducerConfig
from chasquimq.engine.clearing import Clearing
from chasquimq.engine.letters import Letters
from chasquimq.engine.limits import SURELY_SHORT, check_delay, check_id, check_name, check_size
from chasquimq.engine.orders import NOTHING_MORE, Order, Wish, usual_orders
from chasquimq.engine.outcomes import JobResult, OutcomeStatus, WaitedJob, conclude
from chasquimq.engine.portions import CHUNK, portions
from chasquimq.engine.repeating import Repeating
from chasquimq.engine.upkeep import Upkeep
from chasquimq.errors import QueueFullError
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.envelope import encode_job, encode_with_retry
from chasquimq.wire.event import QueueEvent
from chasquimq.wire.ids import StreamId, ulid, ulid_time_ms, ulids
from chasquimq.wire.keys import QueueKeys

T = TypeVar("T")

# Below this many entries a limit is checked exactly, by the script, on every add.
_SMALL_LIMIT = 10_000
# From here on the free part is more than all producers together add in half a second.
_LARGE_LIMIT = 500_000
# Adds may skip the check while the depth we last saw is fresh and leaves this part of the limit
# free.
_FREE_PART = 0.2
_FRESH_US = 1_000_000
_PAGE = 500
# How many events, from about a job's birth on, are looked through for it.
_EVENTS_BACK = 2_000
_CLOCK_SKEW_MS = 1_000


class Producing:
    """The steps of one producer on one queue."""

    def __init__(self, config: ProducerConfig, clock: Clock | None = None) -> None:
        """`server` is filled in by whoever connects; without a `clock` it is the system's."""
        self.config = config
        self.keys = QueueKeys(config.queue_name)
        self.producer_id = str(uuid.uuid4())
        self.server: ServerInfo | None = None
        self.is_traced = False
        """Whether orders may carry traces; set by whoever has a tracer."""
        self.clock = clock or SYSTEM_CLOCK
        self._ring = Ring(self.producer_id)
        self._direct = Ring(self.producer_id, IDMP_CALLS)
        self.letters = Letters(self.keys)
        self.repeating = Repeating(self.keys, config, clock, self._ring)
        self.upkeep = Upkeep(config, self.clock, self._telling)
        self.clearing = Clearing(self.keys)
        self._capacity = Capacity(config.max_stream_len, trim=config.overflow == "trim")
        self._depth = 0
        self._depth_seen_us: int | None = None

    def prepare(self, wishes: Sequence[Wish]) -> list[Order]:
        """Check and wrap every wish before anything is sent; the first bad one raises."""
        if len(wishes) == 1:
            return [self.order(wishes[0])]
        now_ms = self.clock.now_ms()
        fresh_ids = ulids(now_ms, len(wishes))
        usual = usual_orders(wishes, fresh_ids, now_ms, most_bytes=self.config.max_payload_bytes)
        if usual is not None:
            return usual
        pairs = zip(wishes, fresh_ids, strict=True)
        return [self._order(wish, fresh_id, now_ms) for wish, fresh_id in pairs]

    def order(self, wish: Wish) -> Order:
        """Check and wrap one wish."""
        now_ms = self.clock.now_ms()
        job_id = ulid(now_ms)
        if wish[2:] == NOTHING_MORE and len(wish.name) <= SURELY_SHORT:
            envelope = encode_job(job_id, wish.payload, now_ms)
            if len(envelope) <= self.config.max_payload_bytes:
                return Order(job_id, wish.name, envelope, now_ms)
        return self._order(wish, job_id, now_ms)

    def _order(self, wish: Wish, fresh_id: str, now_ms: int) -> Order:
        if len(wish.name) > SURELY_SHORT:
            check_name(wish.name)
        if wish.delay_ms or wish.run_at_ms is not None:
            check_delay(self.config, wish.delay_ms, wish.run_at_ms, now_ms)
        job_id = fresh_id if wish.job_id is None else wish.job_id
        if len(job_id) > SURELY_SHORT:
            check_id(job_id)
        envelope = encode_with_retry(job_id, wish.payload, now_ms, wish.retry)
        check_size(self.config, wish.name, envelope)
        run_at_ms = wish.run_at_ms
        if run_at_ms is not None and run_at_ms <= now_ms:
            run_at_ms = None
        return Order(
            job_id, wish.name, envelope, now_ms, wish.job_id is not None, wish.delay_ms, run_at_ms
        )

    def add(self, orders: Sequence[Order], taken: list[bool | None]) -> Steps[None]:
        """Send those orders for which `taken` says None, and note there whether the id was taken.

        One pipeline, except near the limit. Raises `QueueFullError` when immediate jobs do not fit.
        What was accepted is noted all the same: who tries again with the same list sends the rest.
        """
        fresh: list[int] = []
        unique: list[int] = []
        later: list[int] = []
        for at, (order, answer) in enumerate(zip(orders, taken, strict=True)):
            if answer is None:
                road = later if order.is_delayed else unique if order.is_unique else fresh
                road.append(at)
        stages = [(fresh, unique, later)]
        if self._may_be_refused(len(fresh) + len(unique)):
            # What a caller may safely send again after a refusal goes first, what cannot be
            # refused goes last: so a refusal leaves nothing that a second call would double.
            stages = [([], unique, []), (fresh, [], []), ([], [], later)]
        for stage in stages:
            yield from self._send(orders, taken, *stage)

    def add_as_many_as_fit(self, orders: Sequence[Order]) -> Steps[int]:
        """Append immediate jobs of several callers in one call; how many, from the front, fit."""
        if len(orders) == 1 and self._can_add_directly() and not self._is_near_cap(1):
            # So many may be under way; past that the script, whose memory is larger.
            taken = self._direct.take_if_open()
            if taken is not None:
                ticket, window = taken
                try:
                    yield from self._add_directly(orders[0], ticket.producer_id)
                finally:
                    window.leave(ticket.serial)
                return 1
        with self._ring.tickets() as [ticket]:
            call = self._add_call(_flat(orders), ticket, whole=False)
            added: Added = yield self._carrying(orders, call)
        self.note_depth(added)
        return added.count

    def _add_directly(self, order: Order, producer_id: str) -> Steps[None]:
        call = stream.add_one(
            self.keys,
            _new_job(order),
            producer_id=producer_id,
            telling=self._telling(),
            counting=self._must_count(),
        )
        counted: Added | None = yield self._carrying([order], call)
        if counted is None:
            self._depth += 1  # at least by us
        else:
            self.note_depth(counted)

    def full(self, wanted: int) -> QueueFullError:
        """The error for jobs that do not fit."""
        limit, is_patient = self.config.max_stream_len, self.config.overflow == "wait"
        more = "wait for longer (overflow_timeout_ms)" if is_patient else "use overflow='wait'"
        do_not = "does not" if wanted == 1 else "do not"
        msg = (
            f"queue {self.keys.name!r} holds its max_stream_len of {limit} jobs and {wanted} more "
            f"{do_not} fit: add workers, raise max_stream_len, or {more}"
        )
        return QueueFullError(msg)

    def replay_dlq(self, limit: int, wanted: Callable[[DeadLetter], bool]) -> Steps[int]:
        """Send up to `limit` wanted dead letters round again, oldest first."""
        return (yield from self.letters.replay(limit, wanted, self._telling()))

    def retry_job(self, job_id: str) -> Steps[bool]:
        """Send the dead letter of one job round again."""
        return (yield from self.letters.retry(job_id, self._telling()))

    def run_spec_now(self, spec_key: str) -> Steps[str | None]:
        """Add the job of a recurring one now; its id, or None if there is no such spec."""
        job_id: str | None = yield from self.repeating.run_now(
            spec_key, self._telling(), self._capacity
        )
        if job_id == "":
            raise self.full(1)
        return job_id

    def cancel(self, job_id: str) -> Steps[bool]:
        """Take a delayed job out."""
        return (yield from delayed.cancel(self.keys, job_id))

    def result_of(self, job_id: str, job: WaitedJob) -> Steps[JobResult | None]:
        """How a job that is waited for has ended, None if it has not."""
        [kept] = yield from self.read_results([job_id])
        result = conclude(kept, job)
        if result is None or result.status is not OutcomeStatus.FAILED or kept.outcome is not None:
            return result
        # Only events told, and the one with the handler's error may be yet to come.
        letter = yield from self.letters.find(job_id, StreamId.parse(job.died_with).ms)
        return result if letter is None else replace(result, error=letter.error or result.error)

    def first_look(self, job_id: str, job: WaitedJob) -> Steps[JobResult | None]:
        """How a job has ended that nobody watched so far; None if it has not, as far as is known.

        A worker that stores no results leaves but its events, and one of the reference engine
        leaves of a failure but its dead letter. `job` learns what the events told.
        """
        result: JobResult | None = yield from self.result_of(job_id, job)
        if result is not None:
            return result
        born_ms = ulid_time_ms(job_id)
        if born_ms is not None:
            since_ms = born_ms - _CLOCK_SKEW_MS
            told: list[QueueEvent] = yield events.about(
                self.keys, job_id, since_ms=since_ms, count=_EVENTS_BACK
            )
            for event in told:
                job.take(event)
            if job.has_completed or job.reason is not None:
                result = yield from self.result_of(job_id, job)
        if result is not None or job.has_completed:
            return result
        letter = yield from self.letters.find(job_id, born_ms or 0)
        if letter is None:
            return None
        return JobResult(OutcomeStatus.FAILED, reason=letter.reason, error=letter.error)

    def read_results(self, job_ids: Sequence[str]) -> Steps[list[results.Kept]]:
        """What is kept of each job."""
        if not job_ids:
            return []
        kept: list[results.Kept] = yield results.read(self.keys, job_ids)
        return kept

    def _send(
        self,
        orders: Sequence[Order],
        taken: list[bool | None],
        fresh: list[int],
        unique: list[int],
        later: list[int],
    ) -> Steps[None]:
        """One pipeline for the orders at these positions.

        Fresh ones are added all or none as long as they are one part. More than that are counted
        before anything is sent; only adds of others in that very moment can then split them.
        """
        sizes = [len(order.envelope) for order in orders]
        parts = portions(fresh, CHUNK, sizes)
        parts += portions(unique, _PAGE, sizes)
        parts += portions(later, _PAGE, sizes)
        if not parts:
            return
        if len(fresh) > len(parts[0]) and self._is_near_cap(len(fresh)):
            yield from self._check_room(len(fresh))
        with self._ring.tickets(len(parts)) as tickets:
            answers = yield together(
                [
                    self._call_for([orders[at] for at in part], ticket)
                    for part, ticket in zip(parts, tickets, strict=True)
                ]
            )
        refused = 0
        for part, answer in zip(parts, answers, strict=True):
            for at, code in zip(part, self._codes(answer, len(part)), strict=True):
                if code == "F":
                    refused += 1
                else:
                    taken[at] = code == "0"
        if refused:
            raise self.full(refused)

    def _check_room(self, wanted: int) -> Steps[None]:
        depth: int = yield stream.depth(self.keys)
        self.note_depth(Added(0, depth))
        if not self._capacity.trim and depth + wanted > self.config.max_stream_len:
            raise self.full(wanted)

    def _call_for(self, orders: Sequence[Order], ticket: Ticket) -> Call[Any]:
        if orders[0].is_delayed:
            return self._carrying(orders, self._later_call(orders, ticket))
        if orders[0].is_unique:
            return self._carrying(orders, self._unique_call(orders, ticket))
        return self._carrying(orders, self._add_call(_flat(orders), ticket, whole=True))

    def _carrying(self, orders: Sequence[Order], add: Call[T]) -> Call[T]:
        if not self.is_traced:
            return add
        carried = [
            traces.Carried(order.id, order.trace, TRACE_TTL_SECS + order.delay_secs)
            for order in orders
            if order.trace is not None
        ]
        return traces.carrying(self.keys, carried, add)

    def _codes(self, answer: Added | str, wanted: int) -> str:
        """One character an order, as the scripts for unique and delayed jobs give it."""
        if isinstance(answer, str):
            return answer
        self.note_depth(answer)
        return ("1" if answer.count == wanted else "F") * wanted

    def add_flat(self, jobs: list[str | bytes], *, whole: bool) -> Steps[Added]:
        """Add jobs for now in one call, given as `stream.add` takes them."""
        with self._ring.tickets() as [ticket]:
            added: Added = yield self._add_call(jobs, ticket, whole=whole)
        self.note_depth(added)
        return added

    def _add_call(self, jobs: list[str | bytes], ticket: Ticket, *, whole: bool) -> Call[Added]:
        return stream.add(
            self.keys,
            jobs,
            ticket=ticket,
            capacity=self._capacity,
            telling=self._telling(),
            whole=whole,
        )

    def _unique_call(self, orders: Sequence[Order], ticket: Ticket) -> Call[str]:
        return stream.add_unique(
            self.keys,
            [_new_job(order) for order in orders],
            ticket=ticket,
            capacity=self._capacity,
            telling=self._telling(),
            marker_ttl_s=UNIQUE_GRACE_SECS,
        )

    def _later_call(self, orders: Sequence[Order], ticket: Ticket) -> Call[str]:
        return delayed.schedule(
            self.keys,
            [
                DelayedJob(o.id, o.envelope, o.name, o.delay_ms, o.run_at_ms, o.is_unique)
                for o in orders
            ],
            ticket=ticket,
            telling=self._telling(),
            grace_s=UNIQUE_GRACE_SECS,
        )

    def _telling(self) -> Telling:
        cap = self.config.events_max_stream_len if self.config.events_enabled else 0
        return Telling(self.clock.now_ms(), cap)

    def _can_add_directly(self) -> bool:
        # The direct add does not trim; the script does.
        return self.server is not None and self.server.has_idmp and not self._capacity.trim

    def _may_be_refused(self, wanted: int) -> bool:
        """Whether, by the depth last seen, however long ago, this many jobs may not fit."""
        limit = self.config.max_stream_len
        if self._capacity.trim or not wanted:
            return False
        return limit < _SMALL_LIMIT or self._depth + wanted > limit * (1 - _FREE_PART)

    def _is_near_cap(self, wanted: int) -> bool:
        """Whether the limit must be checked by the script; without need that costs a third more."""
        limit = self.config.max_stream_len
        if self._capacity.trim:
            return False
        if limit < _SMALL_LIMIT or self._seen_us_ago() > _FRESH_US:
            return True
        return self._depth + wanted > limit * (1 - _FREE_PART)

    def _must_count(self) -> bool:
        """Whether a single add asks for the depth: seldom, where no burst of others is too much."""
        is_large = self.config.max_stream_len >= _LARGE_LIMIT
        return not is_large or self._seen_us_ago() > _FRESH_US // 2

    def _seen_us_ago(self) -> float:
        """For how long the depth was not looked at."""
        seen_us = self._depth_seen_us
        return math.inf if seen_us is None else self.clock.monotonic_us() - seen_us

    def note_depth(self, added: Added) -> None:
        """Remember how deep the stream was, and when."""
        self._depth = added.depth
        self._depth_seen_us = self.clock.monotonic_us()


def _flat(orders: Sequence[Order]) -> list[str | bytes]:
    return [part for order in orders for part in (order.id, order.envelope, order.name)]


def _new_job(order: Order) -> NewJob:
    return NewJob(order.id, order.envelope, order.name)
