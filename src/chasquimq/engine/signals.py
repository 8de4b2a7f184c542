"""Turns SIGTERM and SIGINT into a stop, for every worker of an event loop.

A process has one handler for a signal, and may have several workers: they share it. What handled
the signal before is put back when the last of them has ended.
"""

import asyncio
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TypeAlias

Receiver: TypeAlias = Callable[[signal.Signals], None]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def catch(receiver: Receiver) -> Callable[[], None]:
    """Let `receiver` be called, on the running loop, for each signal; returns what undoes it.

    Python delivers signals to its main thread only: elsewhere nothing is caught.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    loop = asyncio.get_running_loop()
    catcher = _catchers.get(loop)
    if catcher is None:
        catcher = _catchers[loop] = _Catcher(loop)
    catcher.add(receiver)
    return lambda: catcher.remove(receiver)


class _Catcher:
    """The signals of one event loop, and who wants to be told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._receivers: list[Receiver] = []
        self._before: dict[signal.Signals, _Handling] = {}

    def add(self, receiver: Receiver) -> None:
        self._receivers.append(receiver)
        loop = self._loop()
        if len(self._receivers) > 1 or loop is None:
            return
        for number in _SIGNALS:
            before = signal.getsignal(number)
            try:
                loop.add_signal_handler(number, self._deliver, number)
            except (NotImplementedError, RuntimeError, ValueError):
                continue  # not every loop or platform has this
            self._before[number] = before

    def remove(self, receiver: Receiver) -> None:
        if receiver in self._receivers:
            self._receivers.remove(receiver)
        loop = self._loop()
        if self._receivers or loop is None:
            return
        while self._before:
            number, before = self._before.popitem()
            loop.remove_signal_handler(number)
            if before is not None:  # None: it was not set from Python, and cannot be
                signal.signal(number, before)

    def _deliver(self, number: signal.Signals) -> None:
        for receiver in list(self._receivers):
            receiver(number)


_Handling: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None
_catchers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Catcher] = (
    weakref.WeakKeyDictionary()
)
