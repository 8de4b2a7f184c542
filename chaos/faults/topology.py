"""Faults of several servers: a failover in good order, a primary that dies, a slot that moves."""

import random
from collections.abc import Callable

import redis

from chaos.clocks import now_us
from chaos.history import EVERYBODY, Forgotten
from chaos.scene import Scene
from chaos.stage import Spread, Watched
from tests.support.eventually import eventually_sync
from tests.support.servers import Server

_SETTLE_SECS = 60
_MORE_THAN_THERE_ARE = 9


def fail_over(scene: Scene, chance: random.Random) -> str:  # noqa: ARG001
    """Primary and replica change places when the replica has everything: nothing may be lost."""
    stage = scene.stage
    assert isinstance(stage, Watched)
    with scene.server(), scene.cutting(EVERYBODY, "failover"):
        primary, replica = stage.primary(), stage.replica()
        client, began = primary.client(), now_us()
        # No write is acknowledged from here on, and the replica gets those that were. Not by
        # CLIENT PAUSE: that makes the sentinel's own connection wait, and the primary look dead.
        client.config_set("min-replicas-to-write", _MORE_THAN_THERE_ARE)
        try:
            _catch_up(primary, replica)
            stage.sentinel.fail_over()
            stage.until_in_step()
        except AssertionError:
            # It may yet come, after writes that are about to be acknowledged again.
            scene.scroll.write(Forgotten(now_us(), "failover in limbo", since_us=began))
            raise
        finally:
            client.config_set("min-replicas-to-write", 1)
    return f"to port {replica.port}"


def crash_primary(scene: Scene, chance: random.Random) -> str:  # noqa: ARG001
    """SIGKILL to the primary: what its replica did not have is lost, and written down as such.

    Replication is asynchronous, and no queue can make more of it. What the replica is known to have
    had is not excused.
    """
    stage = scene.stage
    assert isinstance(stage, Watched)
    with scene.server(), scene.cutting(EVERYBODY, "primary killed"):
        primary, replica = stage.primary(), stage.replica()
        since_us = now_us()
        _catch_up(primary, replica)
        scene.scroll.write(Forgotten(now_us(), "primary killed", since_us=since_us))
        primary.kill()
        eventually_sync(lambda: stage.primary() is replica and stage.is_up(), _SETTLE_SECS)
        primary.restart()
        stage.until_in_step()
        if stage.primary() is not replica:
            scene.scroll.write(Forgotten(now_us(), "sentinel went back", since_us=since_us))
    return f"to port {replica.port}"


def move_slot(scene: Scene, chance: random.Random) -> str:
    """The queue's slot moves to the other node, key by key, while it is used."""
    stage = scene.stage
    assert isinstance(stage, Spread)
    with scene.server():
        # A node that was away a moment ago may not be believed yet; and a move that was begun has
        # to be ended, or no script finds all its keys ever again.
        eventually_sync(stage.is_up, _SETTLE_SECS)
        # No script finds all its keys meanwhile, on a busy machine for longer than a lease.
        with scene.cutting(EVERYBODY, "slot moving"):
            move = stage.cluster.begin_move(scene.keys.stream)
            scene.last(chance.uniform(0, 0.3))
            eventually_sync(lambda: _is_done(move.finish), _SETTLE_SECS)
    return f"to port {move.destination.port}"


def _is_done(work: Callable[[], None]) -> bool:
    try:
        work()
    except redis.RedisError:
        return False
    return True


def _catch_up(primary: Server, replica: Server) -> None:
    """Return when the replica has everything that the primary had when this began."""
    told = _offset(primary.client())
    eventually_sync(lambda: _offset(replica.client()) >= told, _SETTLE_SECS)


def _offset(client: redis.Redis) -> int:
    facts = client.info("replication")
    return int(facts.get("slave_repl_offset", facts["master_repl_offset"]))
