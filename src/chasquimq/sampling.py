"""`Sampler`: looks at a queue's depths from a thread, in bounded time."""

import asyncio
import logging
import threading
from dataclasses import replace

from chasquimq.broker.backlog import backlog
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.steps import drive_blocking
from chasquimq.broker.url import Target
from chasquimq.clock import monotonic_s
from chasquimq.errors import ChasquiError
from chasquimq.metrics import QueueDepths
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.metrics")

# For connecting and for each reply: scrapers give up after ten seconds, and would then see nothing.
_PATIENCE_MS = 1_000
# Several scrapers, or an impatient one, cost the server one look in this time.
_FRESH_S = 1.0


class Sampler:
    """One blocking connection of its own, opened when it is first asked."""

    def __init__(
        self,
        target: Target,
        options: ConnectionOptions,
        *,
        queue: str,
        group: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`loop` is where a credential provider is asked."""
        self._keys = QueueKeys(queue)
        self._group = group
        short = replace(
            options,
            connect_timeout_ms=_PATIENCE_MS,
            response_timeout_ms=_PATIENCE_MS,
            patience_ms=_PATIENCE_MS,
        )
        self._connection = BlockingConnection(target, short, slot_key=self._keys.tag, loop=loop)
        self._turn = threading.Lock()
        self._seen: QueueDepths | None = None
        self._seen_at_s = float("-inf")

    def __repr__(self) -> str:
        """Show what was seen last."""
        return f"<Sampler {self._keys.name} {self._seen}>"

    def sample(self) -> QueueDepths | None:
        """The depths, a second old at most; None if the server did not tell in time."""
        with self._turn:
            if monotonic_s() - self._seen_at_s > _FRESH_S:
                try:
                    self._seen = drive_blocking(self._connection, backlog(self._keys, self._group))
                except ChasquiError as error:
                    self._seen = None
                    log.debug("the depths of queue %s are not known: %s", self._keys.name, error)
                self._seen_at_s = monotonic_s()
            return self._seen

    def close(self) -> None:
        """Drop the connection; a look under way ends."""
        self._connection.close()
