"""Faults of connections: reset, refused, mute, cut in the middle of a reply."""

import random
from collections.abc import Callable

from chaos.fleet import Actor
from chaos.history import Burst
from chaos.options import LEASE_MS
from chaos.scene import ORDER_S, FutileError, Scene
from chaos.stage import Single
from chaos.workload import burst_size
from chasquimq.broker import scripts
from tests.support.proxy import Proxy, Trap

# What each kind of process sends all the time, and what it is for; some have two ways to do it. Not
# what is sent now and then: a trap is set for seconds.
_SENT: dict[str, dict[str, tuple[bytes, ...]]] = {
    "worker": {
        "read": (b"XREADGROUP", scripts.TAKE.sha),
        "complete": (scripts.COMPLETE.sha, b"XACKDEL"),
        "retry": (scripts.RETRY.sha,),
        "promote": (scripts.PROMOTE.sha,),
        "renew": (scripts.RENEW.sha, scripts.CLAIM.sha),
    },
    "producer": {
        "add": (scripts.ADD.sha, scripts.ADD_UNIQUE.sha),
        "schedule": (scripts.SCHEDULE.sha,),
    },
    "promoter": {"promote": (scripts.PROMOTE.sha,)},
    "scheduler": {"fire": (scripts.FIRE.sha,), "lead": (scripts.LEAD.sha,)},
}


def reset(scene: Scene, chance: random.Random) -> str:
    """Every connection of one actor is reset. It costs nothing but a reconnect."""
    actor, proxy = _someone(scene, chance)
    if not proxy.cut():
        message = f"{actor.who} had no connection"
        raise FutileError(message)
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
    what, markers = _something_sent(actor, chance)
    return _sprung(actor, proxy, proxy.cut_before(*markers), what)


def truncate_answer(scene: Scene, chance: random.Random) -> str:
    """A connection breaks in the middle of an answer, or before it: the server has done it."""
    actor, proxy = _someone(scene, chance)
    what, markers = _something_sent(actor, chance)
    size = chance.randint(0, 60)
    trap = proxy.cut_after(*markers, answer_bytes=size)
    return _sprung(actor, proxy, trap, f"{what} after {size} bytes")


def cut_burst(scene: Scene, chance: random.Random) -> str:
    """A connection breaks while hundreds of adds are under way, which the server may have done."""
    # One with threads has no more calls under way than threads.
    actor = chance.choice(
        [each for each in scene.fleet.of("producer") if not each.part.settings.get("plain")]
    )
    proxy = _proxy(scene, actor)
    size = burst_size(chance)
    with actor.lock:
        proxy.hold_answers()
        try:
            order = f"burst {size}"
            who = scene.ordered(actor, order, lambda record: isinstance(record, Burst))
            scene.last(chance.uniform(0, 1))
            if not proxy.cut():
                message = f"{who} had no connection"
                raise FutileError(message)
        finally:
            proxy.pass_answers()
    return f"{who} amid {size}"


def _something_sent(actor: Actor, chance: random.Random) -> tuple[str, tuple[bytes, ...]]:
    """A purpose for which such a process talks to the server, and how that is known."""
    role, _, _ = actor.part.name.partition("-")
    return chance.choice(list(_SENT[role].items()))


def _sprung(actor: Actor, proxy: Proxy, trap: Trap, what: str) -> str:
    """Return when it was; `FutileError` if it is not in time, and then never."""
    who = actor.who
    if not trap.sprung.wait(ORDER_S) and not proxy.disarm(trap):
        message = f"{who} sent no {what}"
        raise FutileError(message)
    return f"{who} {what}"


def lasting(
    why: str, begin: Callable[[Proxy], None], end: Callable[[Proxy], None]
) -> Callable[[Scene, random.Random], str]:
    """Something that is wrong with one actor's connections for a while."""

    def play(scene: Scene, chance: random.Random) -> str:
        actor, proxy = _someone(scene, chance)
        # Mostly short, now and then longer than a lease.
        seconds = min(chance.expovariate(0.7), LEASE_MS / 1_000 * 2.5)
        with actor.lock, scene.cutting(actor.who, why):
            if not actor.is_alive:
                message = f"{actor.who} was gone"
                raise FutileError(message)
            begin(proxy)
            scene.last(seconds)
            end(proxy)
        return f"{actor.who} for {seconds:.1f} s"

    return play


def _someone(scene: Scene, chance: random.Random) -> tuple[Actor, Proxy]:
    actor = scene.someone(chance, "")
    return actor, _proxy(scene, actor)


def _proxy(scene: Scene, actor: Actor) -> Proxy:
    assert isinstance(scene.stage, Single)
    return scene.stage.proxies[actor.part.name]
