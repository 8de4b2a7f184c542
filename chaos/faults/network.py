"""Faults of connections: reset, refused, mute, cut in the middle of a reply."""

import random
from collections.abc import Callable

from chaos.fleet import Actor
from chaos.options import LEASE_MS
from chaos.scene import Scene
from chaos.stage import Single
from tests.support.proxy import Proxy

_MARKERS = (b"EVALSHA", b"XREADGROUP", b"XADD", b"EVALSHA", b"XCLAIM", b"SCRIPT")


def reset(scene: Scene, chance: random.Random) -> str:
    """Every connection of one actor is reset. It costs nothing but a reconnect."""
    actor, proxy = _someone(scene, chance)
    proxy.cut()
    return actor.who


def reset_everybody(scene: Scene, chance: random.Random) -> str:
    """The server drops all its clients, some times."""
    times = chance.randint(1, 5)
    with scene.server():
        for _ in range(times):
            scene.stage.run("CLIENT", "KILL", "TYPE", "normal")
            scene.last(chance.uniform(0, 0.3))
    return f"{times} times"


def lose_request(scene: Scene, chance: random.Random) -> str:
    """A connection breaks under a request, which never arrives."""
    actor, proxy = _someone(scene, chance)
    marker = chance.choice(_MARKERS)
    proxy.cut_before(marker)
    return f"{actor.who} {marker.decode()}"


def truncate_answer(scene: Scene, chance: random.Random) -> str:
    """A connection breaks in the middle of an answer, or before it: the server has done it."""
    actor, proxy = _someone(scene, chance)
    marker, size = chance.choice(_MARKERS), chance.randint(0, 60)
    proxy.cut_after(marker, answer_bytes=size)
    return f"{actor.who} {marker.decode()} after {size} bytes"


def lasting(
    why: str, begin: Callable[[Proxy], None], end: Callable[[Proxy], None]
) -> Callable[[Scene, random.Random], str]:
    """Something that is wrong with one actor's connections for a while."""

    def play(scene: Scene, chance: random.Random) -> str:
        actor, proxy = _someone(scene, chance)
        # Mostly short, now and then longer than a lease.
        seconds = min(chance.expovariate(0.7), LEASE_MS / 1_000 * 2.5)
        with actor.lock, scene.cutting(actor.who, why):
            begin(proxy)
            scene.last(seconds)
            end(proxy)
        return f"{actor.who} for {seconds:.1f} s"

    return play


def _someone(scene: Scene, chance: random.Random) -> tuple[Actor, Proxy]:
    assert isinstance(scene.stage, Single)
    actor = scene.someone(chance, "")
    return actor, scene.stage.proxies[actor.part.name]
