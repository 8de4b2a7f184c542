"""A worker whose event loop is blocked lives: at the shortest lease there is, too."""

import pytest

from chasquimq.config import LEAST_LEASE_MS
from chasquimq.metrics import ReaderBatch
from tests.support.eventually import eventually


async def nothing(job):
    return None


# Expired leases are found by a read, or by a script where no read can; it takes seconds.
@pytest.mark.servers("valkey", "redis-8.6")
async def test_a_job_whose_code_blocks_the_loop_is_not_taken_over_at_the_shortest_lease_there_is(
    scene, start_worker
):
    """Pure Python, which lets go of the interpreter for moments only: the thread renews in these.

    The other worker runs in this process, and looks for leases that are out all the time.
    """
    job = await scene.queue.add("spin", 1)
    blocked = await start_worker(scene, claim_min_idle_ms=LEAST_LEASE_MS)
    await blocked.until("started")
    async with scene.working(nothing, claim_min_idle_ms=LEAST_LEASE_MS, read_block_ms=50) as rival:
        for _ in range(3):  # more than a lease in all
            await eventually(lambda: idle_ms(scene) > LEAST_LEASE_MS / 4)
            await eventually(lambda: idle_ms(scene) < LEAST_LEASE_MS / 4)
        blocked.release()
        await blocked.until("ended")
        await eventually(scene.is_empty)
        assert rival.seen(ReaderBatch) == []
    assert scene.story(job.id) == ["waiting", "active", "completed"]
    assert len(blocked.told("started")) == 1


def idle_ms(scene):
    (held,) = scene.pending()
    return held["time_since_delivered"]
