"""Pure: what a worker's `/healthz` and `/readyz` answer, given how it stands."""

from dataclasses import dataclass

from chasquimq.engine.pulse import Vitals

OK, UNAVAILABLE = 200, 503

READ_GRACE_MS = 5_000
"""How much longer than its block a read may take before the worker does not count as reading."""


_NOT_BEGUN = "the worker has not begun to read"


@dataclass(frozen=True, slots=True)
class Standing:
    """All that is known of a worker at one moment."""

    queue: str
    consumer_id: str
    loop_lag_ms: int | None
    """How long the event loop took for a turn; None if it did not turn while we waited."""
    vitals: Vitals | None
    """None before the worker has begun, and after it has ended."""
    read_bound_ms: int
    """A last read older than this means that the worker does not read."""
    is_stopping: bool = False
    is_paused: bool = False
    is_held: bool = False
    """A rate limit keeps it from reading."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status for machines and a body for people."""

    status: int
    body: dict[str, object]


def health(standing: Standing) -> Answer:
    """Whether the process works at all: a supervisor may restart one that does not.

    A server that is away is no reason to restart a worker, so it is none here.
    """
    if standing.loop_lag_ms is None:
        why = "the event loop does not turn: a handler blocks it; give it a plain function instead"
        return _answer(standing, UNAVAILABLE, "blocked", why)
    return _answer(standing, OK, "stopping" if standing.is_stopping else "ok", None)


def readiness(standing: Standing) -> Answer:
    """Whether the worker is consuming, or would if it were not paused, held or full."""
    why = _hindrance(standing)
    if why is not None:
        return _answer(standing, UNAVAILABLE, "not ready", why)
    word = "paused" if standing.is_paused else "held" if standing.is_held else "ready"
    return _answer(standing, OK, word, None)


def _hindrance(standing: Standing) -> str | None:
    if standing.loop_lag_ms is None:
        return "the event loop does not turn: a handler blocks it"
    if standing.is_stopping:
        return "the worker is stopping"
    if standing.vitals is None:
        return _NOT_BEGUN
    holds_back = standing.is_paused or standing.is_held or standing.vitals.is_full
    return _lack(standing.vitals, None if holds_back else standing.read_bound_ms)


def _lack(vitals: Vitals, read_bound_ms: int | None) -> str | None:
    """What is missing for reading; without a bound the last read may be of any age."""
    age_ms = vitals.last_read_age_ms
    if not vitals.is_connected:
        return _NOT_BEGUN if age_ms is None else "the connection to the server is broken"
    if read_bound_ms is None:
        return None
    if age_ms is None:
        return _NOT_BEGUN
    if age_ms > read_bound_ms:
        return f"the last successful read is {age_ms} ms old, the bound is {read_bound_ms} ms"
    return None


def _answer(standing: Standing, status: int, word: str, why: str | None) -> Answer:
    vitals = standing.vitals
    body: dict[str, object] = {"status": word}
    if why is not None:
        body["why"] = why
    body |= {
        "queue": standing.queue,
        "consumer_id": standing.consumer_id,
        "paused": standing.is_paused,
        "event_loop_lag_ms": standing.loop_lag_ms,
        "read_bound_ms": standing.read_bound_ms,
    }
    if vitals is not None:
        body |= {
            "connected": vitals.is_connected,
            "last_read_age_ms": vitals.last_read_age_ms,
            "full": vitals.is_full,
            "in_flight": vitals.in_flight,
            "running": vitals.running,
            "reconnects": vitals.reconnects,
        }
    return Answer(status, body)
