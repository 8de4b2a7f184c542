"""The quick road for bulks of jobs for now that have a name and data and nothing else.

What is known of such jobs is kept column by column: no wish, no order and no tuple for each. That
takes half of the client's time for a job of a bulk of a thousand, a third of it from the collector.
"""

from collections.abc import Sequence
from typing import NamedTuple

from chasquimq.broker.call import Steps
from chasquimq.broker.stream import Added
from chasquimq.engine.limits import SURELY_SHORT
from chasquimq.engine.portions import CHUNK, CHUNK_BYTES
from chasquimq.engine.producing import Producing
from chasquimq.wire.envelope import encode_jobs
from chasquimq.wire.ids import ulids


class PlainBulk(NamedTuple):
    """Names and packed data, checked as far as they need no look at each job."""

    names: Sequence[str]
    payloads: Sequence[bytes]


class PlainBatch(NamedTuple):
    """Jobs that one call adds, all or none."""

    ids: Sequence[str]
    envelopes: Sequence[bytes]
    names: Sequence[str]
    created_at_ms: int


def prepared(producing: Producing, bulk: PlainBulk) -> PlainBatch | None:
    """What can be sent; None if each job must be looked at, or they are more than a call takes."""
    if producing.is_traced or not 1 < len(bulk.names) <= CHUNK:
        return None
    now_ms = producing.clock.now_ms()
    ids = ulids(now_ms, len(bulk.names))
    envelopes = encode_jobs(ids, bulk.payloads, now_ms)
    sizes = [*map(len, envelopes)]
    is_plain = (
        max(map(len, bulk.names)) <= SURELY_SHORT
        and max(sizes) <= producing.config.max_payload_bytes
        and sum(sizes) <= CHUNK_BYTES
    )
    return PlainBatch(ids, envelopes, bulk.names, now_ms) if is_plain else None


def add(producing: Producing, batch: PlainBatch) -> Steps[None]:
    """Add the batch in one call; `QueueFullError`, and nothing is added, if it does not fit."""
    flat: list[bytes | str] = [b""] * (3 * len(batch.ids))
    flat[0::3], flat[1::3], flat[2::3] = batch.ids, batch.envelopes, batch.names
    added: Added = yield producing.add_call(flat, whole=True)
    producing.note_depth(added)
    if added.count < len(batch.ids):
        raise producing.full(len(batch.ids))
