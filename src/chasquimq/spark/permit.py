"""The permit of a fleet: one driver at a time works under its consumers' names.

A lock with a time to live, which a thread of the driver renews. Slots look at it before they take
jobs. So a fleet stops taking jobs when its driver lets go of the permit, or a little after the
driver was killed; and what the next driver finds pending under the names is nobody's any more.
"""

import logging
import threading
import time
from types import TracebackType
from typing import Self

from chasquimq.broker import locks
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.clock import monotonic_s
from chasquimq.errors import ChasquiError, ConfigError
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.spark")

TTL_S = 10
"""How long the permit of a driver that was killed keeps others waiting."""
_RENEW_S = TTL_S / 4
_ASK_S = 0.2
# For the expiry of a lock, which the server rounds.
_GRACE_S = 2.0


class Permit:
    """Held between `__enter__` and `release`."""

    def __init__(self, connection: BlockingConnection, queue: str, fleet: str, holder: str) -> None:
        """`connection` may be shared; it is not closed here."""
        self._connection = connection
        self._queue = queue
        self._fleet = fleet
        self._lock = QueueKeys(queue).fleet(fleet)
        self._holder = holder
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        """Show whose it is."""
        return f"<Permit {self._fleet} on {self._queue}>"

    def __enter__(self) -> Self:
        """Wait for a driver that was killed to be forgotten; `ConfigError` if another lives."""
        deadline = monotonic_s() + TTL_S + _GRACE_S
        while not self._lead():
            if monotonic_s() > deadline:
                msg = (
                    f"fleet {self._fleet!r} of queue {self._queue!r} is run by another driver: "
                    "stop that one, or give this one another name"
                )
                raise ConfigError(msg)
            time.sleep(_ASK_S)
        self._thread = threading.Thread(target=self._keep, name="chasquimq-permit", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Let go of it."""
        self.release()

    def release(self) -> None:
        """Let go of it: slots take nothing more, and finish what they have. Idempotent."""
        self._is_over.set()
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        try:
            self._connection.run(locks.release(self._lock, self._holder))
        except ChasquiError as error:
            log.warning("the permit of fleet %s was not given back, and expires: %s",
                        self._fleet, error, extra={"queue": self._queue})  # fmt: skip

    def _lead(self) -> bool:
        return self._connection.run(locks.lead(self._lock, self._holder, TTL_S))

    def _keep(self) -> None:
        while not self._is_over.wait(_RENEW_S):
            try:
                if not self._lead():
                    log.warning("another driver has taken over fleet %s", self._fleet,
                                extra={"queue": self._queue})  # fmt: skip
            except ChasquiError as error:
                log.warning("the permit of fleet %s could not be renewed: %s", self._fleet,
                            error, extra={"queue": self._queue})  # fmt: skip
            except Exception:
                # Without this thread the fleet would take no job, and nobody would know why.
                log.exception("the permit of fleet %s could not be renewed; trying again",
                              self._fleet, extra={"queue": self._queue})  # fmt: skip
