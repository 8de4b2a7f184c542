"""A refusal that passes costs no second run: the worker lives and holds the lease."""

from chasquimq.metrics import JobOutcome
from tests.support.eventually import eventually


async def test_an_acknowledgement_that_is_refused_for_a_while_is_tried_again(scene):
    async def handler(job):
        if job.name == "first":
            # From here on the server refuses every write, as one without its replicas does.
            scene.client.config_set("min-replicas-to-write", 1)

    try:
        async with scene.working(handler) as sink:
            await scene.queue.add("first", 1)
            await sink.next(JobOutcome)
            scene.client.config_set("min-replicas-to-write", 0)
            await eventually(lambda: scene.pending() == [])
            await scene.queue.add("second", 1)
            await sink.next(JobOutcome)
        assert [outcome.attempt for outcome in sink.seen(JobOutcome)] == [1, 1]
    finally:
        scene.client.config_set("min-replicas-to-write", 0)
