"""The quick road for many jobs for now that have a name and data and nothing else.

What is known of such jobs is kept column by column: no wish, no order and no tuple for each. That
takes half of the client's time for a job of a bulk of a thousand, a third of it from the collector.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from chasquimq.broker.call import Steps
from chasquimq.engine.limits import SURELY_SHORT
from chasquimq.engine.portions import CHUNK, CHUNK_BYTES
from chasquimq.engine.producing import Producing
from chasquimq.wire.envelope import encode_jobs
from chasquimq.wire.ids import ulids

Minted: TypeAlias = tuple[str, int]
"""What a job is given when it is wrapped: its id, and when it was created, in milliseconds."""

ENVELOPE_BYTES = 64
"""More than the envelope of a job that has nothing but data adds to it."""


class PlainBulk(NamedTuple):
    """Names and packed data, checked as far as they need no look at each job."""

    names: Sequence[str]
    payloads: Sequence[bytes]
    data: Sequence[Any]
    """As it was given: the caller's list may have changed when the jobs are in."""


class PlainBatch(NamedTuple):
    """Jobs that one call adds."""

    ids: Sequence[str]
    envelopes: Sequence[bytes]
    names: Sequence[str]
    created_at_ms: int


def prepared(producing: Producing, bulk: PlainBulk) -> PlainBatch | None:
    """What can be sent; None if each job must be looked at, or they are more than a call takes."""
    if producing.is_traced or not 1 < len(bulk.names) <= CHUNK:
        return None
    made = batch(producing, bulk.names, bulk.payloads)
    sizes = [*map(len, made.envelopes)]
    is_plain = (
        max(map(len, bulk.names)) <= SURELY_SHORT
        and max(sizes) <= producing.config.max_payload_bytes
        and sum(sizes) <= CHUNK_BYTES
    )
    return made if is_plain else None


def batch(producing: Producing, names: Sequence[str], payloads: Sequence[bytes]) -> PlainBatch:
    """Jobs with fresh ids, wrapped; whether they are too large was seen to."""
    now_ms = producing.clock.now_ms()
    ids = ulids(now_ms, len(names))
    return PlainBatch(ids, encode_jobs(ids, payloads, now_ms), names, now_ms)


def add(producing: Producing, batch: PlainBatch) -> Steps[None]:
    """Add the batch in one call; `QueueFullError`, and nothing is added, if it does not fit."""
    added = yield from producing.add_flat(_flat(batch), whole=True)
    if added.count < len(batch.ids):
        raise producing.full(len(batch.ids))


def add_as_many_as_fit(producing: Producing, batch: PlainBatch) -> Steps[int]:
    """Add the jobs of several callers in one call; how many, from the front, fit."""
    added = yield from producing.add_flat(_flat(batch), whole=False)
    return added.count


def _flat(batch: PlainBatch) -> list[bytes | str]:
    flat: list[bytes | str] = [b""] * (3 * len(batch.ids))
    flat[0::3], flat[1::3], flat[2::3] = batch.ids, batch.envelopes, batch.names
    return flat
