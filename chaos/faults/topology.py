"""Faults of several servers: a failover in good order, a primary that dies, a slot that moves."""

import random
import time

import redis

from chaos.clocks import now_us
from chaos.history import EVERYBODY, Forgotten
from chaos.scene import Scene
from chaos.stage import Spread, Watched
from tests.support.eventually import eventually_sync

_SETTLE_SECS = 30
# What the replica may be behind of: it acknowledges once a second.
_LAG_US = 2_000_000


def fail_over(scene: Scene, chance: random.Random) -> str:  # noqa: ARG001
    """Primary and replica change places when the replica has everything: nothing may be lost."""
    stage = scene.stage
    assert isinstance(stage, Watched)
    with scene.server_lock, scene.cutting(EVERYBODY, "failover"):
        primary, replica = stage.primary(), stage.replica()
        # No write is acknowledged from here on, and the replica gets what was.
        primary.client().execute_command("CLIENT", "PAUSE", 20_000, "WRITE")  # type: ignore[no-untyped-call]
        eventually_sync(
            lambda: _offset(primary.client()) == _offset(replica.client()), _SETTLE_SECS
        )
        stage.sentinel.fail_over()
        _until_in_step(stage)
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
        _until_in_step(stage)
    return f"to port {replica.port}"


def move_slot(scene: Scene, chance: random.Random) -> str:
    """The queue's slot moves to the other node, key by key, while it is used."""
    stage = scene.stage
    assert isinstance(stage, Spread)
    with scene.server_lock:
        move = stage.cluster.begin_move(scene.keys.stream)
        scene.last(chance.uniform(0, 0.3))
        move.finish()
    return f"to port {move.destination.port}"


def _offset(client: redis.Redis) -> int:
    facts = client.info("replication")
    return int(facts.get("slave_repl_offset", facts["master_repl_offset"]))


def _until_in_step(stage: Watched) -> None:
    """Return when the old primary follows the new one, with all it has."""

    def follows() -> bool:
        try:
            facts = stage.replica().client().info("replication")
        except redis.RedisError:
            return False
        return (facts["role"], facts["master_link_status"]) == ("slave", "up")

    eventually_sync(follows, _SETTLE_SECS)
    time.sleep(0.1)
