"""Takes jobs for a batch and settles them, from the driver, by the engine's own rules."""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from chasquimq.broker import events, pause, returns, stream
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import Call
from chasquimq.broker.seek import Pace
from chasquimq.broker.steps import drive_blocking
from chasquimq.broker.stream import CompletionRow, Delivery, Telling
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.config import ConsumerConfig
from chasquimq.engine.acker import in_portions, result_keeping
from chasquimq.engine.admission import NO_NAMES, Run, Unfit, admit
from chasquimq.engine.disposition import Outcome
from chasquimq.engine.groups import other_group
from chasquimq.engine.leases import Leases
from chasquimq.engine.reader import IDLE_FOR_ALL_MS
from chasquimq.engine.relocator import Move, carried
from chasquimq.engine.settlement import Settlement
from chasquimq.engine.stint import let_go
from chasquimq.engine.teller import active_fields, failed_fields, started
from chasquimq.errors import ConfigError, RedisError, ReplyTooLargeError
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.spark")

T = TypeVar("T")

# Entries in one call to the server; it stands still for that long.
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Processed:
    """What became of the jobs that `process_batch` took."""

    completed: int = 0
    failed: int = 0
    """Runs that failed; of these jobs some are retried and some are dead."""
    retried: int = 0
    dead: int = 0
    lost: int = 0
    """Jobs that another worker had settled before us."""

    def plus(self, other: "Processed") -> "Processed":
        """Both together."""
        return Processed(
            self.completed + other.completed,
            self.failed + other.failed,
            self.retried + other.retried,
            self.dead + other.dead,
            self.lost + other.lost,
        )


