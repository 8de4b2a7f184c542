"""One process of several: does what its supervisor orders, and ends when that is gone.

Both talk over a socket, one JSON value a line. The first line from above is the settings, so that a
password is in no command line and no environment. The socket is also the leash: however the
supervisor ends, `kill -9` included, the kernel closes its side, and the child drains.
Signals are not used for orders, because whoever signals a whole group of processes (a service
manager, Ctrl+C) would make every order the second one, which cuts jobs off.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from chasquimq.cli import logs
from chasquimq.cli.loading import LoadError
from chasquimq.cli.problems import exit_code_of
from chasquimq.cli.serving import Ending, HeldUp, Ready, Settings, Shift
from chasquimq.config import ConsumerConfig
from chasquimq.loops import run_on_loop

GO = "go"
STOP = "stop"
CUT = "cut"

log = logging.getLogger("chasquimq.worker")

# Beyond the time that running jobs get: for what is written at the end.
GRACE_S = 15.0


class Leash:
    """The child's end of the socket: orders in, news out."""

    def __init__(self, link: socket.socket) -> None:
        """Take over `link`, which no process started or forked from here shall hold open."""
        link.set_inheritable(False)
        os.register_at_fork(after_in_child=self._let_go)
        self._link = link
        self._lines = link.makefile("r", encoding="utf-8")
        self._mutex = threading.Lock()
        # Below: under the mutex.
        self._waiting: list[str] = []
        self._deliver: Callable[[str], None] | None = None

    def settings(self) -> Settings:
        """The first line."""
        return Settings(**json.loads(self._lines.readline()))

    def hold(self, patience_s: float) -> None:
        """Listen in a thread; without a supervisor the process ends after `patience_s`, at most."""
        threading.Thread(target=self._listen, args=(patience_s,), daemon=True).start()

    def attach(self, deliver: Callable[[str], None]) -> None:
        """Let `deliver` be called in the listening thread for each order, those so far at once."""
        with self._mutex:
            self._deliver = deliver
            waiting, self._waiting = self._waiting, []
            for order in waiting:
                deliver(order)

    def tell(self, **news: Any) -> None:  # noqa: ANN401 -- JSON
        """Send a line up; whoever is not there any more misses it."""
        with suppress(OSError):
            self._link.sendall(json.dumps(news).encode() + b"\n")

    def _let_go(self) -> None:
        # Detached, not closed: the file of lines is locked for ever by the thread that listens,
        # which a fork does not copy.
        with suppress(OSError):
            os.close(self._link.detach())

    def _listen(self, patience_s: float) -> None:
        with suppress(OSError):
            for line in self._lines:
                self._take(line.strip())
        log.warning("the supervisor is gone: finishing running jobs and ending")
        self._take(STOP)
        # A handler that blocks the event loop for ever would outlive everybody.
        threading.Event().wait(patience_s)
        os.kill(os.getpid(), signal.SIGKILL)

    def _take(self, order: str) -> None:
        with self._mutex:
            if self._deliver is None:
                self._waiting.append(order)
            else:
                self._deliver(order)


def main() -> int:
    """Run a process of the supervisor whose socket is the descriptor in `sys.argv`."""
    leash = Leash(socket.socket(fileno=int(sys.argv[1])))
    settings = leash.settings()
    logs.set_up(settings.log_level, as_json=settings.as_json)
    deadline_s = settings.options.get("shutdown_deadline_secs")
    leash.hold(GRACE_S + (deadline_s or ConsumerConfig().shutdown_deadline_secs))
    try:
        run_on_loop(_work(settings, leash), use_uvloop=settings.use_uvloop)
    except HeldUp as error:
        leash.tell(ending=Ending.HELD)
        return exit_code_of(error)
    except LoadError as error:
        sys.stderr.write(error.details)
        return exit_code_of(error)
    except BaseException as error:  # noqa: BLE001 -- all that is no mistake of a user is raised again
        return exit_code_of(error)
    return 0


async def _work(settings: Settings, leash: Leash) -> None:
    shift = Shift(settings)
    ready: Ready = await shift.check()
    loop = asyncio.get_running_loop()
    orders = asyncio.Queue[str]()

    def deliver(order: str) -> None:
        with suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(orders.put_nowait, order)

    is_ordered = asyncio.Event()
    obeying = loop.create_task(_obey(shift, orders, is_ordered))
    leash.attach(deliver)
    leash.tell(ready=asdict(ready))
    # Not a line before the supervisor's banner; one that is gone orders too, to stop.
    await is_ordered.wait()
    try:
        ending = await shift.run()
    finally:
        obeying.cancel()
    leash.tell(ending=ending, runs=shift.runs)


async def _obey(shift: Shift, orders: "asyncio.Queue[str]", is_ordered: asyncio.Event) -> None:
    while True:
        order = await orders.get()
        is_ordered.set()
        if order == CUT:
            await shift.cut()
        elif order == STOP:
            shift.end(Ending.STOPPED)


if __name__ == "__main__":
    sys.exit(main())
