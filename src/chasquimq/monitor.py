"""`Monitor`: serves `/metrics`, `/healthz` and `/readyz` of one worker from threads of its own.

Threads, because the question whether the event loop is blocked must be answered while it is. They
read plain numbers of the worker and never wait for it, except for one turn of the loop, for a
second at most.
"""

import asyncio
import json
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import Target
from chasquimq.clock import SYSTEM_CLOCK, monotonic_s
from chasquimq.config import ConsumerConfig
from chasquimq.engine.pulse import Vitals
from chasquimq.errors import ConfigError
from chasquimq.health import READ_GRACE_MS, Answer, Standing, health, readiness
from chasquimq.metrics import NO_METRICS, CompositeSink, MetricsSink
from chasquimq.sampling import Sampler

if TYPE_CHECKING:
    from chasquimq.prometheus import PrometheusSink

log = logging.getLogger("chasquimq.metrics")

# An event loop that takes longer for one turn is blocked, for all that its jobs can tell.
_LOOP_PATIENCE_S = 1.0
# Of a client that sends nothing, or takes nothing.
_CLIENT_PATIENCE_S = 10.0
_HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Watched:
    """What the monitor wants to know of a worker; asked from other threads."""

    config: ConsumerConfig
    target: Target
    options: ConnectionOptions
    vitals: Callable[[], Vitals | None]
    is_stopping: Callable[[], bool]
    is_paused: Callable[[], bool] = bool
    is_held: Callable[[], bool] = bool
    """Whether a rate limit keeps it from reading."""


