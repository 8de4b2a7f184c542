"""`tell.lua`: events in their order, as many as there are; what is refused hurts nobody."""

from chasquimq.broker import events
from chasquimq.wire.event import event_fields


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
