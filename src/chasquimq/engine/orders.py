"""What a caller asks for, and what is made of it: a wish, and an order that can be sent."""

from collections.abc import Sequence
from typing import NamedTuple

from chasquimq.engine.limits import SURELY_SHORT
from chasquimq.wire.envelope import encode_jobs
from chasquimq.wire.retry import RetryOverride


class Order(NamedTuple):
    """A job that has been checked and wrapped, and the road it takes."""

    id: str
    name: str
    envelope: bytes
    created_at_ms: int
    is_unique: bool = False
    delay_ms: int = 0
    run_at_ms: int | None = None
    trace: bytes | None = None
    """What it carries of the trace in which it is added."""

    @property
    def is_delayed(self) -> bool:
        """Whether it goes to the delayed set."""
        return self.delay_ms > 0 or self.run_at_ms is not None

    @property
    def delay_secs(self) -> int:
        """How long it waits for its time, about."""
        if self.run_at_ms is not None:
            return max(0, self.run_at_ms - self.created_at_ms) // 1_000
        return self.delay_ms // 1_000


# What an order for now has behind the time at which it was made.
_NO_ROAD = Order("", "", b"", 0)[4:]


class Wish(NamedTuple):
    """What a caller asks for: the packed data and how it should be run."""

    name: str
    payload: bytes
    job_id: str | None = None
    retry: RetryOverride | None = None
    delay_ms: int = 0
    run_at_ms: int | None = None


NOTHING_MORE = Wish("", b"")[2:]
"""What a wish for now, and for nothing else, has behind its data."""


def usual_orders(
    wishes: Sequence[Wish], fresh_ids: Sequence[str], now_ms: int, *, most_bytes: int
) -> list[Order] | None:
    """What nearly every bulk is: 0.7 us a job, not 1.1; None if each must be looked at."""
    if any(wish[2:] != NOTHING_MORE for wish in wishes):
        return None
    names = [wish.name for wish in wishes]
    envelopes = encode_jobs(fresh_ids, [wish.payload for wish in wishes], now_ms)
    longest_name, largest = max(map(len, names), default=0), max(map(len, envelopes), default=0)
    if longest_name > SURELY_SHORT or largest > most_bytes:
        return None
    new, rest = tuple.__new__, (now_ms, *_NO_ROAD)
    return [
        new(Order, (job_id, name, envelope, *rest))
        for job_id, name, envelope in zip(fresh_ids, names, envelopes, strict=True)
    ]
