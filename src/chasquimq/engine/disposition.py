"""Pure: outcome of a run, envelope and policy in; complete, retry in n ms, or dead-letter out."""

import random
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from chasquimq.config import RetryConfig
from chasquimq.engine.admission import Run, budget
from chasquimq.engine.backoff import backoff_ms
from chasquimq.errors import DlqReason


class Ok:
    """The handler returned; `value` is what to store, None for nothing."""

    __slots__ = ("value",)

    def __init__(self, value: bytes | None) -> None:
        """Take what the handler's adapter packed."""
        self.value = value


class Failed(NamedTuple):
    """The handler raised. `message` is its bare text, `error` has the type in front.

    A tuple, as `Retry`: where something breaks, all jobs fail, and it takes a third of the time.
    """

    message: str
    error: str
    traceback: str
    dlq_reason: DlqReason | None = None
    """Set if no retry could help: dead-letter at once, for this reason."""
    is_panic: bool = False


@dataclass(frozen=True, slots=True)
class Postponed:
    """The handler ran into somebody's rate limit: the same run again, after `retry_after_ms`."""

    retry_after_ms: int | None


Outcome: TypeAlias = Ok | Failed | Postponed


class Retry(NamedTuple):
    """Run it again after `backoff_ms`, as attempt `next_attempt`."""

    backoff_ms: int
    next_attempt: int


@dataclass(frozen=True, slots=True)
class Bury:
    """Give it up, because of `reason`."""

    reason: DlqReason


def after_failure(
    run: Run, failure: Failed, *, max_attempts: int, curve: RetryConfig, chance: random.Random
) -> Retry | Bury:
    """What becomes of a failed run. The budget counts runs, not retries."""
    if failure.dlq_reason is not None:
        return Bury(failure.dlq_reason)
    if run.is_discarded:
        return Bury(DlqReason.UNRECOVERABLE)
    if run.attempt >= budget(run.retry, max_attempts):
        return Bury(DlqReason.RETRIES_EXHAUSTED)
    override = run.retry.backoff if run.retry else None
    return Retry(backoff_ms(run.attempt, curve, override, chance), run.attempt + 1)
