"""Deliveries that go back unstarted: to whoever asks next, to their places, to another consumer."""

from collections.abc import Iterable

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, Steps
from chasquimq.broker.stream import Delivery
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys

# Behind the first one that is put back; where more are pending they stay so, idle.
_MOST_PUT_BACK = 1_000


def hand_back(
    keys: QueueKeys,
    group: str,
    consumer: str,
    deliveries: Iterable[Delivery],
    *,
    idle_ms: int,
    in_place: bool = False,
) -> Call[int]:
    """Give deliveries that were not started to whoever asks next, without counting a run.

    With `in_place` no entry is written anew, which would wake those who are blocked.
    """
    more: list[bytes] = []
    for each in deliveries:
        # An entry that was delivered before must keep its count, which a new entry would not have.
        stays = in_place or each.deliveries
        more += (each.entry_id, b"%d" % each.deliveries, b"0" if stays else b"1")
    return scripts.HAND_BACK.call(
        {"stream": keys.stream},
        {"group": group, "consumer": consumer, "idle_ms": idle_ms},
        read=int,
        repeatable=True,
        more_arguments=more,
    )


def put_back(
    keys: QueueKeys,
    group: str,
    consumer: str,
    deliveries: Iterable[Delivery] = (),
    *,
    idle_ms: int,
    alone: bool = False,
) -> Call[int]:
    """Make deliveries that were not started wait again, in their places; nobody is woken.

    What was handed back before, by whomever, waits again with them. With `alone` nothing does while
    the group has another consumer, who may be blocked: it is only made idle, as by `hand_back`.
    """
    more: list[bytes] = []
    for each in sorted(deliveries, key=lambda delivery: StreamId.parse(delivery.entry_id)):
        more += (each.entry_id, b"%d" % each.deliveries)
    return scripts.PUT_BACK.call(
        {"stream": keys.stream},
        {
            "group": group,
            "consumer": consumer,
            "idle_ms": idle_ms,
            "most": _MOST_PUT_BACK,
            "alone": int(alone),
        },
        read=int,
        repeatable=True,
        more_arguments=more,
    )


def depart(keys: QueueKeys, group: str, consumer: str, *, idle_ms: int) -> Steps[bool]:
    """End a stopped consumer's membership of the group; False if it has leases that must run out.

    What it handed back is passed on to a consumer that is there, or else waits again in its place.
    Those that go at the same time pass it on to each other, and the last one finds itself alone.
    One that joins between our calls reads what waits, or is passed it. What a `kill -9` between
    them leaves behind: a name with nothing pending, which `join` forgets an hour later.
    """
    leaving = leave(keys, group, consumer, idle_ms=idle_ms)
    is_gone: bool = yield leaving
    if not is_gone:
        yield put_back(keys, group, consumer, idle_ms=idle_ms, alone=True)
        is_gone = yield leaving
    return is_gone


def leave(keys: QueueKeys, group: str, consumer: str, *, idle_ms: int) -> Call[bool]:
    """Forget a stopped consumer and pass on what it handed back; False if it holds more."""
    return scripts.LEAVE.call(
        {"stream": keys.stream},
        {"group": group, "consumer": consumer, "idle_ms": idle_ms, "most": _MOST_PUT_BACK},
        read=bool,
        repeatable=True,
    )
