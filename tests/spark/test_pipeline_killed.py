"""A pipeline killed in the midst of its writes has every event once, and the same tables."""

from collections import Counter
from random import Random

import pytest

from chasquimq.pipeline import Pipeline
from chasquimq.wire.event import event_fields
from chasquimq.wire.ids import _Mint
from chasquimq.wire.keys import QueueKeys
from tests.support import spark_driver
from tests.support.spark import SMALL, SPARK_MARKS
from tests.support.spark_process import spark_processes

pytestmark = SPARK_MARKS

# One that meets a write of each layer: `bronze`, `jobs`, `compactions`.
SEED = 20_260_145
KILLS = 3
JOBS = 60
BEGAN_MS = 1_769_853_590_000
MADE = ("runs", "jobs", "minutes", "hours", "days", "failures")
# In the order in which they are written; the last not before the third batch.
WRITTEN = ("bronze", "batches", *MADE, "compactions")


@pytest.fixture
def told(server, queue_name, tmp_path):
    """Events of some jobs over two hours, some of which fail; and what a driver is told."""
    chance, lives = Random(SEED), []  # noqa: S311 -- a story, not a secret
    mint = _Mint()  # that of this process makes no id of the past
    for number in range(JOBS):
        at_ms = BEGAN_MS + number * 120_000
        job = (mint.one(at_ms), at_ms, f"name-{number % 3}")
        ran = chance.randrange(1, 400_000)
        ends = ("failed", {"reason": f"no row {number}"}) if number % 7 == 0 else ("completed", {})
        lives += [
            ("waiting", *job, {}),
            ("active", *job, {"attempt": 1, "wait_ms": 5, "created_at_ms": at_ms}),
            (ends[0], *job, {"attempt": 1, **ends[1], "duration_us": ran}),
        ]
    pipe = server.client().pipeline(transaction=False)
    for event, job_id, at_ms, name, extras in lives:
        fields = event_fields(event, job_id, at_ms, name, extras)
        pipe.execute_command("XADD", QueueKeys(queue_name).events, f"{at_ms}-*", *fields)
    pipe.execute()
    return {"url": server.url, "queue": queue_name, "lake": str(tmp_path / "lake")}


@pytest.mark.timeout(600)  # three starts of Java
def test_killed_in_the_midst_of_writes_it_has_every_event_once_and_the_same_tables(
    spark, server, queue_name, tmp_path, told
):
    chosen = Random(SEED).sample(WRITTEN, KILLS)  # noqa: S311 -- the same
    moments = sorted(chosen, key=WRITTEN.index)
    with spark_processes() as start_driver:
        for table in moments:
            driver = start_driver(SMALL)
            driver.order("pipeline", **told)
            driver.until(lambda: is_written(tmp_path, table))  # noqa: B023 -- done within the turn
            driver.kill()

    pipeline = Pipeline(told["lake"], spark=spark)
    spark_driver.take_in(pipeline, told)
    entries = server.client().xrange(QueueKeys(queue_name).events)
    in_bronze = Counter(row["entry_id"] for row in pipeline.table("bronze").collect())
    assert in_bronze == {entry_id.decode(): 1 for entry_id, _ in entries}, moments

    def content():
        return {name: sorted(map(str, pipeline.table(name).collect())) for name in MADE}

    piecewise = content()
    assert len(piecewise["jobs"]) == JOBS
    pipeline.rebuild()
    assert content() == piecewise, moments


def is_written(folder, table):
    """Whether a write of a table is under way: until it ends, its files are in such a folder."""
    return any((folder / "lake" / table).glob(".spark-staging-*"))
