"""Who breaks things: picks faults from the table, by weight and seed, and plays some at a time."""

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import redis

from chaos.clocks import now_us
from chaos.faults import Fault
from chaos.history import Broke
from chaos.scene import Scene

# So many faults at a time, at most: more is an outage, and hides what each of them does.
_AT_ONCE = 3
_GAP_S = (0.1, 1.6)


class Nemesis:
    """Plays faults until it is told that it is enough."""

    def __init__(self, scene: Scene, faults: list[Fault], seed: int) -> None:
        """Nothing is broken before `run`."""
        self._scene = scene
        self._faults = faults
        self._seed = seed
        self._free = threading.Semaphore(_AT_ONCE)

    def run(self, seconds: float) -> None:
        """Break things for so long, and return when the last of them has been undone."""
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
        while time.monotonic() < deadline_s:
            time.sleep(chance.uniform(*_GAP_S))
            [fault] = chance.choices(self._faults, weights)
            while not self._free.acquire(timeout=0.5):
                self._scene.fleet.mend(self._scene.scroll)
            played.append(pool.submit(self._play, fault, f"{self._seed}:{len(played)}"))
            self._scene.fleet.mend(self._scene.scroll)

    def _play(self, fault: Fault, seed: str) -> None:
        began, is_done = now_us(), True
        try:
            detail = fault.play(self._scene, random.Random(seed))
        except (redis.RedisError, OSError, AssertionError) as error:
            # The server may be away because of another fault; what was begun is undone at the end.
            detail, is_done = f"{type(error).__name__}: {error}", False
        finally:
            self._free.release()
        self._scene.scroll.write(Broke(began, fault.name, detail, is_done))
