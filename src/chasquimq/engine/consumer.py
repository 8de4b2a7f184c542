"""`Consumer`: builds a worker's roles, starts them, settles deliveries, stops in order.

Settlement has one funnel: whatever happened to a delivery, it passes through `_settle` or, if it
could not be run, `_set_aside`; metrics and events are told there.
"""

import asyncio
import logging
import random

from chasquimq.broker import delayed, dlq, stream
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.connection import Connection
from chasquimq.broker.delayed import Relocation
from chasquimq.broker.dlq import Burial
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.results import OUTCOME_FAILED
from chasquimq.broker.stream import Completion, Delivery, Telling
from chasquimq.broker.url import Target
from chasquimq.clock import SYSTEM_CLOCK, Clock
from chasquimq.config import UNIQUE_GRACE_SECS, ConsumerConfig
from chasquimq.engine.acker import Acker
from chasquimq.engine.admission import Run, Unfit
from chasquimq.engine.disposition import Bury, Failed, Ok, Outcome, Retry, after_failure
from chasquimq.engine.executor import Executor, Handler
from chasquimq.engine.leases import Leases
from chasquimq.engine.promoter import Promoter
from chasquimq.engine.reader import Reader
from chasquimq.engine.relocator import Move, Relocator
from chasquimq.engine.teller import Teller
from chasquimq.errors import ChasquiError, DlqReason
from chasquimq.metrics import (
    DlqRouted,
    JobOutcome,
    JobOutcomeKind,
    RetryScheduled,
    report,
)
from chasquimq.wire.codec import pack
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.envelope import with_attempt
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")


