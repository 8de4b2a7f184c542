"""The processes of a run: who they are, how they are started, what can be done to them."""

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from chaos.clocks import now_us
from chaos.history import Died, Scroll
from chaos.options import LEASE_MS, Options
from chaos.process import Orders

_END_SECS = 30
# Results are looked at when all is over, however long that took.
_KEPT_MS = 86_400_000
# Jobs a second, more than ever come: what is tried is the way in, not the wait.
_GENEROUS = 500
# Minutes, both ways; most clocks are right.
_SKEWS_MS = (0, 0, 0, 0, -180_000, -90_000, 60_000, 240_000)
# What producers do when the queue is full, which it is after every outage.
_LIMITS: tuple[dict[str, object], ...] = (
    {},
    {"max_stream_len": 300, "overflow": "reject"},
    {"max_stream_len": 300, "overflow": "wait", "overflow_timeout_ms": 3_000},
)


@dataclass(frozen=True, slots=True)
class Part:
    """A role that a process plays, under a name that survives the process."""

    name: str
    module: str
    settings: dict[str, object]


class Actor:
    """One part, played by one process after the other."""

    def __init__(self, part: Part, url: str, queue: str, *, folder: Path, seed: int) -> None:
        """Nothing is started yet. `lock` is held by whoever does something lasting to it."""
        self.part = part
        self.lock = threading.Lock()
        self.history = folder / f"{part.name}.jsonl"
        self._url = url
        self._queue = queue
        self._folder = folder
        self._seed = seed
        self._process: subprocess.Popen[bytes] | None = None
        self.generation = 0

    def __repr__(self) -> str:
        """Show which process plays it."""
        return f"<Actor {self.who} pid {self.pid}>"

    @property
    def who(self) -> str:
        """The process, as the history names it."""
        return f"{self.part.name}.{self.generation}"

    @property
    def pid(self) -> int | None:
        """Its process; None before the first start and after the end."""
        return self._process.pid if self._process else None

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, may_be_skewed: bool = True) -> None:
        """Start the next process of this part."""
        self._forget_process()
        self.generation += 1
        seed = f"{self._seed}:{self.who}"
        chance = random.Random(seed)
        settings = dict(self.part.settings)
        if "consumer_id" in settings and not settings["consumer_id"]:
            settings["consumer_id"] = self.who
        skew_ms = chance.choice(_SKEWS_MS) if may_be_skewed else 0
        orders = Orders(
            self.who,
            self._url,
            self._queue,
            str(self.history),
            seed,
            skew_ms,
            settings,
        )
        command = [sys.executable, "-m", self.part.module, json.dumps(asdict(orders))]
        with (self._folder / f"{self.part.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, scroll: Scroll) -> bool:
        """End it as a crash would; False if it was gone."""
        if self._process is None or not self.is_alive:
            return False
        scroll.write(Died(now_us(), self.who))
        self._process.kill()
        self._process.wait(_END_SECS)
        return True

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False if it is gone."""
        if self._process is None or not self.is_alive:
            return False
        self._process.send_signal(number)
        return True

    def order(self, line: str) -> None:
        """Tell it something; nothing happens if it is gone."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):  # closed by its end, or by who has seen that
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, or does so in time."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, scroll: Scroll) -> None:
        """Return when it has ended, as it was told to, or however it can be ended."""
        if not self.wait(_END_SECS):
            self.kill(scroll)
        self._forget_process()

    def _forget_process(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._process = None


class Fleet:
    """All actors of a run."""

    def __init__(
        self,
        parts: Iterable[Part],
        url_of: Callable[[str], str],
        *,
        queue: str,
        folder: Path,
        seed: int,
    ) -> None:
        """Cast the parts; `url_of` says by which way each reaches the server."""
        self._actors = [
            Actor(part, url_of(part.name), queue, folder=folder, seed=seed) for part in parts
        ]

    def __iter__(self) -> Iterator[Actor]:
        """Every actor."""
        return iter(self._actors)

    def of(self, *names: str) -> list[Actor]:
        """Those whose names begin so: `worker`, `producer`, `promoter`, `scheduler`."""
        return [actor for actor in self._actors if actor.part.name.startswith(names)]

    def mend(self, scroll: Scroll, *, may_be_skewed: bool = True) -> None:
        """Start those again that have ended, unless somebody is at work on them."""
        for actor in self._actors:
            if not actor.is_alive and actor.lock.acquire(blocking=False):
                try:
                    if actor.generation:
                        scroll.write(Died(now_us(), actor.who))
                    actor.start(may_be_skewed=may_be_skewed)
                finally:
                    actor.lock.release()

    def retire(self, scroll: Scroll, *names: str) -> None:
        """End those whose names begin so, and play their parts no more."""
        gone = self.of(*names)
        for actor in gone:
            actor.send(signal.SIGTERM)
        for actor in gone:
            actor.end(scroll)
        self._actors = [actor for actor in self._actors if actor not in gone]

    def close(self, scroll: Scroll) -> None:
        """End all."""
        self.retire(scroll, "")


def cast(options: Options) -> Iterator[Part]:
    """The parts of a run of chaos."""
    for number in range(1, options.producers + 1):
        settings = {"rate": options.rate, "plain": number % 3 == 2}
        limit = _LIMITS[number % len(_LIMITS)]
        yield Part(f"producer-{number}", "chaos.producer", settings | limit)
    for number in range(1, options.workers + 1):
        yield Part(f"worker-{number}", "chaos.worker", _worker(number))
    for leads in ("promoter", "scheduler"):
        yield Part(f"{leads}-1", "chaos.leader", {"leads": leads})


def _worker(number: int) -> dict[str, object]:
    """No two workers are alike: threads or not, few slots or many, a name for good or a new one.

    One takes jobs by way of the shared rate limit; one tells and keeps nothing, and acknowledges by
    the bare command where the server has it.
    """
    is_bare = number % 4 == 3
    limit = {"rate_limit_max": _GENEROUS} if number % 4 == 2 else {}
    return {
        "plain": number % 4 == 0,
        # A name that the next process of this part has again, as under an orchestrator that gives
        # stable names; or, if empty, one for each process.
        "consumer_id": f"steady-{number}" if number % 2 == 0 else "",
        "concurrency": (4, 12, 40)[number % 3],
        "claim_min_idle_ms": LEASE_MS,
        "read_block_ms": 500,
        "shutdown_deadline_secs": 3.0,
        "scheduler_tick_ms": 200,
        "store_results": not is_bare,
        "events_enabled": not is_bare,
        "result_ttl_ms": _KEPT_MS,
        **limit,
    }