class Hand:
    """What one consumer has taken and not settled yet.

    After a `kill -9` it is pending under the consumer's name. The next `take` under that name gives
    it again, with one more run counted, together with nothing that is new.
    """

    def __init__(
        self,
        connection: BlockingConnection,
        keys: QueueKeys,
        config: ConsumerConfig,
        leases: Leases,
    ) -> None:
        """`leases` are started and ended by the caller."""
        self._connection = connection
        self._keys = keys
        self._config = config
        self._leases = leases
        self._events_cap = config.events_max_stream_len if config.events_enabled else 0
        self._completions: _Gathered[CompletionRow] = _Gathered()
        self._moves: _Gathered[Move] = _Gathered()
        self._failures: list[list[bytes]] = []
        self._settlement = Settlement(
            keys,
            config,
            acker=self._completions,
            relocator=self._moves,
            teller=self,
            clock=SYSTEM_CLOCK,
            chance=random.Random(),  # noqa: S311 -- jitter
        )
        self._is_first = True
        self._pace = Pace(_CHUNK, _CHUNK)
        self._giants: set[bytes] = set()  # entries that alone are more than a reply holds
        # What was pending under our name before we took anything, and how often it was delivered.
        self._inherited: dict[bytes, int] = {}
        self.unfit = Processed()
        """What could not be run at all."""

    def take(self, most: int) -> list[Run]:
        """What was left under our name; else up to `most` jobs; none while the queue is paused."""
        if self._is_first:
            if not self._connection.run(stream.depth(self._keys)):
                return []  # a group would make a stream of a name that was mistyped
            self._is_first = False
            self._join()
            self.let_go()
            self._inherited = {each.entry_id: each.deliveries for each in self._pending()}
        while deliveries := self._deliveries(most):
            runs = self._admitted(deliveries)
            if runs:
                return runs
        return []

    def tell_active(self, runs: Sequence[Run]) -> None:
        """Tell that they begin."""
        if self._events_cap:
            now_ms = SYSTEM_CLOCK.now_ms()
            self._tell([active_fields(started(run, now_ms)) for run in runs])

    def settle(
        self, runs: Sequence[Run], outcomes: Sequence[Outcome], duration_us: int
    ) -> Processed:
        """End them all."""
        for run, outcome in zip(runs, outcomes, strict=True):
            self._settlement.settle(run, outcome, duration_us)
        failed = len(self._moves)
        return replace(self._write(), failed=failed)

    def let_go(self) -> None:
        """Leave all that is in hand to whoever comes next, the run counted."""
        # First, or a renewal would make it ours again.
        self._leases.drop(self._leases.held())
        drive_blocking(self._connection, let_go(self._keys, self._config))

    def failed(self, run: Run, reason: str, duration_us: int) -> None:
        """Note that a run has failed; told before what follows from it."""
        now_ms = SYSTEM_CLOCK.now_ms()
        self._failures.append(failed_fields(run, reason, duration_us, now_ms))

    def _join(self) -> None:
        other = self._connection.run(stream.join(self._keys, self._config.group))
        if other:
            raise ConfigError(other_group(self._keys.name, other))

    def _deliveries(self, most: int) -> list[Delivery]:
        """Those whose lease ran out, by themselves: they may be why somebody died. Else new ones.

        Payloads come along and are dropped; executors read them again, and in parts.
        """
        config = self._config
        lease_ms = config.claim_min_idle_ms
        group, name = config.group, config.consumer_id
        roads: tuple[Callable[[int], Call[list[Delivery]]], ...] = (
            lambda count: stream.claim(self._keys, group, name, min_idle_ms=lease_ms, count=count),
            lambda count: stream.read(
                self._keys, group, name, count=count, block_ms=0, claim_min_idle_ms=None
            ),
        )
        is_cut_off = True
        while is_cut_off:
            # From the beginning: what a lost reply held is to be claimed now.
            for ask in roads:
                found, is_cut_off = self._pages(ask, most)
                if found:
                    return found
                if is_cut_off:
                    break
        return []

    def _pages(
        self, ask: Callable[[int], Call[list[Delivery]]], most: int
    ) -> tuple[list[Delivery], bool]:
        """Up to `most`, and whether it ended with a reply that was too large."""
        found: list[Delivery] = []
        while len(found) < most and not self._connection.run(pause.is_paused(self._keys)):
            count = min(self._pace.count, most - len(found))
            try:
                page = self._connection.run(ask(count))
            except ReplyTooLargeError as error:
                return found, self._ask_for_less(count, error)
            if not page:
                break
            self._pace.heed(len(page), sum(len(each.data or b"") for each in page))
            for each in page:
                self._leases.take(each.entry_id)
            found += page
        return found, False

    def _ask_for_less(self, asked: int, error: ReplyTooLargeError) -> bool:
        """Let what no reply could bring be claimed, uncounted: nobody has seen it. True if it can.

        One that alone is too large waits for its lease, or it would be the first to come again. A
        `kill -9` before they are handed back costs each of them a run.
        """
        strays = self._strays()
        if asked > 1:
            self._pace.count = asked // 2
            group, name = self._config.group, self._config.consumer_id
            for at in range(0, len(strays), _CHUNK):
                some = strays[at : at + _CHUNK]
                back = returns.hand_back(
                    self._keys, group, name, some, idle_ms=IDLE_FOR_ALL_MS, in_place=True
                )
                self._connection.run(back)
            return True
        for each in strays:
            log.warning("entry %s of queue %s is passed over: %s", each.entry_id.decode(),
                        self._keys.name, error)  # fmt: skip
            self._giants.add(each.entry_id)
        return bool(strays)

    def _strays(self) -> list[Delivery]:
        """What was given to us and never reached us; what we have from before was seen once."""
        return [
            each
            for each in self._pending()
            if each.entry_id not in self._leases
            and each.entry_id not in self._giants
            and each.idle_ms < IDLE_FOR_ALL_MS
            and self._inherited.get(each.entry_id) != each.deliveries
        ]

    def _pending(self) -> Iterator[Delivery]:
        """What is ours by the server's book."""
        own, first = (self._keys, self._config.group, self._config.consumer_id), "-"
        while page := self._connection.run(stream.pending(*own, first=first)):
            yield from page
            first = f"({page[-1].entry_id.decode()}"

    def _admitted(self, deliveries: list[Delivery]) -> list[Run]:
        runs: list[Run] = []
        for each in deliveries:
            fit = admit(
                each,
                max_payload_bytes=self._config.max_payload_bytes,
                max_attempts=self._config.max_attempts,
                retry_by_name=NO_NAMES,
            )
            if isinstance(fit, Unfit):
                self._settlement.set_aside(fit)
            else:
                runs.append(fit)
        self.unfit = self.unfit.plus(self._write())
        return runs

    def _write(self) -> Processed:
        """Carry out what was decided: events of failures first, as workers do."""
        self._tell(self._failures)
        self._failures = []
        completed = lost = retried = dead = 0
        for chunk in self._completions.chunks():
            for portion in in_portions(chunk):
                removed = self._connection.run(self._complete(portion))
                completed += removed.count(True)
                lost += removed.count(False)
                self._leases.drop(each[0] for each in portion)
        for moves in self._moves.chunks():
            answers = self._connection.run(carried(moves))
            for move, has_moved in zip(moves, answers, strict=True):
                if isinstance(has_moved, RedisError):
                    raise has_moved
                lost += not has_moved
                retried += has_moved and not move.is_burial
                dead += has_moved and move.is_burial
            self._leases.drop(each.entry_id for each in moves)
        return Processed(completed, 0, retried, dead, lost)

    def _complete(self, chunk: Sequence[CompletionRow]) -> Call[list[bool]]:
        return stream.complete(
            self._keys,
            self._config.group,
            chunk,
            has_xackdel=self._connection.ready().has_xackdel,
            keeping=result_keeping(self._config),
            telling=Telling(SYSTEM_CLOCK.now_ms(), self._events_cap),
        )

    def _tell(self, fields: list[list[bytes]]) -> None:
        for at in range(0, len(fields) if self._events_cap else 0, _CHUNK):
            chunk = fields[at : at + _CHUNK]
            self._connection.run(events.append(self._keys, chunk, cap=self._events_cap))


class _Gathered(Generic[T]):
    """What the settlement decided, to be written together."""

    def __init__(self) -> None:
        self._items: list[T] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T, /) -> None:
        self._items.append(item)

    def chunks(self) -> Iterator[list[T]]:
        """All of them, in parts, each given once."""
        while self._items:
            chunk, self._items = self._items[:_CHUNK], self._items[_CHUNK:]
            yield chunk
