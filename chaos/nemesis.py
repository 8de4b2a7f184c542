"""Who breaks things: each fault until it was done once, then by weight and seed, some at a time."""

import random
import subprocess
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import redis

from chaos.clocks import now_us
from chaos.faults import Fault
from chaos.history import Broke
from chaos.scene import FutileError, Scene

# So many faults at a time, at most: more is an outage, and hides what each of them does.
_AT_ONCE = 3
_GAP_S = (0.1, 1.6)
# A short run on a slow machine goes on until every fault was done once; for so long, at most.
_OVERTIME_S = 180.0
_INSISTENCE = 0.3
_CAME_TO_NOTHING = (
    redis.RedisError, OSError, AssertionError, subprocess.SubprocessError, FutileError,
)  # fmt: skip


class Nemesis:
    """Plays faults until it is told that it is enough."""

    def __init__(self, scene: Scene, faults: list[Fault], seed: int) -> None:
        """Nothing is broken before `run`."""
        self._scene = scene
        self._faults = faults
        self._seed = seed
        self._free = threading.Semaphore(_AT_ONCE)
        self._undone = {fault.name for fault in faults}
        self._playing: set[str] = set()
        self._tried: set[str] = set()

    def run(self, seconds: float) -> None:
        """Break things for so long, and return when the last of them has been undone.

        It takes longer if the time is too short for every fault to be done once.
        """
        played: list[Future[None]] = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                self._break(pool, played, time.monotonic() + seconds)
            finally:
                self._scene.over.set()
        for each in played:
            each.result()  # a fault that is wrong itself proves nothing: it ends the run

    def _break(
        self, pool: ThreadPoolExecutor, played: list[Future[None]], deadline_s: float
    ) -> None:
        chance = random.Random(self._seed)
        weights = [fault.weight for fault in self._faults]
        while (left_s := deadline_s - time.monotonic()) > (-_OVERTIME_S if self._undone else 0):
            time.sleep(chance.uniform(*_GAP_S))
            # Each until it was done, so that no run goes without one; then as they come. One that
            # did not come off is not all that is tried from there on.
            owed = [fault for fault in self._faults if fault.name in self._undone - self._playing]
            untried = [fault for fault in owed if fault.name not in self._tried]
            if untried or (owed and (left_s <= 0 or chance.random() < _INSISTENCE)):
                fault = chance.choice(untried or owed)
            elif left_s > 0:
                [fault] = chance.choices(self._faults, weights)
            else:
                continue  # only those are owed that are being played
            self._playing.add(fault.name)
            self._tried.add(fault.name)
            while not self._free.acquire(timeout=0.5):
                self._scene.fleet.mend(self._scene.scroll)
            played.append(pool.submit(self._play, fault, f"{self._seed}:{len(played)}"))
            self._scene.fleet.mend(self._scene.scroll)

    def _play(self, fault: Fault, seed: str) -> None:
        began, is_done = now_us(), True
        try:
            detail = fault.play(self._scene, random.Random(seed))
            self._undone.discard(fault.name)
        except _CAME_TO_NOTHING as error:
            # The server may be away because of another fault, a process slow to end on a machine
            # that is busy; what was begun is undone at the end.
            detail, is_done = f"{type(error).__name__}: {error}", False
        finally:
            self._playing.discard(fault.name)
            self._free.release()
        self._scene.scroll.write(Broke(began, fault.name, detail, is_done))
