"""Faults of several servers: a failover in good order, a primary that dies, a slot that moves."""

import random
from collections.abc import Callable

import redis

from chaos.clocks import now_us
from chaos.history import EVERYBODY, Forgotten
from chaos.scene import Scene
from chaos.stage import Spread, Watched
from tests.support.eventually import eventually_sync

_SETTLE_SECS = 60
# Longer than any failover takes: a pause that ends before it would lose what comes after.
_PAUSE_MS = 120_000
# What the replica may be behind of: it acknowledges once a second.
_LAG_US = 2_000_000


def fail_over(scene: Scene, chance: random.Random) -> str:  # noqa: ARG001
    """Primary and replica change places when the replica has everything: nothing may be lost."""
    stage = scene.stage
    assert isinstance(stage, Watched)
    with scene.server_lock, scene.cutting(EVERYBODY, "failover"):
        primary, replica = stage.primary(), stage.replica()
        client, began = primary.client(), now_us()
        # No write is acknowledged from here on, and the replica gets those that were.
        client.client_pause(_PAUSE_MS, all=False)
        try:
            told = _offset(client)
            eventually_sync(lambda: _offset(replica.client()) >= told, _SETTLE_SECS)
            stage.sentinel.fail_over()
            stage.until_in_step()
        except AssertionError:
            # It may yet come, after writes that are about to be acknowledged again.
            scene.scroll.write(Forgotten(now_us(), "failover in limbo", since_us=began))
            raise
        finally:
            client.client_unpause()
    return f"to port {replica.port}"


def crash_primary(scene: Scene, chance: random.Random) -> str:  # noqa: ARG001
    """SIGKILL to the primary: what its replica did not have is lost, and written down as such."""
    stage = scene.stage
    assert isinstance(stage, Watched)
    with scene.server_lock, scene.cutting(EVERYBODY, "primary killed"):
        primary, replica = stage.primary(), stage.replica()
        now = now_us()
        scene.scroll.write(Forgotten(now, "primary killed", since_us=now - _LAG_US))
        primary.kill()
        eventually_sync(lambda: stage.primary() is replica and stage.is_up(), _SETTLE_SECS)
        primary.restart()
        stage.until_in_step()
    return f"to port {replica.port}"


def move_slot(scene: Scene, chance: random.Random) -> str:
    """The queue's slot moves to the other node, key by key, while it is used."""
    stage = scene.stage
    assert isinstance(stage, Spread)
    with scene.server_lock:
        # A node that was away a moment ago may not be believed yet; and a move that was begun has
        # to be ended, or no script finds all its keys ever again.
        eventually_sync(stage.is_up, _SETTLE_SECS)
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


def _offset(client: redis.Redis) -> int:
    facts = client.info("replication")
    return int(facts.get("slave_repl_offset", facts["master_repl_offset"]))
