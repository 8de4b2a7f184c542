"""`Job`: what the handler of an engine `Consumer` receives."""

from dataclasses import dataclass, field
from typing import Any

from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.engine.options import JobId
from chasquimq.wire.ids import ulid
from chasquimq.wire.retry import RetryOverride


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work, its payload still packed.

    `payload` is the bytes that were added; it is another value only if a typed producer of the
    reference engine wrote one in place of bytes. `attempt` is the number of this run, from 1; a job
    that nobody has run yet has 0. Not `chasquimq.Job`, which holds the data unpacked.
    """

    payload: Any
    id: JobId = field(default_factory=lambda: ulid(SYSTEM_CLOCK.now_ms()))
    name: str = ""
    created_at_ms: int = field(default_factory=SYSTEM_CLOCK.now_ms)
    attempt: int = 0
    retry: RetryOverride | None = None

    @property
    def attempts_made(self) -> int:
        """The same as `attempt`."""
        return self.attempt
