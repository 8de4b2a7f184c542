"""`tell.lua`: events in their order, as many as there are; what is refused hurts nobody."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from chasquimq.broker import events
from chasquimq.wire.event import event_fields
from tests.support.eventually import eventually_sync


def drained(ts_ms):
    return event_fields("drained", "", ts_ms, "")


def test_events_of_any_length_are_written_in_their_order(run, raw, keys):
    batch = [
        event_fields("active", "j1", 5, "mail", {"attempt": 1, "wait_ms": 2}),
        drained(6),
        event_fields("failed", "j1", 7, "mail", {"attempt": 1, "reason": "ü" * 300}),
        event_fields("active", "", 8, ""),
    ]
    run(events.append(keys, batch, cap=100))
    assert raw.events() == [
        "e=active id=j1 ts=5 n=mail attempt=1 wait_ms=2",
        "e=drained id= ts=6",
        "e=failed id=j1 ts=7 n=mail attempt=1 reason=" + "ü" * 300,
        "e=active id= ts=8",
    ]


def test_no_events_write_nothing(run, raw, keys):
    run(events.append(keys, [], cap=100))
    assert not raw.client.exists(keys.events)


def test_the_cap_is_minded_amid_a_batch_and_by_batches_of_one(run, raw, keys):
    run(events.append(keys, [drained(n) for n in range(1_000)], cap=200))
    assert 200 <= raw.client.xlen(keys.events) <= 400
    for n in range(300):
        run(events.append(keys, [drained(n)], cap=200))
    assert 200 <= raw.client.xlen(keys.events) <= 300
    assert raw.events()[-1] == "e=drained id= ts=299"


def test_a_server_that_takes_no_events_is_told_none_and_nobody_hears_of_it(
    run, raw, keys, without_memory
):
    with without_memory():
        run(events.append(keys, [drained(1), drained(2)], cap=100))
    run(events.append(keys, [drained(3)], cap=100))
    assert raw.events() == ["e=drained id= ts=3"]

    raw.client.delete(keys.events)
    raw.client.set(keys.events, "something else")
    run(events.append(keys, [drained(4)], cap=100))
    raw.client.delete(keys.events)


@pytest.mark.parametrize("state", ["READONLY", "NOREPLICAS"])
def test_a_server_that_takes_no_writes_for_a_while_is_told_when_it_does(run, raw, keys, state):
    client = raw.client

    def connections():
        return client.info("stats")["total_connections_received"]

    run(events.append(keys, [drained(1)], cap=100))
    before = connections()
    with ThreadPoolExecutor() as pool:
        try:
            if state == "READONLY":
                client.replicaof("127.0.0.1", "1")
            else:
                client.config_set("min-replicas-to-write", 1)
            telling = pool.submit(run, events.append(keys, [drained(2), drained(3)], cap=100))
            eventually_sync(lambda: connections() > before)  # it looks for one that does
        finally:
            client.replicaof("NO", "ONE")
            client.config_set("min-replicas-to-write", 0)
        telling.result()
    assert raw.events() == [f"e=drained id= ts={n}" for n in (1, 2, 3)]


def test_large_events_leave_in_parts_and_in_their_order(run, raw, keys):
    batch = [event_fields("failed", f"j{n}", n, "", {"reason": "x" * 16_000}) for n in range(300)]
    call = events.append(keys, batch, cap=1_000)
    assert len(call.requests) > 1
    assert max(map(len, call.requests)) < 2 << 20
    assert call.repeatable is False

    run(call)
    assert [line.split()[1] for line in raw.events()] == [f"id=j{n}" for n in range(300)]
