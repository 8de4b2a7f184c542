"""The use that one connection has of its embedded server."""

import threading

from chasquimq.broker import embedded
from chasquimq.broker.embedded import EmbeddedServer


class EmbeddedUse:
    """At most one use at a time; renewed by every reconnect, which starts a crashed server anew.

    Both calls can block and are safe in any thread.
    """

    def __init__(self, directory: str | None) -> None:
        """Nothing is started yet."""
        self._directory = directory
        self._lock = threading.Lock()
        self._server: EmbeddedServer | None = None

    def renew(self) -> str:
        """The path of the socket of a server that answers."""
        with self._lock:
            earlier, self._server = self._server, embedded.acquire(self._directory)
            if earlier is not None:
                earlier.release()
            return self._server.socket_path

    def end(self) -> None:
        """Let go of the server; waits for a `renew` under way, so that none is forgotten."""
        with self._lock:
            server, self._server = self._server, None
            if server is not None:
                server.release()
