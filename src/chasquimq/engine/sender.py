"""`Sender`: adds jobs over asyncio; `SyncSender`: the same without an event loop.

Both drive the steps of `producing.py`. The asyncio one joins what many tasks add within one turn of
the event loop into one call (`joiner.py`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from chasquimq.broker import events
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import Call, Steps
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.steps import drive_blocking
from chasquimq.broker.url import Target
from chasquimq.clock import Clock
from chasquimq.config import ProducerConfig
from chasquimq.engine.joiner import Joiner
from chasquimq.engine.orders import Order, Wish
from chasquimq.engine.outcomes import JobResult, WaitedJob, too_late
from chasquimq.engine.patience import FIRST_PAUSE_S, LONGEST_PAUSE_S, Patience
from chasquimq.engine.plain import ENVELOPE_BYTES, Minted
from chasquimq.engine.producing import Producing
from chasquimq.engine.traces import traced_add
from chasquimq.engine.watcher import Watcher
from chasquimq.errors import QueueFullError, RedisError, WaitForResultTimeoutError
from chasquimq.tracing import Tracer, checked_tracer

T = TypeVar("T")

# Without events a waiter looks ever less often, up to this many poll intervals.
_LONGEST_POLLS = 5
# How long the last look at a result may take, after the time to wait is over.
_LAST_LOOK_S = 0.5


class Sender:
    """Adds to one queue. Usable from several event loops, each gets a connection of its own."""

    def __init__(
        self,
        target: Target,
        config: ProducerConfig,
        *,
        options: ConnectionOptions | None = None,
        clock: Clock | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Nothing is connected before the first call."""
        self._target = target
        self._options = options or ConnectionOptions()
        self.producing = Producing(config, clock)
        self.producing.is_traced = tracer is not None
        self._tracer = checked_tracer(tracer)
        self._homes: dict[asyncio.AbstractEventLoop, _Home] = {}
        self.joins_plain = tracer is None and config.overflow != "wait"
        """Whether `add_plain` is a way."""
        self._most_plain = config.max_payload_bytes - ENVELOPE_BYTES

    def __repr__(self) -> str:
        """Show the queue and where it is."""
        return f"<Sender {self.producing.keys.name} at {self.place}>"

    @property
    def place(self) -> str:
        """The server, as it may be shown: without secrets."""
        return self._target.safe_text

    async def add(self, wishes: Sequence[Wish]) -> list[tuple[Order, bool]]:
        """Add jobs; each with whether its id was taken already.

        All are checked before any is sent. Immediate jobs are added all or none; a full queue
        raises `QueueFullError`, at once or, with `overflow="wait"`, after the timeout.
        """
        orders = self.producing.prepare(wishes)
        if self._tracer is None:
            return await self._add(orders)
        with traced_add(self._tracer, self.producing.keys.name, orders) as traced:
            return await self._add(traced)

    def add_plain(self, name: str, payload: bytes) -> Awaitable[Minted] | None:
        """Add a job that has a name and data and nothing else, joined with others of its turn.

        A short name, and only where `joins_plain`. None, and nothing is added, if the data may be
        too large: then it goes the way of all others, `add`.
        """
        if len(payload) > self._most_plain:
            return None
        return self._home().joiner.add_plain(name, payload)

    async def _add(self, orders: Sequence[Order]) -> list[tuple[Order, bool]]:
        home = self._home()
        if len(orders) == 1 and not orders[0].is_delayed and not orders[0].is_unique:
            config = self.producing.config
            if config.overflow == "wait":
                timeout_s = config.overflow_timeout_ms / 1_000
                await home.patience.in_line(lambda: home.joiner.add(orders[0]), timeout_s)
            else:
                await home.joiner.add(orders[0])
            return [(orders[0], False)]
        if not orders:
            return []
        taken: list[bool | None] = [None] * len(orders)
        await self.patiently(lambda: self.producing.add(orders, taken))
        return list(zip(orders, map(bool, taken), strict=True))

    async def patiently(self, make: Callable[[], Steps[T]]) -> T:
        """Carry out steps; with `overflow="wait"` again and again while the queue is full."""
        config = self.producing.config
        if config.overflow != "wait":
            return await self.drive(make())
        timeout_s = config.overflow_timeout_ms / 1_000
        return await self._home().patience.alone(lambda: self.drive(make()), timeout_s)

    async def drive(self, steps: Steps[T]) -> T:
        """Carry out steps on this loop's connection."""
        return await self._home().joiner.drive(steps)

    async def run(self, call: Call[T]) -> T:
        """Carry out one call on this loop's connection."""
        return await self._home().connection.run(call)

    def connection(self) -> Connection:
        """This loop's connection, for those who want a sibling of it."""
        return self._home().connection

    async def wait_for_result(self, job_id: str, *, timeout_s: float, poll_s: float) -> JobResult:
        """How the job ended; `WaitForResultTimeoutError` if it has not within `timeout_s`.

        A settled result, or one of status ok without a value if the worker stores none.
        """
        try:
            # The limit holds even if the server does not answer; the extra is for a last look.
            async with asyncio.timeout(timeout_s + _LAST_LOOK_S):
                # A job that has ended already costs no second connection.
                job = WaitedJob()
                result = await self.drive(self.producing.first_look(job_id, job))
                if result is not None:
                    return result
                return await self._watched_result(job_id, job, timeout_s=timeout_s, poll_s=poll_s)
        except WaitForResultTimeoutError:
            raise
        except TimeoutError:
            raise too_late(job_id, timeout_s) from None

    async def _watched_result(
        self, job_id: str, job: WaitedJob, *, timeout_s: float, poll_s: float
    ) -> JobResult:
        watcher = self._home().watcher()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        waiter = await watcher.add(job_id, job)
        pause_s = poll_s
        try:
            # Once more from the start: it may have ended between the first look and now.
            result = await self.drive(self.producing.first_look(job_id, job))
            while result is None:
                left_s = deadline - loop.time()
                if left_s <= 0:
                    raise too_late(job_id, timeout_s)
                await waiter.hint(min(pause_s, left_s, job.patience_s))
                pause_s = min(_LONGEST_POLLS * poll_s, 2 * pause_s)
                result = await self.drive(self.producing.result_of(job_id, job))
        finally:
            watcher.remove(job_id, waiter)
        return result

    async def close(self) -> None:
        """Drop the connection of this loop. A later call opens another."""
        home = self._homes.pop(asyncio.get_running_loop(), None)
        if home is not None:
            await home.close()

    def _home(self) -> "_Home":
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None:
            # A loop may end without `close`: its home would hold a socket for good.
            for ended in [each for each in tuple(self._homes) if each.is_closed()]:
                self._homes.pop(ended, None)
            keys = self.producing.keys
            connection = Connection(self._target, self._options, slot_key=keys.tag)
            home = self._homes[loop] = _Home(connection, self.producing)
        return home


