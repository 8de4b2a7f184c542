"""`Runnable`: what a part of the engine that stands on its own is made of: a place, a run, a stop.

Only the stop is shared state. It may come from the caller's event, from `shutdown`, or from a
cancellation of who awaits `run`; in each case the work drains, and `run` returns when it has.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Self, TypeAlias, TypeVar

from chasquimq.broker.options import ConnectionOptions, CredentialProvider
from chasquimq.broker.url import parse_url
from chasquimq.config import ConsumerConfig, PromoterConfig, SchedulerConfig
from chasquimq.engine.outlast import outlast
from chasquimq.errors import ChasquiError
from chasquimq.given import check_kind

C = TypeVar("C", ConsumerConfig, PromoterConfig, SchedulerConfig)
_Work: TypeAlias = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


class Runnable(Generic[C]):
    """Runs once on one event loop, until it is told to stop."""

    _config_kind: type[C]

    @classmethod
    def from_config(
        cls,
        redis_url: str | None,
        config: C,
        *,
        credential_provider: CredentialProvider | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
    ) -> Self:
        """One of a config, which names the queue too. Nothing is connected before `run`."""
        check_kind("config", config, cls._config_kind)
        made = cls.__new__(cls)
        made._set_up(redis_url, config, credential_provider, reconnect_max_attempts, tls=tls)  # noqa: SLF001
        return made

    def _set_up(
        self,
        redis_url: str | None,
        config: C,
        credential_provider: CredentialProvider | None,
        reconnect_max_attempts: int | None,
        *,
        tls: bool,
    ) -> None:
        self._config: C = config
        self._target = parse_url(redis_url, tls=tls)
        self._options = ConnectionOptions(
            credential_provider=credential_provider,
            reconnect_max_attempts=reconnect_max_attempts,
            client_name=f"chasquimq-{type(self).__name__.lower()}-{_token(config)}",
        )
        self._stop = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        """Show live state."""
        state = "running" if self.is_running else "stopped" if self._stop.is_set() else "idle"
        return f"<{type(self).__name__} {self.queue_name} {state} at {self._target.safe_text}>"

    @property
    def config(self) -> C:
        """How it works."""
        return self._config

    @property
    def queue_name(self) -> str:
        """Which queue it works on."""
        return self._config.queue_name

    @property
    def is_running(self) -> bool:
        """Whether `run` is at work."""
        return self._work is not None and not self._work.done()

    def shutdown(self) -> None:
        """Tell it to stop, and return at once; `run` returns when it has drained.

        Idempotent. To be called on the event loop that runs it.
        """
        self._stop.set()

    async def _run(self, work: _Work, shutdown: asyncio.Event | None) -> None:
        """Do the work until told to stop, in whichever way. What has stopped does not run again."""
        if self.is_running:
            msg = f"{self!r} runs already: make another one to run two"
            raise ChasquiError(msg)
        if self._stop.is_set():
            return
        # All that has to end is begun in this task, which no cancellation of the caller reaches.
        doing = self._do(work, shutdown)
        self._work = asyncio.get_running_loop().create_task(doing, name=type(self).__name__)
        await outlast(self._work, self._stop.set)

    async def _do(self, work: _Work, shutdown: asyncio.Event | None) -> None:
        """Do the work, and meanwhile hear the caller's event."""
        if shutdown is None:
            await work(self._stop)
            return
        hearing = asyncio.get_running_loop().create_task(self._hear(shutdown), name="shutdown")
        try:
            await work(self._stop)
        finally:
            hearing.cancel()
            await asyncio.wait([hearing])

    async def _hear(self, shutdown: asyncio.Event) -> None:
        await shutdown.wait()
        self._stop.set()


def _token(config: ConsumerConfig | PromoterConfig | SchedulerConfig) -> str:
    """What tells this one from its like in `CLIENT LIST`."""
    return config.consumer_id if isinstance(config, ConsumerConfig) else config.holder_id
