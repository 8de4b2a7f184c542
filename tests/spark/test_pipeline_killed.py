"""A pipeline killed in the midst of its writes has every event once, and the same tables."""

import re
from collections import Counter
from random import Random

import pytest

from chasquimq.wire.event import event_fields
from chasquimq.wire.ids import _Mint
from chasquimq.wire.keys import QueueKeys
from tests.support.spark import DRIVER_MARKS, SMALL

pytestmark = DRIVER_MARKS

SEED = 20_260_145
JOBS = 40
BEGAN_MS = 1_769_853_590_000
MADE = ("runs", "jobs", "minutes", "hours", "days", "failures")
# One write of bronze and one of silver, which a killed driver was at.
MOMENTS = ("bronze", "jobs")


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
    start_driver, server, queue_name, tmp_path, told
):
    for table in MOMENTS:
        driver = start_driver(SMALL)
        driver.order("pipeline", **told)
        driver.until(lambda: is_written(tmp_path, table))  # noqa: B023 -- done within the turn
        driver.kill()

    last = start_driver(SMALL)
    last.order("pipeline", **told)
    last.until_done("pipeline")
    piecewise = last.ask("tables", lake=told["lake"], names=["bronze", *MADE])
    in_bronze = Counter(re.search(r"entry_id='([^']+)'", row)[1] for row in piecewise.pop("bronze"))
    entries = server.client().xrange(QueueKeys(queue_name).events)
    assert in_bronze == {entry_id.decode(): 1 for entry_id, _ in entries}
    assert len(piecewise["jobs"]) == JOBS
    last.order("rebuild", **told)
    last.until_done("rebuild")
    assert last.ask("tables", lake=told["lake"], names=MADE) == piecewise


def is_written(folder, table):
    """Whether a write of a table is under way: until it ends, its files are in such a folder."""
    return any((folder / "lake" / table).glob(".spark-staging-*"))
