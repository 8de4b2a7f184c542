"""Faults of processes: killed at a bad moment, frozen, blocked, stopped in good order."""

import random
import signal
import threading
from collections.abc import Callable

from chaos.clocks import now_us
from chaos.fleet import Actor
from chaos.history import Blocked, Cut, Died
from chaos.options import LEASE_MS
from chaos.scene import ORDER_S, FutileError, Scene
from chaos.stage import Single
from chaos.steps import acknowledgements

_LEASE_S = LEASE_MS / 1_000
# A leader's lock lives for five seconds.
_TERM_S = 5.0
_STOP_SECS = 40


def kill(*names: str) -> Callable[[Scene, random.Random], str]:
    """SIGKILL, at whatever moment."""

    def play(scene: Scene, chance: random.Random) -> str:
        actor = scene.someone(chance, *names)
        with actor.lock:
            _see(actor, is_there=actor.kill(scene.scroll))
        return actor.who

    return play


def kill_at(step: str) -> Callable[[Scene, random.Random], str]:
    """SIGKILL when the worker comes to a step."""

    def play(scene: Scene, chance: random.Random) -> str:
        actor = scene.someone(chance, "worker")
        who = actor.who
        return scene.ordered(
            actor,
            f"die {step}",
            lambda each: isinstance(each, Died) and (each.who, each.step) == (who, step),
        )

    return play


def kill_in_flush(part: float) -> Callable[[Scene, random.Random], str]:
    """SIGKILL when acknowledgements come by the proxy, of which this part gets to the server."""

    def play(scene: Scene, chance: random.Random) -> str:
        assert isinstance(scene.stage, Single)
        actor = scene.someone(chance, "worker")
        who, proxy = actor.who, scene.stage.proxies[actor.part.name]
        killed = threading.Event()

        def crash() -> None:
            if actor.kill(scene.scroll):
                killed.set()

        trap = proxy.trip(*acknowledgements(scene.keys.stream), then=crash, part=part)
        if not killed.wait(ORDER_S) and not (proxy.disarm(trap) and killed.is_set()):
            message = f"{who} acknowledged nothing"
            raise FutileError(message)
        return who

    return play


def freeze(*names: str) -> Callable[[Scene, random.Random], str]:
    """SIGSTOP for longer than a lease, and a lock; then SIGCONT, as if nothing had been."""

    def play(scene: Scene, chance: random.Random) -> str:
        actor = scene.someone(chance, *names)
        seconds = chance.uniform(0.5, 2) * max(_LEASE_S, _TERM_S)
        with actor.lock, scene.cutting(actor.who, "frozen"):
            _see(actor, is_there=actor.send(signal.SIGSTOP))
            scene.last(seconds)
            actor.send(signal.SIGCONT)
        return f"{actor.who} for {seconds:.1f} s"

    return play


def block_loop(scene: Scene, chance: random.Random) -> str:
    """A callback that keeps a worker's event loop for longer than its leases: no excuse."""
    actor = scene.someone(chance, "worker")
    who, seconds = actor.who, chance.uniform(0.5, 1.8) * _LEASE_S
    scene.ordered(
        actor, f"block {seconds}", lambda each: isinstance(each, Blocked) and each.who == who
    )
    return f"{who} for {seconds:.1f} s"


def stop(scene: Scene, chance: random.Random) -> str:
    """SIGTERM, as every deploy does. Plain handlers may run on after the deadline."""
    actor = scene.someone(chance, "worker")
    with actor.lock:
        who, began = actor.who, now_us()
        _see(actor, is_there=actor.send(signal.SIGTERM))
        if not actor.wait(_STOP_SECS):
            actor.kill(scene.scroll)
        scene.scroll.write(Cut(began, now_us(), who, "stopped"))
    return who


def _see(actor: Actor, *, is_there: bool) -> None:
    if not is_there:
        message = f"{actor.who} was gone"
        raise FutileError(message)
