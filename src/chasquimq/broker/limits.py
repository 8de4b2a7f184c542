"""The rate limit that the workers of a queue share: take entries within it, or hold it shut."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, Reply
from chasquimq.broker.stream import Delivery, deliveries_of
from chasquimq.wire.keys import QueueKeys

Claiming: TypeAlias = Literal["read", "look", ""]


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` jobs in `duration_ms`, after a burst of as many."""

    most: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What one attempt to take entries gave, or why it gave nothing."""

    deliveries: list[Delivery] = field(default_factory=list)
    is_paused: bool = False
    wait_ms: int = 0
    """How long the limit allows nothing; 0 if it allowed something."""
    ran_dry: bool = False
    """Whether there were fewer entries than room and limit allowed."""
    newest: bytes = b""
    """If nothing was there: the id after which the next entry will be."""


def take(  # noqa: PLR0913 -- the script's signature
    keys: QueueKeys,
    group: str,
    consumer: str,
    *,
    limit: Limit,
    count: int,
    min_idle_ms: int,
    claiming: Claiming,
) -> Call[Taken]:
    """New entries and expired leases, each for a token; nothing while the queue is paused.

    Repeatable: entries of a reply that got lost come back as claims. Their tokens are lost.
    """
    return scripts.TAKE.call(
        {"stream": keys.stream, "paused": keys.paused, "limiter": keys.limiter},
        {
            "group": group,
            "consumer": consumer,
            "count": count,
            "max": limit.most,
            "duration_ms": limit.duration_ms,
            "min_idle_ms": min_idle_ms,
            "claiming": claiming,
        },
        read=_read_taken,
        repeatable=True,
    )


def hold(keys: QueueKeys, limit: Limit, *, hold_ms: int) -> Call[int]:
    """Let nobody who shares the limit take a job for so long; answers for how long really."""
    return scripts.HOLD.call(
        {"limiter": keys.limiter},
        {"hold_ms": hold_ms, "duration_ms": limit.duration_ms},
        read=int,
        repeatable=True,
    )


def _read_taken(reply: Reply) -> Taken:
    is_paused, wait_ms, allowed, newest, *rows = reply
    deliveries = deliveries_of(rows)
    return Taken(deliveries, bool(is_paused), wait_ms, len(deliveries) < allowed, newest)
