"""Writes down when the server could not be reached, whatever the reason: for everybody's excuse."""

import threading
from typing import Self

from chaos.clocks import now_us
from chaos.history import EVERYBODY, Cut, Scroll
from chaos.process import STANDSTILL_US, watch_pulse
from chaos.stage import Stage

_LOOK_S = 0.1


class Watch:
    """Two threads: one asks the server again and again, one sees whether this process gets time.

    The proxies live in this process: when it stands still, so does everybody's network.
    """

    def __init__(self, stage: Stage, scroll: Scroll) -> None:
        """Nothing is watched before `with`."""
        self._stage = stage
        self._scroll = scroll
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, daemon=True),
            threading.Thread(target=watch_pulse, args=(scroll, EVERYBODY, self._stop), daemon=True),
        ]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        seen = now_us()
        while not self._stop.wait(_LOOK_S):
            if self._stage.is_up():
                now = now_us()
                if now - seen > STANDSTILL_US:
                    self._scroll.write(Cut(seen, now, EVERYBODY, "server away"))
                seen = now
