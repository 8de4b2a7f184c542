"""A slot of a fleet that works in batches dies in the midst of some; no Spark is needed."""

import signal
import subprocess
import sys
from collections import Counter

import pytest

from chasquimq import SyncQueue
from chasquimq.spark.slot import work
from chasquimq.wire.keys import QueueKeys
from tests.support import slot_of_batches
from tests.support.eventually import eventually_sync

SIZE = 10
IN_HAND = SIZE * slot_of_batches.AT_A_TIME
JOBS = 95


@pytest.mark.servers("valkey", "redis-8.6")
def test_a_slot_that_dies_amid_its_batches_loses_no_job_and_repeats_what_it_had_in_hand(
    server, queue_name
):
    client, shown = server.client(), f"shown-{queue_name}"
    client.set(QueueKeys(queue_name).fleet(slot_of_batches.FLEET), "me", ex=120)
    where = [server.url, queue_name, "me"]
    with SyncQueue(queue_name, redis_url=server.url) as queue:
        jobs = queue.add_bulk([{"name": "n", "data": number} for number in range(JOBS)])
        victim = subprocess.Popen(
            [sys.executable, slot_of_batches.__file__, *where, str(SIZE), "slow"]
        )
        try:
            eventually_sync(lambda: client.llen(shown) == IN_HAND, timeout=30)
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        done = work(slot_of_batches.recipe(*where, SIZE, is_slow=False), 0)
        assert (done.completed, done.failed) == (JOBS, 0)
        assert queue.get_job_result_bulk([job.id for job in jobs]) == [2 * n for n in range(JOBS)]
        assert (queue.counts().waiting, queue.counts().active) == (0, 0)
    runs = Counter(map(int, client.lrange(shown, 0, -1)))
    client.delete(shown)
    # Exactly those that the victim had been shown ran twice.
    assert runs == {number: 2 if number < IN_HAND else 1 for number in range(JOBS)}