class Monitor:
    """One HTTP server for one worker. It listens from `start` to `end`, and may start again."""

    def __init__(self, host: str, port: int, *, queue: str, metrics: MetricsSink | None) -> None:
        """Choose the sink; nothing listens yet. Port 0 is any free one."""
        _check(host, port)
        self._host = host
        self._port = port
        self._own, self.sink = _sinks(queue, metrics)
        self._server: _Server | None = None
        self._watched: Watched | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sampler: Sampler | None = None

    def __repr__(self) -> str:
        """Show where it listens."""
        return f"<Monitor {self.address or 'not listening'}>"

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, while it listens."""
        if self._server is None:
            return None
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self, watched: Watched) -> None:
        """Listen; a port that cannot be had is a `ConfigError`. Needs a running event loop."""
        self._watched = watched
        self._loop = asyncio.get_running_loop()
        try:
            server = _Server(self, self._host, self._port)
        except (OSError, OverflowError) as error:
            msg = (
                f"metrics_port {self._port} on {self._host} cannot be used: {error}; choose "
                "another, or 0 for any free one"
            )
            raise ConfigError(msg) from error
        self._sampler = Sampler(
            watched.target,
            watched.options,
            queue=watched.config.queue_name,
            group=watched.config.group,
            loop=self._loop,
        )
        self._server = server
        name = f"chasquimq-monitor-{watched.config.consumer_id}"
        threading.Thread(target=server.serve_forever, args=(0.1,), name=name, daemon=True).start()
        log.info("metrics of queue %s at http://%s:%d/metrics", watched.config.queue_name,
                 *self.address or ("", 0))  # fmt: skip

    async def end(self) -> None:
        """Stop listening; the port is free when this returns. Harmless if nothing listens."""
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.end)
        if self._sampler is not None:
            await asyncio.to_thread(self._sampler.close)

    def metrics(self, accept: str) -> tuple[str, bytes]:
        """The text of a scrape, and its type. Depths are left out if the server does not tell."""
        from chasquimq.prometheus import exposition  # noqa: PLC0415 -- an optional extra

        self._pulse()
        depths = self._sampler.sample() if self._sampler else None
        if depths is None:
            self._own.forget_depths()
        else:
            self._own.queue_depths(depths)
        return exposition(self._own.registry, accept)

    def _pulse(self) -> None:
        """Let a scrape see this moment, not the last second; a stopping worker has the last word.

        Only our own sink may be told from this thread.
        """
        watched = self._watched
        vitals = watched.vitals() if watched and not watched.is_stopping() else None
        if watched and vitals:
            now_ms = SYSTEM_CLOCK.now_ms()
            self._own.worker_pulse(vitals.pulse(watched.config.consumer_id, now_ms))

    def standing(self) -> Standing:
        """How the worker stands now."""
        watched = self._watched
        assert watched is not None  # noqa: S101 -- nobody asks before `start`
        config = watched.config
        return Standing(
            queue=config.queue_name,
            consumer_id=config.consumer_id,
            loop_lag_ms=self._loop_lag_ms(),
            vitals=watched.vitals(),
            read_bound_ms=config.longest_read_ms + READ_GRACE_MS,
            is_stopping=watched.is_stopping(),
            is_paused=watched.is_paused(),
            is_held=watched.is_held(),
        )

    def _loop_lag_ms(self) -> int | None:
        turned, asked_s = threading.Event(), monotonic_s()
        assert self._loop is not None  # noqa: S101 -- nobody asks before `start`
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:
            return None  # the loop is closed
        if not turned.wait(_LOOP_PATIENCE_S):
            return None
        return round((monotonic_s() - asked_s) * 1_000)


def monitor(
    host: str, port: int | None, *, queue: str, metrics: MetricsSink | None
) -> Monitor | None:
    """The monitor of a worker; None without a port."""
    return None if port is None else Monitor(host, port, queue=queue, metrics=metrics)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, monitor: Monitor, host: str, port: int) -> None:
        self.monitor = monitor
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without the look into the DNS that the base class takes for a name nobody uses."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that hangs up early is not worth the traceback that the base class prints."""
        log.debug("a client hung up: %r", sys.exception())

    def end(self) -> None:
        """Stop serving and free the port."""
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "chasquimq"
    sys_version = ""
    timeout = _CLIENT_PATIENCE_S

    def do_GET(self) -> None:
        """Answer one of three questions; a collector of the user's that fails is a 500."""
        try:
            self._answer(self.path.partition("?")[0])
        except OSError:
            raise  # the client is gone
        except Exception as error:
            log.exception("%s could not be answered", self.path)
            body: dict[str, object] = {"status": "error", "why": f"{type(error).__name__}: {error}"}
            self._tell(Answer(HTTPStatus.INTERNAL_SERVER_ERROR, body))

    def _answer(self, path: str) -> None:
        monitor = self.server.monitor
        match path:
            case "/metrics":
                self._send(HTTPStatus.OK, *monitor.metrics(self.headers.get("Accept", "")))
            case "/healthz":
                self._tell(health(monitor.standing()))
            case "/readyz":
                self._tell(readiness(monitor.standing()))
            case _:
                known = ["/metrics", "/healthz", "/readyz"]
                self._tell(Answer(HTTPStatus.NOT_FOUND, {"status": "not found", "paths": known}))

    do_HEAD = do_GET  # noqa: N815 -- the name that the base class looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- of the base class
        """Leave the log to the worker: probes come every few seconds."""
        log.debug(format, *args)

    def _tell(self, answer: Answer) -> None:
        text = json.dumps(answer.body, indent=2) + "\n"
        self._send(answer.status, "application/json", text.encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _check(host: str, port: int) -> None:
    is_port = isinstance(port, int) and not isinstance(port, bool)
    if not is_port or not 0 <= port <= _HIGHEST_PORT:
        msg = f"metrics_port is {port!r}: use a number from 0 (any free port) to {_HIGHEST_PORT}"
        raise ConfigError(msg)
    if not isinstance(host, str) or not host:
        msg = f"metrics_host is {host!r}: use an address such as 127.0.0.1, or 0.0.0.0 for all"
        raise ConfigError(msg)


def _sinks(queue: str, metrics: MetricsSink | None) -> "tuple[PrometheusSink, MetricsSink]":
    """The sink whose registry is served, and the one that the engine reports to.

    A `PrometheusSink` of the user's is served as it is, with whatever else its registry holds.
    """
    from chasquimq.prometheus import PrometheusSink, own_registry  # noqa: PLC0415 -- an extra

    given = metrics.sinks if isinstance(metrics, CompositeSink) else (metrics,)
    for each in given:
        if isinstance(each, PrometheusSink):
            return each, metrics or each
    own = PrometheusSink(queue, registry=own_registry())
    if metrics is None or metrics is NO_METRICS:
        return own, own
    return own, CompositeSink(metrics, own)
