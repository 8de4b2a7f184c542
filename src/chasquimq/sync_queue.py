"""`SyncQueue`: the same calls as `Queue` without await, for Django, Flask and scripts."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from chasquimq.arguments import job_defaults, producer_config
from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.config import Overflow
from chasquimq.doors.adding import SyncAdding
from chasquimq.doors.browsing import SyncBrowsing
from chasquimq.doors.frame import one_class
from chasquimq.doors.letters import SyncLetters
from chasquimq.doors.results import SyncResults
from chasquimq.doors.upkeep import SyncUpkeep
from chasquimq.engine.sender import SyncSender
from chasquimq.tracing import Tracer


@one_class
class SyncQueue(SyncAdding, SyncResults, SyncLetters, SyncUpkeep, SyncBrowsing):
    """Adds jobs to one queue, answers questions about it, from ordinary functions.

    Every method does what the method of the same name in `Queue` does. Threads may share one; a
    forked child (gunicorn, Celery-style pre-fork) opens a connection of its own.
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
        """Name the queue and where it is, as for `Queue`."""
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
        sender = SyncSender(target, config, options=options, tracer=tracing)
        super().__init__(sender, group, job_defaults(default_job_options))

    def __repr__(self) -> str:
        """Show the queue, where it is, and whether it was closed."""
        closed = " (closed)" if self._is_closed else ""
        return f"<SyncQueue {self.name} at {self._sender.place}{closed}>"

    def close(self) -> None:
        """Drop the connection. Idempotent; a later call opens another."""
        self._is_closed = True
        self._sender.close()

    def __enter__(self) -> Self:
        """The queue itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
