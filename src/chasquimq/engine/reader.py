"""Reads batches into free slots, as far as the gate is open.

It asks for as many entries as there are free slots, and for more while handlers are fast: see
`foresight.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from chasquimq.broker import pause, returns, stream
from chasquimq.broker.call import Call
from chasquimq.broker.connection import Connection
from chasquimq.broker.limits import Taken
from chasquimq.broker.steps import drive
from chasquimq.broker.stream import Delivery
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.admission import NO_NAMES, Run, Unfit, admit
from chasquimq.engine.foresight import AHEAD_S, STALE_S, Foresight
from chasquimq.engine.gate import Gate
from chasquimq.engine.groups import other_group
from chasquimq.engine.intake import MakeIntake, intake
from chasquimq.engine.leases import Leases
from chasquimq.engine.role import Role
from chasquimq.engine.slots import Slots
from chasquimq.engine.teller import Teller
from chasquimq.errors import ChasquiError, ConfigError, ReplyTooLargeError, ServerReplyError
from chasquimq.metrics import NO_METRICS, ReaderBatch, report
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.retry import RetryOverride

log = logging.getLogger("chasquimq.engine")

# What is handed back counts as silent for a day: longer than any other worker's lease.
IDLE_FOR_ALL_MS = 86_400_000
# How soon the end of a pause is seen that was ended by hand, without the bell.
_PAUSE_POLL_MS = 250
_MOST_READ = 1 << 20  # more than there is room for
# So few begin before the next read is put together, 20 us sooner; many would let the server wait.
_FEW = 8


class Reader(Role):
    """The only one who takes entries from the stream."""

    name = "reader"

    def __init__(  # noqa: PLR0913 -- the roles it works with
        self,
        connection: Connection,
        keys: QueueKeys,
        config: ConsumerConfig,
        *,
        executor: Slots,
        leases: Leases,
        teller: Teller,
        gate: Gate,
        clock: Clock,
        on_unfit: Callable[[Unfit], None],
        on_drained: Callable[[], None] = lambda: None,
        make_intake: MakeIntake = intake,
        retry_by_name: Mapping[str, RetryOverride] = NO_NAMES,
    ) -> None:
        """`connection` is the reader's own: it blocks on it."""
        self.connection = connection
        self._keys = keys
        self._config = config
        self._executor = executor
        self._leases = leases
        self._teller = teller
        self._gate = gate
        self._clock = clock
        self._on_unfit = on_unfit
        self._on_drained = on_drained
        self._retry_by_name = retry_by_name
        self._intake = make_intake(connection, keys, config, clock, leases.__len__)
        self._reconnects = 0
        # What was pending under our name before we read anything, and how often it was delivered.
        self._inherited: dict[bytes, int] = {}
        self._had_entries = False
        self._foresight = Foresight(config.batch, clock.monotonic_us())
        self._most = _MOST_READ  # entries in one read: fewer, if they are more than a reply holds
        self._was_cut_off = False
        self.last_read_us = 0

    def __repr__(self) -> str:
        """Show live state."""
        return f"<Reader {self._keys.name} {self._config.consumer_id}, {self._executor}>"

    async def join(self) -> None:
        """Create the group if need be; a queue that another group reads is refused."""
        other = await self.connection.run(stream.join(self._keys, self._config.group))
        if other:
            raise ConfigError(other_group(self._keys.name, other))
        await self.connection.run(stream.prepare())
        pending = await self._pending(self.connection)
        self._inherited = {each.entry_id: each.deliveries for each in pending}
        is_paused = await self.connection.run(pause.is_paused(self._keys))
        self._gate.set_pause(queue=is_paused)

    async def step(self) -> float:
        """Read once and hand on what came; or wait, for room or for the gate to open."""
        if self._gate.is_open:
            await self._read()
        else:
            await self._wait_at_gate()
        if self.connection.reconnects != self._reconnects:
            self._reconnects = self.connection.reconnects
            await self.connection.run(stream.prepare())
            await self.return_strays()
        return 0

    async def _read(self) -> None:
        room = await self._room()
        if room <= 0:
            return
        asked_us = self._clock.monotonic_us()
        self._leases.forget_settled()
        taken = await self._taken(room)
        if taken is None:
            return
        deliveries = taken.deliveries
        ours_us = self.last_read_us = self._clock.monotonic_us()
        if deliveries and ours_us - asked_us >= self._leases.interval_us:
            deliveries = await self._still_ours(deliveries, self.connection)
        if taken.is_paused:
            await self._begin_pause(deliveries)
        elif not self._gate.is_open:
            # It was shut while we read: nothing begins, and nothing found means nothing.
            if deliveries:
                await self.connection.run(self.hand_back_call(deliveries))
        elif taken.wait_ms:
            await self._gate.wait_for_tokens(taken.wait_ms)
        else:
            if taken.ran_dry:
                self._gate.flows()
            self._hand_on(deliveries, ours_us)
            if 0 < len(deliveries) <= _FEW:
                await asyncio.sleep(0)

    def end(self) -> None:
        """Begin no other read, and start nothing that an open one may still bring."""
        self._gate.end()
        self._executor.nudge()

    async def abandon(self, helper: Connection) -> None:
        """After a read that was cut off: end it on the server too, and hand back what it took.

        Else it would go on taking entries, those we are about to hand back among them.
        """
        if not self._was_cut_off:
            return
        server = self.connection.server
        await self.connection.close()
        if server is not None and server.client_id:
            # The server may notice the close only after what we send next.
            await helper.run(stream.unblock(server.client_id))
        await self.return_strays(helper)

    async def return_strays(self, helper: Connection | None = None) -> None:
        """Hand back entries that are ours by the server's book but never reached us.

        They were in a reply that got lost with its connection. Without this they would wait for
        their lease to run out, and count as a run that never was.
        """
        connection = helper or self.connection
        pending = await self._pending(connection)
        self._leases.forget_given_up(but={each.entry_id for each in pending})
        strays = [each for each in pending if self._is_stray(each)]
        if strays:
            log.info("handing back %d deliveries lost with a connection", len(strays))
            await connection.run(self.hand_back_call(strays))

    def _is_stray(self, pending: Delivery) -> bool:
        """Whether what is ours by the server's book was never begun, and must not count as a run.

        Three others look alike. What was handed back stays under our name until somebody reads it,
        and taking a delivery off its count twice would give it a run too many. What ran here and
        could not be settled has had its run. So has what a worker of our name held that died before
        we started: a job that kills its worker would else never come to its end.
        """
        entry_id = pending.entry_id
        return not (
            entry_id in self._leases
            or pending.idle_ms >= IDLE_FOR_ALL_MS
            or self._leases.had_its_run(entry_id)
            or self._inherited.get(entry_id) == pending.deliveries
        )

    async def _pending(self, connection: Connection) -> list[Delivery]:
        """What is ours by the server's book: nothing, if the group is gone again."""
        call = stream.pending(self._keys, self._config.group, self._config.consumer_id)
        try:
            return await connection.run(call)
        except ServerReplyError as error:
            if error.kind != "NOGROUP":
                raise
            return []

    def hand_back_call(self, deliveries: list[Delivery]) -> Call[int]:
        """The call that gives unstarted deliveries to whoever reads next."""
        return returns.hand_back(
            self._keys,
            self._config.group,
            self._config.consumer_id,
            deliveries,
            idle_ms=IDLE_FOR_ALL_MS,
        )

    async def leave(self, helper: Connection) -> None:
        """End our membership of the group, after everything else; with leases left it goes on."""
        config = self._config
        depart = returns.depart(
            self._keys, config.group, config.consumer_id, idle_ms=IDLE_FOR_ALL_MS
        )
        await drive(helper, depart)

    async def _wait_at_gate(self) -> None:
        gate = self._gate
        if gate.is_paused_here or not gate.is_queue_paused:
            await gate.wait(gate.held_ms or self._config.longest_read_ms)
            return
        call = pause.wait_for_resume(self._keys, after=gate.bell, block_ms=_PAUSE_POLL_MS)
        self.blocked_on = self.connection
        try:
            is_paused, gate.bell = await self.connection.run(call)
        finally:
            self.blocked_on = None
        self.last_read_us = self._clock.monotonic_us()
        if not is_paused:
            # What was put back and could not wait in its place is claimed before what is new.
            self._intake.look_again()
        gate.set_pause(queue=is_paused)

    async def _begin_pause(self, read: list[Delivery]) -> None:
        """Put back what was read after the queue was paused, or before and not started yet."""
        self._gate.set_pause(queue=True)
        unstarted = [*self.take_unstarted(), *read]
        if unstarted:
            await self.connection.run(
                returns.put_back(
                    self._keys,
                    self._config.group,
                    self._config.consumer_id,
                    unstarted,
                    idle_ms=IDLE_FOR_ALL_MS,
                )
            )

    def take_unstarted(self) -> list[Delivery]:
        """Take back, and let go, what was read and waits for a slot."""
        unstarted = [run.delivery for run in self._executor.take_waiting()]
        # Before it is handed back: a renewal in between would make it look busy for a whole lease.
        self._leases.drop(each.entry_id for each in unstarted)
        return unstarted

    async def _room(self) -> int:
        """How many entries to ask for; waits for room, 0 when it has waited in vain."""
        executor, foresight, now_us = self._executor, self._foresight, self._clock.monotonic_us()
        foresight.look(executor.finished, now_us)
        if portion := foresight.portion(executor.free):
            return min(portion, self._most)
        if foresight.has_lingered(executor.free, now_us):
            await self._return_stale()
            return 0
        try:
            async with asyncio.timeout(STALE_S):
                await executor.changed()
        except TimeoutError:
            if executor.waiting and executor.free <= 0:
                await self._return_stale()
        return 0

    async def _return_stale(self) -> None:
        self._foresight.forget()
        await self.connection.run(self.hand_back_call(self.take_unstarted()))

    async def _taken(self, room: int) -> Taken | None:
        """What a read brought; None if it brought nothing, and why is mended."""
        try:
            taken = await self._take(room)
        except ServerReplyError as error:
            if error.kind != "NOGROUP":
                raise
            log.warning("the group of queue %s is gone; creating it again", self._keys.name)
            await self.join()
            return None
        except ReplyTooLargeError as error:
            await self._read_less(room, error)
            return None
        if len(taken.deliveries) >= self._most:
            self._most += 1  # the jobs may have become smaller
        return taken

    async def _read_less(self, room: int, error: ReplyTooLargeError) -> None:
        """Hand back what the reply would have brought, and ask for half of it.

        One that alone is too large waits for its lease, or it would be the first to be read again.
        """
        if room == 1:
            await self._pending(self.connection)  # over a new link
        else:
            await self.return_strays()
            self._intake.look_again()
        self._reconnects, self._most = self.connection.reconnects, max(room // 2, 1)
        if room == 1:
            raise error  # so that it is told
        log.warning("queue %s: %s; reading %d for now", self._keys.name, error, self._most)

    async def _take(self, room: int) -> Taken:
        block_ms = self._config.longest_read_ms
        if self._executor.free <= 0:
            # Reading ahead only. Not for long: jobs that wait here may have to go back.
            block_ms = min(block_ms, round(AHEAD_S * 1_000))
        self.blocked_on = self.connection
        try:
            return await self._intake.take(
                room, block_ms=block_ms, may_go_on=lambda: self._gate.is_open
            )
        except asyncio.CancelledError:
            self._was_cut_off = True
            raise
        finally:
            self.blocked_on = None

    async def confirm(self, run: Run, helper: Connection) -> None:
        """Let a run begin after all if it is still ours by the server's book; else forget it.

        It stays in hand meanwhile: should our own reads be given it again, it is not run twice.
        """
        delivery, leases = run.delivery, self._leases
        claim, asked_us = leases.claim_on(delivery.entry_id), self._clock.monotonic_us()
        is_ours = False
        try:
            is_ours = bool(await self._still_ours([delivery], helper))
        except ChasquiError as error:
            log.debug("entry %s waits for its lease: %s", delivery.entry_id.decode(), error)
        if leases.claim_on(delivery.entry_id) is not claim:
            is_ours = True  # a read of ours was given it again, and left it to us
        elif is_ours:
            # As of when we asked: who stands still until the answer is seen has to ask once more.
            leases.take(delivery.entry_id, asked_us)
        if is_ours and self._gate.is_open:
            self._executor.submit((run,))
            return
        leases.drop((delivery.entry_id,))
        if is_ours:
            with suppress(ChasquiError):  # then it waits for its lease, too
                await helper.run(self.hand_back_call([delivery]))

    async def _still_ours(
        self, deliveries: list[Delivery], connection: Connection
    ) -> list[Delivery]:
        """Leave out what another worker took over before we looked at the reply.

        A reply that waits for a blocked event loop holds deliveries that nobody renews.
        """
        own = self._keys, self._config.group, self._config.consumer_id
        entry_ids = [each.entry_id for each in deliveries]
        lost: set[bytes] = set()
        for at in range(0, len(entry_ids), stream.MOST_RENEWED):
            gone = await connection.run(
                stream.renew(*own, entry_ids[at : at + stream.MOST_RENEWED])
            )
            lost.update(gone)
        return [each for each in deliveries if each.entry_id not in lost]

    def _hand_on(self, deliveries: list[Delivery], ours_us: int) -> None:
        if not deliveries:
            if self._had_entries:
                self._had_entries = False
                self._teller.drained()
                self._on_drained()
            return
        self._had_entries = True
        config, runs, admitted = self._config, [], 0
        if config.metrics is not NO_METRICS:
            reclaimed = sum(1 for each in deliveries if each.deliveries)
            report(config.metrics.reader_batch, ReaderBatch(len(deliveries), reclaimed))
        most_bytes, most_attempts = config.max_payload_bytes, config.max_attempts
        fresh = self._leases.take_all(deliveries, ours_us)
        try:
            for delivery in fresh:
                fit = admit(
                    delivery,
                    max_payload_bytes=most_bytes,
                    max_attempts=most_attempts,
                    retry_by_name=self._retry_by_name,
                )
                if isinstance(fit, Run):
                    runs.append(fit)
                else:
                    self._on_unfit(fit)
                admitted += 1
        finally:
            # Whatever happens, a lease that is kept is that of a job that runs, or will.
            self._leases.drop(each.entry_id for each in fresh[admitted:])
            self._executor.submit(runs)
