"""`Queue`: the door for programs with an event loop; its methods are in `doors/`, by subject."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from chasquimq.arguments import job_defaults, producer_config
from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.config import Overflow
from chasquimq.doors.adding import Adding
from chasquimq.doors.browsing import Browsing
from chasquimq.doors.frame import one_class
from chasquimq.doors.letters import Letters
from chasquimq.doors.results import Results
from chasquimq.doors.upkeep import Upkeep
from chasquimq.engine.sender import Sender
from chasquimq.tracing import Tracer


@one_class
class Queue(Adding, Results, Letters, Upkeep, Browsing):
    """Adds jobs to one queue, answers questions about it, and keeps it in order.

    Cheap to make: the connection is opened by the first call and shared by all tasks of an event
    loop. A `Queue` may be used from several event loops, in several threads; each gets its own
    connection.
    """

    def __init__(  # noqa: PLR0913 -- the documented arguments
        self,
        name: str,
        *,
        redis_url: str | None = None,
        max_stream_len: int | None = None,
        max_delay_secs: int | None = None,
        tls: bool = False,
        credential_provider: CredentialProvider | None = None,
        reconnect_max_attempts: int | None = None,
        overflow: Overflow = "reject",
        overflow_timeout_ms: int | None = None,
        max_payload_bytes: int | None = None,
        events_enabled: bool = True,
        group: str = "default",
        default_job_options: Mapping[str, Any] | None = None,
        tracing: Tracer | None = None,
    ) -> None:
        """Name the queue and where it is; `docs/configuration.md` has every argument."""
        config = producer_config(
            name,
            max_stream_len=max_stream_len,
            max_delay_secs=max_delay_secs,
            overflow=overflow,
            overflow_timeout_ms=overflow_timeout_ms,
            max_payload_bytes=max_payload_bytes,
            events_enabled=events_enabled,
        )
        options = ConnectionOptions(
            credential_provider=credential_provider,
            reconnect_max_attempts=reconnect_max_attempts,
        )
        target = parse_url(redis_url, tls=tls)
        sender = Sender(target, config, options=options, tracer=tracing)
        super().__init__(sender, group, job_defaults(default_job_options))

    def __repr__(self) -> str:
        """Show the queue, where it is, and whether it was closed."""
        closed = " (closed)" if self._is_closed else ""
        return f"<Queue {self.name} at {self._sender.place}{closed}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The queue itself: it is shared, so that `dataclasses.asdict(job)` can work."""
        return self

    async def close(self) -> None:
        """Drop the connection. Idempotent; a later call opens another."""
        self._is_closed = True
        await self._sender.close()

    async def __aenter__(self) -> Self:
        """The queue itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    def _source(self) -> Self:
        return self
