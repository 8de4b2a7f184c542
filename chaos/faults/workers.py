"""Faults of processes: killed at a bad moment, frozen, blocked, stopped in good order."""

import random
import signal
from collections.abc import Callable

from chaos.clocks import now_us
from chaos.history import Cut
from chaos.options import LEASE_MS
from chaos.scene import Scene
from chaos.stage import Single
from chasquimq.broker import scripts

_LEASE_S = LEASE_MS / 1_000
# A leader's lock lives for five seconds.
_TERM_S = 5.0
_STOP_SECS = 40


def kill(*names: str) -> Callable[[Scene, random.Random], str]:
    """SIGKILL, at whatever moment."""

    def play(scene: Scene, chance: random.Random) -> str:
        actor = scene.someone(chance, *names)
        with actor.lock:
            actor.kill(scene.scroll)
        return actor.who

    return play


def kill_at(step: str) -> Callable[[Scene, random.Random], str]:
    """SIGKILL when the worker comes to a step."""

    def play(scene: Scene, chance: random.Random) -> str:
        actor = scene.someone(chance, "worker")
        actor.order(f"die {step}")
        return actor.who

    return play


def kill_in_flush(part: float) -> Callable[[Scene, random.Random], str]:
    """SIGKILL when acknowledgements come by the proxy, of which this part gets to the server."""

    def play(scene: Scene, chance: random.Random) -> str:
        assert isinstance(scene.stage, Single)
        actor = scene.someone(chance, "worker")
        proxy = scene.stage.proxies[actor.part.name]
        proxy.trip(scripts.COMPLETE.sha, lambda: actor.kill(scene.scroll), part=part)
        return actor.who

    return play


def freeze(*names: str) -> Callable[[Scene, random.Random], str]:
    """SIGSTOP for longer than a lease, and a lock; then SIGCONT, as if nothing had been."""

    def play(scene: Scene, chance: random.Random) -> str:
        actor = scene.someone(chance, *names)
        seconds = chance.uniform(0.5, 2) * max(_LEASE_S, _TERM_S)
        with actor.lock, scene.cutting(actor.who, "frozen"):
            actor.send(signal.SIGSTOP)
            scene.last(seconds)
            actor.send(signal.SIGCONT)
        return f"{actor.who} for {seconds:.1f} s"

    return play


def block_loop(scene: Scene, chance: random.Random) -> str:
    """A callback that keeps a worker's event loop for longer than its leases: no excuse."""
    actor = scene.someone(chance, "worker")
    seconds = chance.uniform(0.5, 1.8) * _LEASE_S
    actor.order(f"block {seconds}")
    return f"{actor.who} for {seconds:.1f} s"


def stop(scene: Scene, chance: random.Random) -> str:
    """SIGTERM, as every deploy does. Plain handlers may run on after the deadline."""
    actor = scene.someone(chance, "worker")
    with actor.lock:
        who, began = actor.who, now_us()
        actor.send(signal.SIGTERM)
        if not actor.wait(_STOP_SECS):
            actor.kill(scene.scroll)
        scene.scroll.write(Cut(began, now_us(), who, "stopped"))
    return who
