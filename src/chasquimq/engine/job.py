"""`Job`: what the handler of an engine `Consumer` receives."""

from dataclasses import dataclass
from typing import Any

from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.engine.options import JobId
from chasquimq.wire.ids import ulid
from chasquimq.wire.retry import RetryOverride


@dataclass(frozen=True, slots=True, init=False)
class Job:
    """One unit of work, its payload still packed.

    `payload` is the bytes that were added; it is another value only if a typed producer of the
    reference engine wrote one in place of bytes. `attempt` is the number of this run, from 1; a job
    that nobody has run yet has 0. Not `chasquimq.Job`, which holds the data unpacked.
    """

    payload: Any
    id: JobId
    name: str = ""
    created_at_ms: int = 0
    attempt: int = 0
    retry: RetryOverride | None = None

    def __init__(
        self,
        payload: Any,  # noqa: ANN401 -- the user's
        id: JobId | None = None,  # noqa: A002 -- the documented name
        name: str = "",
        created_at_ms: int | None = None,
        attempt: int = 0,
        retry: RetryOverride | None = None,
    ) -> None:
        """A job of now with an id of its own, unless it is told otherwise.

        Sets the slots directly, as `Envelope` does: every run makes one, and the generated
        constructor of a frozen class takes more than twice as long.
        """
        if created_at_ms is None:
            created_at_ms = SYSTEM_CLOCK.now_ms()
        _set_payload(self, payload)
        _set_id(self, ulid(created_at_ms) if id is None else id)
        _set_name(self, name)
        _set_created_at_ms(self, created_at_ms)
        _set_attempt(self, attempt)
        _set_retry(self, retry)

    @property
    def attempts_made(self) -> int:
        """The same as `attempt`."""
        return self.attempt


_set_payload, _set_id, _set_name, _set_created_at_ms, _set_attempt, _set_retry = (
    getattr(Job, slot).__set__
    for slot in ("payload", "id", "name", "created_at_ms", "attempt", "retry")
)
