"""`Crew`: builds a worker's roles, starts them, and stops them in the right order."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from chasquimq.broker import limits
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.connection import Connection
from chasquimq.broker.limits import Limit
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.stream import Delivery
from chasquimq.broker.url import Target
from chasquimq.clock import SYSTEM_CLOCK, Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.acker import Acker
from chasquimq.engine.admission import NO_NAMES, Run
from chasquimq.engine.gate import Gate, Tell, tell_nobody
from chasquimq.engine.intake import MakeIntake, intake
from chasquimq.engine.leases import Leases
from chasquimq.engine.promoter import PromoterRole
from chasquimq.engine.pulse import Pulse, Vitals
from chasquimq.engine.reader import Reader
from chasquimq.engine.relocator import Relocator
from chasquimq.engine.role import Role
from chasquimq.engine.scheduler import SchedulerRole
from chasquimq.engine.scribe import Scribe
from chasquimq.engine.settlement import Settlement
from chasquimq.engine.slots import MakeSlots, Slots
from chasquimq.engine.teller import Teller
from chasquimq.errors import ChasquiError
from chasquimq.metrics import NO_METRICS
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.retry import RetryOverride

log = logging.getLogger("chasquimq.engine")

# How long a stop waits for a server that does not answer: for roles to end, beyond a block that was
# asked for; for what is left to write; and for anything once the worker was cut.
_ROLES_GRACE_S = 1.0
_FAREWELL_S = 10.0
_CUT_S = 1.0


class Crew:
    """One worker on one queue: read, run, settle.

    `run` returns once everything has stopped. What a `kill -9` leaves behind at any point: entries
    that are pending under this consumer's name. Their leases run out and another worker claims
    them.
    """

    def __init__(  # noqa: PLR0913 -- what a worker is made of
        self,
        target: Target,
        config: ConsumerConfig,
        make_slots: MakeSlots,
        *,
        options: ConnectionOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: random.Random | None = None,
        tell: Tell = tell_nobody,
        make_intake: MakeIntake = intake,
        retry_by_name: Mapping[str, RetryOverride] = NO_NAMES,
    ) -> None:
        """Build the roles; nothing is connected before `run`. Needs a running event loop.

        `make_slots` says how jobs are run, `make_intake` how they are taken, `retry_by_name` what
        those of a name use where they bring nothing of their own. `tell` is told of what listeners
        may want to know: an event's name, then its arguments.
        """
        options = options or ConnectionOptions()
        keys = QueueKeys(config.queue_name)
        self._config = config
        self._keys = keys
        self._clock = clock
        self._main = Connection(target, options, slot_key=keys.tag)
        self._leases = self._keeper(target, options)
        self._tell = tell
        self._teller = Teller(self._main, keys, config, clock)
        self._gate = Gate(config, teller=self._teller, clock=clock, tell=tell)
        self.scribe = Scribe(keys, config, teller=self._teller, clock=clock, tell=tell)
        """Writes what handlers say of their jobs."""
        self._acker = Acker(
            self._main, keys, config, leases=self._leases, teller=self._teller, clock=clock
        )
        self._relocator = Relocator(
            self._main,
            leases=self._leases,
            teller=self._teller,
            queue=keys.name,
            most=max(config.retry_inflight, config.dlq_inflight),
        )
        settlement = self._settlement(chance or random.Random())  # noqa: S311 -- jitter
        self._executor = self._made_slots(make_slots, settlement)
        self._reader = self._made_reader(settlement, make_intake, retry_by_name)
        self._promoter = PromoterRole(self._main.sibling(), config.promoter())
        self._leaders: list[PromoterRole | SchedulerRole] = []
        if config.delayed_enabled:
            self._leaders.append(self._promoter)
        if config.run_scheduler:
            self._leaders.append(self._scheduler())
        self._roles: list[Role] = [self._reader, *self._leaders]
        for role in self._roles:
            role.on_error = lambda error: tell("error", error)
        # In the order in which they end: events are also written on behalf of the others.
        self._gatherers = (self._acker.gatherer, self._relocator.gatherer, self._teller.gatherer)
        self._group: asyncio.TaskGroup | None = None
        self._pulse = Pulse(
            config.metrics, lambda: self.vitals, consumer_id=config.consumer_id, clock=clock
        )
        self._limits: set[asyncio.Timeout] = set()
        self._doubts: set[asyncio.Task[None]] = set()
        self._is_cut = False

    def _keeper(self, target: Target, options: ConnectionOptions) -> Leases:
        loop = asyncio.get_running_loop()
        return Leases(
            BlockingConnection(target, options, slot_key=self._keys.tag, loop=loop),
            self._keys,
            group=self._config.group,
            consumer=self._config.consumer_id,
            lease_ms=self._config.claim_min_idle_ms,
            clock=self._clock,
        )

    def _settlement(self, chance: random.Random) -> Settlement:
        return Settlement(
            self._keys,
            self._config,
            acker=self._acker.gatherer,
            relocator=self._relocator,
            teller=self._teller,
            clock=self._clock,
            chance=chance,
        )

    def _made_slots(self, make: MakeSlots, settlement: Settlement) -> Slots:
        return make(
            concurrency=self._config.concurrency,
            clock=self._clock,
            is_sure=self._leases.is_sure,
            on_doubt=self._doubt,
            on_begin=self._teller.active if self._config.events_enabled else None,
            on_outcome=settlement.settle,
            on_slip=lambda run: self._leases.give_up(run.delivery.entry_id),
        )

    def _made_reader(
        self,
        settlement: Settlement,
        make_intake: MakeIntake,
        retry_by_name: Mapping[str, RetryOverride],
    ) -> Reader:
        return Reader(
            self._main.sibling(),
            self._keys,
            self._config,
            executor=self._executor,
            leases=self._leases,
            teller=self._teller,
            gate=self._gate,
            clock=self._clock,
            on_unfit=settlement.set_aside,
            on_drained=lambda: self._tell("drained"),
            make_intake=make_intake,
            retry_by_name=retry_by_name,
        )

    def _doubt(self, run: Run) -> None:
        """Let a run begin when the server says that it is still ours.

        A worker that stood still, or was cut off, for a lease wakes up with jobs that it had read
        and not begun, and that others have begun meanwhile.
        """
        if doubt := self._beside(self._reader.confirm(run, self._main), name="doubt"):
            self._doubts.add(doubt)
            doubt.add_done_callback(self._doubts.discard)

    def _scheduler(self) -> SchedulerRole:
        config = replace(self._config.scheduler, queue_name=self._config.queue_name)
        return SchedulerRole(self._main, config)

    def __repr__(self) -> str:
        """Show live state."""
        return f"<Crew {self._keys.name} {self._config.consumer_id}, {self._executor}>"

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain. Raises if there is no server at the start."""
        try:
            await self._main.ready()
            await self._reader.join()
            self._leases.start()
            for gatherer in self._gatherers:
                gatherer.start()
            if self._config.metrics is not NO_METRICS:
                self._pulse.start()
            async with asyncio.TaskGroup() as group:
                self._group = group
                tasks = [group.create_task(role.run(stop), name=role.name) for role in self._roles]
                group.create_task(self._end_roles(stop, tasks), name="stop")
                self._tell("ready")
        except BaseExceptionGroup as failures:
            # The first role that failed ended the others; what it said is what callers expect.
            raise failures.exceptions[0] from None
        finally:
            self._group = None
            try:
                await self._stop()
            finally:
                await self._pulse.end()

    @property
    def vitals(self) -> Vitals:
        """How it stands now. Plain numbers: any thread may look, while the event loop works."""
        reader, bells = self._reader, [each.bell.connection for each in self._leaders]
        own = (self._main, reader.connection, self._promoter.connection, *bells)
        age_us = self._clock.monotonic_us() - reader.last_read_us
        return Vitals(
            is_connected=self._main.is_open and reader.connection.is_open,
            is_full=self._executor.free <= 0,
            last_read_age_ms=age_us // 1_000 if reader.last_read_us else None,
            in_flight=len(self._leases),
            running=self._executor.running,
            leases_renewed=self._leases.renewals,
            leases_lost=self._leases.lost,
            reconnects=sum(each.reconnects for each in own) + self._leases.reconnects,
        )

    @property
    def is_paused(self) -> bool:
        """Whether no job is taken because this worker, or its queue, is paused."""
        return self._gate.is_paused

    @property
    def is_held(self) -> bool:
        """Whether a hold keeps jobs from being taken."""
        return self._gate.is_held

    def pause(self) -> None:
        """Take no more jobs; those that run go on, what was read and not begun goes back."""
        self._gate.set_pause(here=True)
        self._shut()

    def resume(self) -> None:
        """End a `pause` of this worker; that of the queue stays."""
        self._gate.set_pause(here=False)

    async def rate_limit(self, ms: int) -> None:
        """Take no job for so long: all who share the queue's limit, or without one this worker."""
        config = self._config
        if config.rate_limit_max is not None and config.rate_limit_scope == "queue":
            limit = Limit(config.rate_limit_max, config.rate_limit_duration_ms)
            await self._main.run(limits.hold(self._keys, limit, hold_ms=ms))
            return
        self._gate.hold(ms)
        self._shut()

    def _shut(self) -> None:
        """The gate was shut by hand: end the read that is open, give back what waits for a slot."""
        self._executor.nudge()
        is_shut = self._gate.is_shut
        self._beside(self._reader.unblock(self._main, is_needed=is_shut), name="unblock")
        self._beside(self._return_unstarted(), name="back")

    async def _return_unstarted(self) -> None:
        await self._hand_back(self._reader.take_unstarted())

    def _beside(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None] | None":
        """Do `work` beside the roles; if they are ending it is done by those who end them."""
        try:
            if self._group is not None:
                return self._group.create_task(work, name=name)
        except RuntimeError:  # the group is shutting down
            pass
        work.close()
        return None

    @property
    def running(self) -> int:
        """How many handlers run now."""
        return self._executor.running

    def cut(self) -> None:
        """Cancel running handlers now; `run` then returns soon, whatever the server does."""
        self._is_cut = True
        self._executor.cut()
        soon = asyncio.get_running_loop().time() + _CUT_S
        for limit in self._limits:
            limit.reschedule(min(soon, limit.when() or soon))

    async def _end_roles(self, stop: asyncio.Event, tasks: "list[asyncio.Task[None]]") -> None:
        """Once `stop` is set see to it that every role ends, be the server there or not.

        A read is not cut off while the server may still answer it: the entries of its reply would
        wait for their leases to run out.
        """
        await stop.wait()
        self._reader.end()
        async with self._within(self._config.block_ms / 1_000 + _ROLES_GRACE_S):
            await asyncio.gather(
                self._hand_back(self._reader.take_unstarted()),
                *(role.unblock(self._main) for role in self._roles),
            )
            await asyncio.wait(tasks)
        for task in (*tasks, *self._doubts):
            task.cancel()

    async def _stop(self) -> None:
        """Senders end before receivers: the slots, then those who write, last the connections.

        Jobs that were read and not started go back uncounted. Those cut off at the deadline go back
        too, but their run counts.
        """
        deadline_s = self._config.shutdown_deadline_secs
        try:
            _, cut_off = await asyncio.gather(
                self._return_all(self._reader.take_unstarted()), self._executor.end(deadline_s)
            )
            if cut_off:
                when = "at once" if self._is_cut else f"after {deadline_s:g} s"
                log.warning("cut off %s: %d running, which others can take now; their runs count",
                            when, len(cut_off), extra={"queue": self._keys.name})  # fmt: skip
            for run in cut_off:
                run.delivery.deliveries += 1
            async with self._within(_FAREWELL_S):
                await self._farewell([run.delivery for run in cut_off])
        finally:
            self._executor.cut()
            for gatherer in self._gatherers:
                gatherer.cut()
            self.scribe.end()
            self._teller.abandon()
            await asyncio.to_thread(self._leases.end)
            for each in (self._reader.connection, self._promoter.connection, self._main):
                await each.close()

    async def _farewell(self, cut_off: list[Delivery]) -> None:
        """Write what is left to write, and leave the group."""
        await self._hand_back(cut_off)
        self.scribe.end()
        for gatherer in self._gatherers:
            await gatherer.end()
        if self._main.server is None:
            return
        for leader in self._leaders:
            await leader.release()
        await asyncio.to_thread(self._leases.end)
        await self._leave()

    @asynccontextmanager
    async def _within(self, limit_s: float) -> AsyncIterator[None]:
        """Give up what is inside after `limit_s`; a cut leaves it less."""
        if self._is_cut:
            limit_s = min(_CUT_S, limit_s)
        try:
            async with asyncio.timeout(limit_s) as limit:
                self._limits.add(limit)
                try:
                    yield
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            log.warning("stopping without the server, which did not answer in %g s: what was not "
                        "written will be run again", limit_s,
                        extra={"queue": self._keys.name})  # fmt: skip

    async def _return_all(self, unstarted: list[Delivery]) -> None:
        """Hand back, besides, what the reader was given and did not see, if it was cut off."""
        try:
            async with self._within(_FAREWELL_S):
                await self._reader.abandon(self._main)
        except ChasquiError as error:
            log.debug("what the reader was given last waits for its leases: %s", error)
        await self._hand_back(unstarted)

    async def _hand_back(self, deliveries: list[Delivery]) -> None:
        if not deliveries:
            return
        # Before, not after: a renewal in between would make them look busy for a whole lease.
        self._leases.drop(each.entry_id for each in deliveries)
        try:
            async with self._within(_FAREWELL_S):
                await self._main.run(self._reader.hand_back_call(deliveries))
        except ChasquiError as error:
            log.warning("%d deliveries were not handed back; their leases will run out: %s",
                        len(deliveries), error, extra={"queue": self._keys.name})  # fmt: skip

    async def _leave(self) -> None:
        try:
            await self._reader.leave(self._main)
        except ChasquiError as error:
            log.debug("consumer %s stays in the group: %s", self._config.consumer_id, error)
