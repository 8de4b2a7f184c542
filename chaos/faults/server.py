"""Faults of the server: killed, frozen, out of memory, forgetful; and a queue that is paused."""

import random
import time
from collections.abc import Callable

import redis

from chaos.clocks import now_us
from chaos.history import EVERYBODY, Forgotten, Paused, Starved
from chaos.options import LEASE_MS
from chaos.scene import FutileError, Scene

_LEASE_S = LEASE_MS / 1_000
# Of faults of memory: how many fill it, how far it is from full, in which steps it is filled, and
# how often what became free is taken again.
_FILLED = 0.8
_ROOM = 1 << 20
_CHUNK = 16 << 10
_MOST_CHUNKS = 1_000
_REFILL_S = 0.05


def kill_and_restart(scene: Scene, chance: random.Random) -> str:
    """SIGKILL, and another start from the append-only file."""
    seconds = chance.uniform(0, 1.5 * _LEASE_S)
    with scene.server(), scene.cutting(EVERYBODY, "server killed"):
        server = scene.stage.primary()
        server.kill()
        scene.last(seconds)
        server.restart()
    return f"away for {seconds:.1f} s"


def freeze(scene: Scene, chance: random.Random) -> str:
    """SIGSTOP: connections stay open, and nothing answers."""
    seconds = chance.uniform(0.2, 1.5 * _LEASE_S)
    with scene.server(), scene.cutting(EVERYBODY, "server frozen"):
        server = scene.stage.primary()
        server.pause()
        scene.last(seconds)
        server.resume()
    return f"for {seconds:.1f} s"


def flush_scripts(scene: Scene, chance: random.Random) -> str:
    """SCRIPT FLUSH, some times in a row."""
    times = chance.randint(1, 4)
    with scene.server():
        for _ in range(times):
            scene.stage.run("SCRIPT", "FLUSH")
            scene.last(chance.uniform(0, 0.1))
    return f"{times} times"


def destroy_group(scene: Scene, chance: random.Random) -> str:  # noqa: ARG001
    """XGROUP DESTROY: every delivery is forgotten, and how many there were; no job is."""
    with scene.server():
        scene.scroll.write(Forgotten(now_us(), "group destroyed"))
        if not scene.stage.run("XGROUP", "DESTROY", scene.keys.stream, "default"):
            message = "there was no group"
            raise FutileError(message)
    return "with all its deliveries"


def exhaust_memory(scene: Scene, chance: random.Random) -> str:
    """Memory is filled up to `maxmemory`, and what becomes free is filled again, for a while.

    So what needs memory is refused most of the time, and not always: jobs that end make room. Now
    and then `maxmemory` is lowered below what is in use instead, and nothing makes room enough.
    """
    seconds = chance.uniform(0.3, 1.2 * _LEASE_S)
    ballast = scene.keys.stream + b":ballast"
    with scene.server():
        server, began = scene.stage.primary(), now_us()
        try:
            if chance.random() < _FILLED:
                used: int = server.client().info("memory")["used_memory"]
                scene.stage.run("CONFIG", "SET", "maxmemory", used + _ROOM)
                how = f"{_keep_full(scene, ballast, seconds) * _CHUNK >> 10} KiB"
            else:
                scene.stage.run("CONFIG", "SET", "maxmemory", 1)
                how = "lowered"
                scene.last(seconds)
        finally:
            _insist(scene, lambda: server.client().config_set("maxmemory", "0"))
            # Wherever the queue is by now: one that is a replica since then keeps what it has.
            _insist(scene, lambda: scene.stage.run("DEL", ballast))
            scene.scroll.write(Starved(began, now_us()))
    return f"{how} for {seconds:.1f} s"


def _keep_full(scene: Scene, key: bytes, seconds: float) -> int:
    """Fill it, and what becomes free again for so long; how many chunks it took in all."""
    chunks, until = _fill(scene, key), time.monotonic() + seconds
    while time.monotonic() < until and not scene.over.is_set():
        scene.last(_REFILL_S)
        chunks += _fill(scene, key)
    return chunks


def _fill(scene: Scene, key: bytes) -> int:
    """Write until the server has no more memory to give; how many chunks it took."""
    for chunks in range(_MOST_CHUNKS):
        try:
            scene.stage.run("RPUSH", key, b"x" * _CHUNK)
        except redis.OutOfMemoryError:
            return chunks
    message = f"{_MOST_CHUNKS * _CHUNK >> 20} MiB did not fill it"
    raise FutileError(message)


def pause_queue(scene: Scene, chance: random.Random) -> str:
    """The queue is paused, as `Queue.pause` does it, and resumed."""
    seconds, asked = chance.uniform(0.1, 3), now_us()
    scene.stage.run("SET", scene.keys.paused, "1")
    began = now_us()
    scene.last(seconds)
    until = now_us()
    _insist(scene, lambda: scene.stage.run("DEL", scene.keys.paused))
    scene.scroll.write(Paused(began, until, asked, now_us()))
    return f"for {seconds:.1f} s"


def _insist(scene: Scene, undo: Callable[[], object]) -> None:
    """Undo a fault, until it is done: what it breaks for good it excuses for good."""
    while True:
        try:
            undo()
        except (redis.RedisError, ValueError, AssertionError):  # nobody says who the primary is
            scene.last(0.1)
        else:
            return