class _Home:
    """A producer's life on one event loop: its connection, and who joins the adds of a turn."""

    def __init__(self, connection: Connection, producing: Producing) -> None:
        self.connection = connection
        self._producing = producing
        self.joiner = Joiner(connection, producing)
        self.patience = Patience()
        self._watcher: Watcher | None = None

    def watcher(self) -> Watcher:
        if self._watcher is None:
            self._watcher = Watcher(self.connection.sibling(), self._producing.keys)
        return self._watcher

    async def close(self) -> None:
        await self.joiner.end()
        if self._watcher is not None:
            await self._watcher.close()
        await self.connection.close()


class SyncSender:
    """Adds to one queue without an event loop; threads may share it, forked children too."""

    def __init__(
        self,
        target: Target,
        config: ProducerConfig,
        *,
        options: ConnectionOptions | None = None,
        clock: Clock | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Nothing is connected before the first call."""
        self._target = target
        self._options = options or ConnectionOptions()
        self.producing = Producing(config, clock)
        self.producing.is_traced = tracer is not None
        self._tracer = checked_tracer(tracer)
        self._clock = self.producing.clock
        self._connection = self.sibling()

    def __repr__(self) -> str:
        """Show the queue and where it is."""
        return f"<SyncSender {self.producing.keys.name} at {self.place}>"

    @property
    def place(self) -> str:
        """The server, as it may be shown: without secrets."""
        return self._target.safe_text

    def sibling(self, patience_s: float | None = None) -> BlockingConnection:
        """Another connection to the same place, for calls that block, or that may wait less."""
        options = self._options
        if patience_s is not None:
            most_ms = max(1, int(patience_s * 1_000))
            options = replace(
                options,
                patience_ms=min(options.patience_ms, most_ms),
                connect_timeout_ms=min(options.connect_timeout_ms, most_ms),
                response_timeout_ms=min(options.response_timeout_ms, most_ms),
            )
        return BlockingConnection(self._target, options, slot_key=self.producing.keys.tag)

    def add(self, wishes: Sequence[Wish]) -> list[tuple[Order, bool]]:
        """Add jobs, as `Sender.add` does."""
        orders = self.producing.prepare(wishes)
        if self._tracer is None:
            return self._add(orders)
        with traced_add(self._tracer, self.producing.keys.name, orders) as traced:
            return self._add(traced)

    def _add(self, orders: Sequence[Order]) -> list[tuple[Order, bool]]:
        taken: list[bool | None] = [None] * len(orders)
        if orders:
            self.patiently(lambda: self.producing.add(orders, taken))
        return list(zip(orders, map(bool, taken), strict=True))

    def patiently(self, make: Callable[[], Steps[T]]) -> T:
        """Carry out steps, as `Sender.patiently` does."""
        config = self.producing.config
        deadline = self._time_s() + config.overflow_timeout_ms / 1_000
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return self.drive(make())
            except QueueFullError:
                left_s = deadline - self._time_s()
                if config.overflow != "wait" or left_s <= 0:
                    raise
            time.sleep(min(pause_s, left_s))
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def drive(self, steps: Steps[T]) -> T:
        """Carry out steps."""
        self.producing.server = self._connection.server or self._connection.ready()
        return drive_blocking(self._connection, steps)

    def run(self, call: Call[T]) -> T:
        """Carry out one call."""
        return self._connection.run(call)

    def wait_for_result(self, job_id: str, *, timeout_s: float, poll_s: float) -> JobResult:
        """How the job ended, as `Sender.wait_for_result` tells it."""
        deadline = self._time_s() + timeout_s
        connection = self.sibling(patience_s=timeout_s + _LAST_LOOK_S)
        try:
            return self._watched_result(connection, job_id, deadline=deadline, poll_s=poll_s)
        except RedisError:
            if self._time_s() < deadline:
                raise
            raise too_late(job_id, timeout_s) from None
        except WaitForResultTimeoutError:
            raise too_late(job_id, timeout_s) from None
        finally:
            connection.close()

    def _watched_result(
        self, connection: BlockingConnection, job_id: str, *, deadline: float, poll_s: float
    ) -> JobResult:
        job = WaitedJob()
        after = connection.run(events.last_id(self.producing.keys))
        result = drive_blocking(connection, self.producing.first_look(job_id, job))
        while result is None:
            result = drive_blocking(connection, self.producing.result_of(job_id, job))
            if result is None:
                left_s = deadline - self._time_s()
                if left_s <= 0:
                    raise too_late(job_id, 0)
                pause_s = min(_LONGEST_POLLS * poll_s, left_s, job.patience_s)
                block_ms = max(1, int(pause_s * 1_000))
                read = events.read(self.producing.keys, after=after, count=1_000, block_ms=block_ms)
                for event in connection.run(read):
                    after = event.event_id
                    if event.job_id == job_id:
                        job.take(event)
        return result

    def close(self) -> None:
        """Drop the connection. A later call opens another."""
        self._connection.close()
        self._connection.reopen()

    def _time_s(self) -> float:
        return self._clock.monotonic_us() / 1_000_000
