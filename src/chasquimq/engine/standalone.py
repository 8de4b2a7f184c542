"""`Promoter` and `Scheduler`: the two leader roles of a worker, in a process of their own.

A worker has both inside. Run them apart where handlers must not compete with them for the event
loop, or where no worker runs all the time. Any number may run, here and in workers, the reference
engine's included: the lock lets one of them lead. What a `kill -9` leaves behind is the lock, which
expires; another leads after `lock_ttl_secs` at the latest.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

from chasquimq.broker.connection import Connection
from chasquimq.broker.options import CredentialProvider
from chasquimq.config import PromoterConfig, SchedulerConfig
from chasquimq.engine.promoter import PromoterRole
from chasquimq.engine.role import Role
from chasquimq.engine.runnable import C, Runnable
from chasquimq.engine.scheduler import SchedulerRole
from chasquimq.given import chosen
from chasquimq.wire.keys import QueueKeys

# How long a stop waits for a server that does not answer: for the step that is under way, then to
# give the lock up. A lock that is not given up expires.
_GRACE_S = 1.0
_RELEASE_S = 1.0


class _Leader(Runnable[C], ABC):
    """One role on a connection of its own."""

    @abstractmethod
    def _role(self, connection: Connection) -> PromoterRole | SchedulerRole:
        """The role that does the work."""

    async def run(self, shutdown: asyncio.Event | None = None) -> None:
        """Work until `shutdown` is set, or `shutdown()` called; then release the lock and return.

        Raises if there is no server at the start. Later it waits for one that went away.
        """
        await self._run(self._lead, shutdown)

    async def _lead(self, stop: asyncio.Event) -> None:
        slot_key = QueueKeys(self.queue_name).tag
        connection = Connection(self._target, self._options, slot_key=slot_key)
        role = self._role(connection)
        try:
            await _until_stopped(_ready_then_run(connection, role, stop), stop)
        finally:
            if connection.server is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RELEASE_S):
                        await role.release()
            await connection.close()


async def _ready_then_run(connection: Connection, role: Role, stop: asyncio.Event) -> None:
    await connection.ready()
    await role.run(stop)


async def _until_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Do the work; after `stop` it has a moment to end by itself, be the server there or not."""
    loop = asyncio.get_running_loop()
    working, stopping = loop.create_task(work), loop.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([working], timeout=_GRACE_S)
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.wait([working, stopping])
    if not working.cancelled():
        working.result()


class Promoter(_Leader[PromoterConfig]):
    """Moves jobs that are due to the stream, whenever it leads."""

    _config_kind = PromoterConfig

    def __init__(  # noqa: PLR0913 -- the fields of its config
        self,
        redis_url: str | None,
        queue_name: str,
        *,
        poll_interval_ms: int | timedelta | None = None,
        promote_batch: int | None = None,
        max_stream_len: int | None = None,
        lock_ttl_secs: int | timedelta | None = None,
        holder_id: str | None = None,
        credential_provider: CredentialProvider | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
    ) -> None:
        """None takes the default of `PromoterConfig`."""
        config = PromoterConfig(
            queue_name=queue_name,
            **chosen(
                poll_interval_ms=poll_interval_ms,
                promote_batch=promote_batch,
                max_stream_len=max_stream_len,
                lock_ttl_secs=lock_ttl_secs,
                holder_id=holder_id,
            ),
        )
        self._set_up(redis_url, config, credential_provider, reconnect_max_attempts, tls=tls)

    def _role(self, connection: Connection) -> PromoterRole:
        return PromoterRole(connection, self._config)


class Scheduler(_Leader[SchedulerConfig]):
    """Fires recurring jobs when their windows come, whenever it leads."""

    _config_kind = SchedulerConfig

    def __init__(  # noqa: PLR0913 -- the documented arguments, then ours
        self,
        redis_url: str | None,
        queue_name: str,
        *,
        tick_interval_ms: int | timedelta | None = None,
        batch: int | None = None,
        max_stream_len: int | None = None,
        lock_ttl_secs: int | timedelta | None = None,
        holder_id: str | None = None,
        credential_provider: CredentialProvider | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
    ) -> None:
        """None takes the default of `SchedulerConfig`."""
        config = SchedulerConfig(
            queue_name=queue_name,
            **chosen(
                tick_interval_ms=tick_interval_ms,
                batch=batch,
                max_stream_len=max_stream_len,
                lock_ttl_secs=lock_ttl_secs,
                holder_id=holder_id,
            ),
        )
        self._set_up(redis_url, config, credential_provider, reconnect_max_attempts, tls=tls)

    def _role(self, connection: Connection) -> SchedulerRole:
        return SchedulerRole(connection, self._config)
