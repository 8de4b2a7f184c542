"""The acker on a real server that refuses what it is told."""

import logging

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.stream import Completion
from chasquimq.broker.url import parse_url
from chasquimq.clock import ManualClock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.acker import Acker
from chasquimq.engine.leases import Leases
from chasquimq.engine.teller import Teller


async def test_what_cannot_be_acknowledged_is_let_go_and_has_had_its_run(scene, caplog):
    target, options = parse_url(scene.server.socket_url), ConnectionOptions()
    connection = Connection(target, options, slot_key=scene.keys.tag)
    blocking = BlockingConnection(target, options, slot_key=scene.keys.tag)
    clock, config = ManualClock(), ConsumerConfig(queue_name=scene.name)
    leases = Leases(
        blocking, scene.keys, group="default", consumer="c-1", lease_ms=300, clock=clock
    )
    teller = Teller(connection, scene.keys, config, clock)
    acker = Acker(connection, scene.keys, config, leases=leases, teller=teller, clock=clock)
    scene.client.set(scene.keys.stream, "not a stream")
    leases.take(b"1-1")
    acker.add(Completion(b"1-1", "j", "n", 1, 10, None))
    with caplog.at_level(logging.ERROR, "chasquimq.engine"):
        acker.gatherer.start()
        await acker.gatherer.end()
    assert "could not be acknowledged and will run again" in caplog.text
    assert leases.held() == set()
    assert leases.had_its_run(b"1-1")
    leases.take(b"1-1")  # it came back, and runs again
    assert not leases.had_its_run(b"1-1")
    await connection.close()
    blocking.close()
