"""Ends deliveries: complete, retry, or dead-letter; the one funnel they all pass through.

Whatever happened to a delivery, it ends in `settle` or, if it could not be run, in `set_aside`;
metrics and events are told there.
"""

import logging
import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from chasquimq.broker import delayed, dlq
from chasquimq.broker.call import Call
from chasquimq.broker.delayed import Relocation
from chasquimq.broker.dlq import Burial
from chasquimq.broker.results import OUTCOME_FAILED
from chasquimq.broker.stream import CompletionRow, Telling
from chasquimq.clock import Clock
from chasquimq.config import UNIQUE_GRACE_SECS, ConsumerConfig
from chasquimq.engine.admission import Run, Unfit
from chasquimq.engine.disposition import Bury, Failed, Ok, Outcome, Postponed, Retry, after_failure
from chasquimq.engine.legible import legible
from chasquimq.engine.relocator import Joint, Move
from chasquimq.errors import DlqReason
from chasquimq.metrics import (
    NO_METRICS,
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

T_contra = TypeVar("T_contra", contravariant=True)


class Writer(Protocol[T_contra]):
    """Who writes what was decided: now, or with others of its kind."""

    def add(self, item: T_contra, /) -> None:
        """Take one."""
        ...


class FailureTeller(Protocol):
    """Who tells that a run has failed."""

    def failed(self, run: Run, reason: str, duration_us: int) -> None:
        """Tell it before what follows from it is written."""
        ...


class Settlement:
    """Decides, by the pure rules of `disposition.py`, and hands on to those who write."""

    def __init__(  # noqa: PLR0913 -- the roles it works with
        self,
        keys: QueueKeys,
        config: ConsumerConfig,
        *,
        acker: Writer[CompletionRow],
        relocator: Writer[Move],
        teller: FailureTeller,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        """Nothing is written here: `acker` and `relocator` do that."""
        self._keys = keys
        self._config = config
        self._complete = acker.add
        self._relocator = relocator
        self._teller = teller
        self._clock = clock
        self._chance = chance
        self._events_cap = config.events_max_stream_len if config.events_enabled else 0
        # A report costs a microsecond; without a sink nobody would read it.
        self._is_reporting = config.metrics is not NO_METRICS

    def settle(self, run: Run, outcome: Outcome, duration_us: int) -> None:
        """End a delivery whose handler has run: complete, retry, or dead-letter."""
        if isinstance(outcome, Ok):
            if self._is_reporting:  # a call costs a job 0.1 us
                self._report(run, JobOutcomeKind.OK, duration_us)
            value = outcome.value
            self._complete(
                (
                    run.delivery.entry_id,
                    run.envelope[0],
                    run.name,
                    run.attempt,
                    duration_us,
                    False if value is None else value,
                )
            )
            return
        if isinstance(outcome, Postponed):
            self._relocator.add(self._retry(run, self._postponed(run, outcome)))
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
            case Retry(backoff_ms, _):
                if is_heard(log):
                    job_id = legible(run.envelope.id)
                    log.warning("job %s (%s) failed in run %d, next try in %d ms: %s",
                                job_id, legible(run.name), run.attempt, backoff_ms,
                                _told_once(run, outcome),
                                extra={"queue": self._keys.name, "job_id": job_id,
                                       "attempt": run.attempt})  # fmt: skip
                self._relocator.add(self._retry(run, disposition))
            case Bury(reason):
                self._relocator.add(self._bury(run, reason, outcome))

    def set_aside(self, unfit: Unfit) -> None:
        """End a delivery that no handler can run: dead-letter it as it is."""
        delivery = unfit.delivery
        log.warning("entry %s goes to the DLQ unrun: %s", delivery.entry_id.decode(), unfit.reason,
                    extra={"queue": self._keys.name,
                           "job_id": legible(unfit.job_id)})  # fmt: skip
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

    def _postponed(self, run: Run, outcome: Postponed) -> Retry:
        """The same run again: it does not count as one that was made."""
        after_ms = outcome.retry_after_ms or self._config.rate_limit_duration_ms
        job_id = legible(run.envelope.id)
        log.info("job %s is rate-limited, run %d begins again in %d ms", job_id, run.attempt,
                 after_ms, extra={"queue": self._keys.name, "job_id": job_id,
                                  "attempt": run.attempt})  # fmt: skip
        return Retry(after_ms, next_attempt=run.attempt)

    def _retry(self, run: Run, retry: Retry) -> Move:
        move = Relocation(
            entry_id=run.delivery.entry_id,
            job_id=run.envelope.id,
            name=run.name,
            envelope=with_attempt(run.delivery.data or run.envelope, retry.next_attempt - 1),
            backoff_ms=retry.backoff_ms,
            next_attempt=retry.next_attempt,
        )
        joint = Joint(move, self._retries)
        if not self._is_reporting:
            return Move(move.entry_id, joint, _nothing)
        event = RetryScheduled(retry.next_attempt, retry.backoff_ms, run.name)
        sink = self._config.metrics
        return Move(move.entry_id, joint, lambda: report(sink.retry_scheduled, event))

    def _retries(self, moves: Sequence[Relocation]) -> Call[list[bool]]:
        return delayed.retry(
            self._keys,
            self._config.group,
            self._config.consumer_id,
            moves,
            telling=self._telling(),
            grace_s=UNIQUE_GRACE_SECS,
        )

    def _bury(self, run: Run, reason: DlqReason, failure: Failed) -> Move:
        job_id = legible(run.envelope.id)
        log.error("job %s (%s) failed for good (%s): %s", job_id, legible(run.name), reason,
                  _told_once(run, failure),
                  extra={"queue": self._keys.name, "job_id": job_id,
                         "entry_id": run.delivery.entry_id.decode(),
                         "attempt": run.attempt})  # fmt: skip
        letter = DeadLetter(
            source_id=run.delivery.entry_id.decode(),
            reason=reason,
            payload=with_attempt(run.delivery.data or run.envelope, run.attempt - 1),
            name=run.name,
            error=failure.error,
            traceback=failure.traceback or None,
            attempts=run.attempt,
            failed_at=self._clock.now_ms(),
            consumer=self._config.consumer_id,
        )
        burial = Burial(run.delivery.entry_id, run.envelope.id, run.attempt, letter)
        return self._burial_move(burial, reason)

    def _burial_move(self, burial: Burial, reason: DlqReason) -> Move:
        config = self._config
        # Kept even where results are not: one key a dead letter, and whoever waits is told why.
        keep_s = 2 * config.result_ttl_secs
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
        return Move(
            burial.entry_id,
            call,
            lambda: report(config.metrics.dlq_routed, event),
            is_burial=True,
        )

    def _telling(self) -> Telling:
        return Telling(self._clock.now_ms(), self._events_cap)

    def _report(self, run: Run, kind: JobOutcomeKind, duration_us: int) -> None:
        if not self._is_reporting:
            return
        outcome = JobOutcome(kind, run.attempt, duration_us, run.name, run.envelope.id)
        report(self._config.metrics.job_outcome, outcome)


def _nothing() -> None:
    """What is reported where nobody reads it."""


_CALL_HANDLERS = logging.Logger.callHandlers


def is_heard(logger: logging.Logger) -> bool:
    """Whether anybody may see a warning; to make one that nobody sees takes 8 us.

    Nobody does if all handlers are of the kind that a library has to drop everything. Where there
    is none at all Python prints it; filters, and those who put themselves before handlers, see it.
    """
    if not logger.isEnabledFor(logging.WARNING):
        return False
    if logger.filters or logging.Logger.callHandlers is not _CALL_HANDLERS:
        return True
    found = 0
    each: logging.Logger | None = logger
    while each is not None:
        for handler in each.handlers:
            if type(handler) is not logging.NullHandler:
                return True
            found += 1
        each = each.parent if each.propagate else None
    return not found


def _told_once(run: Run, failure: Failed) -> str:
    """What went wrong: after the first run with the traceback, which later runs tend to repeat."""
    is_known = run.attempt > 1 and not log.isEnabledFor(logging.DEBUG)
    if is_known or not failure.traceback:
        return failure.error
    return f"{failure.error}\n{failure.traceback.rstrip()}"