class Consumer:
    """One worker on one queue: read, run, settle.

    `run` returns once everything has stopped. What a `kill -9` leaves behind at any point: entries
    that are pending under this consumer's name. Their leases run out and another worker claims
    them.
    """

    def __init__(
        self,
        target: Target,
        config: ConsumerConfig,
        handler: Handler,
        *,
        options: ConnectionOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: random.Random | None = None,
    ) -> None:
        """Build the roles; nothing is connected before `run`. Needs a running event loop."""
        options = options or ConnectionOptions()
        keys = QueueKeys(config.queue_name)
        self._config = config
        self._keys = keys
        self._clock = clock
        self._chance = chance or random.Random()  # noqa: S311 -- jitter, not secrets
        self._events_cap = config.events_max_stream_len if config.events_enabled else 0
        self._main = Connection(target, options, slot_key=keys.tag)
        self._leases = Leases(
            BlockingConnection(target, options, slot_key=keys.tag, loop=asyncio.get_running_loop()),
            keys,
            group=config.group,
            consumer=config.consumer_id,
            lease_ms=config.claim_min_idle_ms,
            clock=clock,
        )
        self._teller = Teller(self._main, keys, config, clock)
        self._acker = Acker(self._main, keys, config, self._leases, clock)
        most = max(config.retry_inflight, config.dlq_inflight)
        self._relocator = Relocator(self._main, self._leases, queue=keys.name, most=most)
        self._executor = Executor(
            handler,
            concurrency=config.concurrency,
            clock=clock,
            on_start=self._teller.active,
            on_outcome=self._settle,
        )
        self._reader = Reader(
            self._main.sibling(),
            keys,
            config,
            executor=self._executor,
            leases=self._leases,
            teller=self._teller,
            clock=clock,
            on_unfit=self._set_aside,
        )
        self._promoter = Promoter(self._main.sibling(), config.promoter())

    def __repr__(self) -> str:
        """Show live state."""
        return f"<Consumer {self._keys.name} {self._config.consumer_id}, {self._executor}>"

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain. Raises if there is no server at the start."""
        try:
            await self._main.ready()
            await self._reader.join()
            self._leases.start()
            for gatherer in (self._teller.gatherer, self._acker.gatherer, self._relocator.gatherer):
                gatherer.start()
            async with asyncio.TaskGroup() as roles:
                roles.create_task(self._reader.run(stop), name="reader")
                roles.create_task(self._unblock_reader(stop), name="reader-stop")
                if self._config.delayed_enabled:
                    roles.create_task(self._promoter.run(stop), name="promoter")
        finally:
            await self._stop()

    @property
    def running(self) -> int:
        """How many handlers run now."""
        return self._executor.running

    def cut(self) -> None:
        """Cancel running handlers now; `run` then returns without waiting for its deadline."""
        self._executor.cut()

    async def _unblock_reader(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await self._reader.unblock()

    async def _stop(self) -> None:
        """Senders end before receivers: reader, slots, then those who write, last the connections.

        Jobs that were read and not started go back uncounted. Those cut off at the deadline go back
        too, but their run counts.
        """
        unstarted = [run.delivery for run in self._executor.take_waiting()]
        await self._hand_back(unstarted)
        cut_off = await self._executor.end(self._config.shutdown_deadline_secs)
        if cut_off:
            log.warning("%d handlers did not finish within %g s and were cut off", len(cut_off),
                        self._config.shutdown_deadline_secs,
                        extra={"queue": self._keys.name})  # fmt: skip
        for run in cut_off:
            run.delivery.deliveries += 1
        await self._hand_back([run.delivery for run in cut_off])
        await self._acker.gatherer.end()
        await self._relocator.gatherer.end()
        await self._teller.gatherer.end()
        if self._config.delayed_enabled:
            await self._promoter.release()
        await asyncio.to_thread(self._leases.end)
        await self._leave()
        for connection in (self._reader.connection, self._promoter.connection, self._main):
            await connection.close()

    async def _hand_back(self, deliveries: list[Delivery]) -> None:
        if not deliveries:
            return
        try:
            await self._main.run(self._reader.hand_back_call(deliveries))
        except ChasquiError as error:
            log.warning("%d deliveries were not handed back; their leases will run out: %s",
                        len(deliveries), error, extra={"queue": self._keys.name})  # fmt: skip
        for each in deliveries:
            self._leases.drop(each.entry_id)

    async def _leave(self) -> None:
        if self._main.server is None:
            return
        try:
            config = self._config
            await self._main.run(stream.leave(self._keys, config.group, config.consumer_id))
        except ChasquiError as error:
            log.debug("consumer %s stays in the group: %s", self._config.consumer_id, error)

    def _settle(self, run: Run, outcome: Outcome, duration_us: int) -> None:
        """End a delivery whose handler has run: complete, retry, or dead-letter."""
        if isinstance(outcome, Ok):
            self._report(run, JobOutcomeKind.OK, duration_us)
            self._acker.add(
                Completion(
                    run.delivery.entry_id,
                    run.envelope.id,
                    run.name,
                    run.attempt,
                    duration_us,
                    outcome.value,
                )
            )
            return
        kind = JobOutcomeKind.PANIC if outcome.is_panic else JobOutcomeKind.ERR
        self._report(run, kind, duration_us)
        self._teller.failed(run, outcome.message, duration_us)
        disposition = after_failure(
            run,
            outcome,
            max_attempts=self._config.max_attempts,
            curve=self._config.retry,
            chance=self._chance,
        )
        match disposition:
            case Retry():
                self._relocator.add(self._retry(run, disposition))
            case Bury(reason):
                self._relocator.add(self._bury(run, reason, outcome))

    def _set_aside(self, unfit: Unfit) -> None:
        """End a delivery that no handler can run: dead-letter it as it is."""
        delivery = unfit.delivery
        log.warning("entry %s goes to the DLQ unrun: %s", delivery.entry_id.decode(), unfit.reason,
                    extra={"queue": self._keys.name, "job_id": unfit.job_id})  # fmt: skip
        letter = DeadLetter(
            source_id=delivery.entry_id.decode(),
            reason=unfit.reason,
            payload=delivery.data or b"",
            name=unfit.name,
            detail=unfit.detail,
            error=unfit.error,
            attempts=unfit.attempts,
            failed_at=self._clock.now_ms(),
            consumer=self._config.consumer_id,
        )
        burial = Burial(delivery.entry_id, unfit.job_id, unfit.attempts, letter)
        self._relocator.add(self._burial_move(burial, unfit.reason))

    def _retry(self, run: Run, retry: Retry) -> Move:
        move = Relocation(
            entry_id=run.delivery.entry_id,
            job_id=run.envelope.id,
            name=run.name,
            envelope=with_attempt(run.envelope, run.attempt),
            backoff_ms=retry.backoff_ms,
            next_attempt=retry.next_attempt,
        )
        call = delayed.retry(
            self._keys,
            self._config.group,
            self._config.consumer_id,
            move,
            telling=self._telling(),
            grace_s=UNIQUE_GRACE_SECS,
        )
        event = RetryScheduled(retry.next_attempt, retry.backoff_ms, run.name)
        return Move(
            move.entry_id, call, lambda: report(self._config.metrics.retry_scheduled, event)
        )

    def _bury(self, run: Run, reason: DlqReason, failure: Failed) -> Move:
        log.error("job %s failed for good (%s): %s", run.envelope.id, reason, failure.error,
                  extra={"queue": self._keys.name, "job_id": run.envelope.id,
                         "entry_id": run.delivery.entry_id.decode(),
                         "attempt": run.attempt})  # fmt: skip
        letter = DeadLetter(
            source_id=run.delivery.entry_id.decode(),
            reason=reason,
            payload=with_attempt(run.envelope, run.attempt - 1),
            name=run.name,
            error=failure.error,
            traceback=failure.traceback,
            attempts=run.attempt,
            failed_at=self._clock.now_ms(),
            consumer=self._config.consumer_id,
        )
        burial = Burial(run.delivery.entry_id, run.envelope.id, run.attempt, letter)
        return self._burial_move(burial, reason)

    def _burial_move(self, burial: Burial, reason: DlqReason) -> Move:
        config = self._config
        keep_s = 2 * config.result_ttl_secs if config.store_results else 0
        text = OUTCOME_FAILED + pack([str(reason), burial.letter.error or ""])
        call = dlq.dead_letter(
            self._keys,
            config.group,
            config.consumer_id,
            burial,
            cap=config.dlq_max_stream_len,
            outcome=(keep_s, text),
            telling=self._telling(),
        )
        event = DlqRouted(reason, burial.attempt, burial.letter.name)
        return Move(burial.entry_id, call, lambda: report(config.metrics.dlq_routed, event))

    def _telling(self) -> Telling:
        return Telling(self._clock.now_ms(), self._events_cap)

    def _report(self, run: Run, kind: JobOutcomeKind, duration_us: int) -> None:
        outcome = JobOutcome(kind, run.attempt, duration_us, run.name)
        report(self._config.metrics.job_outcome, outcome)
