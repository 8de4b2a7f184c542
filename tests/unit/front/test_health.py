"""What the two probes answer, as a table."""

from dataclasses import replace

import pytest

from chasquimq.engine.pulse import Vitals
from chasquimq.health import Standing, health, readiness

READING = Vitals(
    is_connected=True,
    is_full=False,
    last_read_age_ms=20,
    in_flight=3,
    running=2,
    leases_renewed=0,
    leases_lost=0,
    reconnects=1,
)
WELL = Standing("emails", "c-1", loop_lag_ms=0, vitals=READING, read_bound_ms=10_000)


def seen(**changes):
    return replace(WELL, vitals=replace(READING, **changes))


NOT_READY = [
    (replace(WELL, loop_lag_ms=None), "the event loop does not turn"),
    (replace(WELL, is_stopping=True), "stopping"),
    (replace(WELL, vitals=None), "not begun"),
    (seen(last_read_age_ms=None, is_connected=False), "not begun"),
    (seen(last_read_age_ms=None), "not begun"),
    (seen(is_connected=False), "broken"),
    (seen(is_connected=False, is_full=True), "broken"),
    (replace(seen(is_connected=False), is_paused=True), "broken"),
    (seen(last_read_age_ms=10_001), "last successful read is 10001 ms old, the bound is 10000 ms"),
]


@pytest.mark.parametrize(("standing", "why"), NOT_READY)
def test_a_worker_that_does_not_consume_is_not_ready_and_says_why(standing, why):
    answer = readiness(standing)
    assert (answer.status, answer.body["status"]) == (503, "not ready")
    assert why in answer.body["why"]


@pytest.mark.parametrize(
    ("standing", "word"),
    [
        (WELL, "ready"),
        (seen(last_read_age_ms=10_000), "ready"),
        (seen(last_read_age_ms=99_999, is_full=True), "ready"),
        (replace(seen(last_read_age_ms=99_999), is_paused=True), "paused"),
        (replace(seen(last_read_age_ms=None), is_paused=True), "paused"),
        (replace(seen(last_read_age_ms=99_999), is_held=True), "held"),
    ],
    ids=["reading", "at the bound", "all slots busy", "paused", "paused from the start", "held"],
)
def test_a_worker_that_reads_or_holds_back_on_purpose_is_ready(standing, word):
    answer = readiness(standing)
    assert (answer.status, answer.body["status"]) == (200, word)
    assert "why" not in answer.body


@pytest.mark.parametrize(("standing", "why"), NOT_READY[1:])
def test_only_a_blocked_event_loop_is_a_reason_to_restart(standing, why):
    assert health(standing).status == 200


def test_a_blocked_event_loop_is_unhealthy():
    answer = health(replace(WELL, loop_lag_ms=None))
    assert (answer.status, answer.body["status"]) == (503, "blocked")
    assert "a handler blocks it" in answer.body["why"]


def test_the_body_tells_a_person_how_the_worker_stands():
    assert readiness(WELL).body == {
        "status": "ready",
        "queue": "emails",
        "consumer_id": "c-1",
        "paused": False,
        "event_loop_lag_ms": 0,
        "read_bound_ms": 10_000,
        "connected": True,
        "last_read_age_ms": 20,
        "full": False,
        "in_flight": 3,
        "running": 2,
        "reconnects": 1,
    }
