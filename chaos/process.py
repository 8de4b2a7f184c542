"""What every process of a run has in common: its orders, its clock, its scroll, and its own pulse.

A process that stands still as a whole is what the promises except: so each one watches itself, and
writes down when the machine, or the nemesis, gave it no time.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import clocks
from chaos.history import Born, Cut, Died, Scroll

_PULSE_S = 0.1
# Less is what a machine with more processes than cores does all the time.
STANDSTILL_US = 400_000


@dataclass(frozen=True, slots=True)
class Orders:
    """What a process is started with."""

    who: str
    url: str
    queue: str
    history: str
    seed: str
    skew_ms: int = 0
    settings: dict[str, Any] | None = None

    @classmethod
    def given(cls) -> "Orders":
        """Those of this process, from its command line."""
        return cls(**json.loads(sys.argv[1]))


class Life:
    """This process, as the history sees it."""

    def __init__(self, orders: Orders) -> None:
        """Set the clock wrong if ordered, and begin to watch the pulse."""
        self.who = orders.who
        clocks.skew(orders.skew_ms)
        self.scroll = Scroll(Path(orders.history))
        threading.Thread(target=watch_pulse, args=(self.scroll, self.who), daemon=True).start()

    def begin(self, holder: str = "", *, keeps_results: bool = True) -> None:
        """Write down how wrong the clock is, and who holds the scheduler's lock if it ever does."""
        skew_ms = clocks.wrong_by_ms()
        self.scroll.write(Born(clocks.now_us(), self.who, holder, skew_ms, keeps_results))

    def die(self, step: str = "") -> None:
        """End as a crash would, having written down that it comes, and at which step."""
        self.scroll.write(Died(clocks.now_us(), self.who, step))
        os.kill(os.getpid(), signal.SIGKILL)

    def obey(self, obey: Callable[[str], None]) -> None:
        """Hand every line of the standard input to `obey`; its end is the end of this process.

        So nothing of a run outlives the program that started it, however that ends.
        """

        def listen() -> None:
            for line in sys.stdin:
                obey(line.strip())
            os._exit(3)

        threading.Thread(target=listen, daemon=True).start()


def watch_pulse(scroll: Scroll, who: str, stop: threading.Event | None = None) -> None:
    """Write down, without end or until `stop`, when this process stood still."""
    while stop is None or not stop.is_set():
        before = clocks.now_us()
        time.sleep(_PULSE_S)
        after = clocks.now_us()
        if after - before > STANDSTILL_US:
            scroll.write(Cut(before, after, who, "stood still"))
