"""Delayed jobs of one package that the other cancels, or would add a second time."""

import pytest

from tests.support.party import job

pytestmark = pytest.mark.servers("redis-8.6")

HOUR_MS = 3_600_000


@pytest.fixture
def keys_left(server, queue_name):
    """What the queue still holds: members of the delayed set, keys of jobs."""

    def look():
        client = server.client()
        tag = f"{{chasqui:{queue_name}}}"
        per_job = [*client.scan_iter(f"{tag}:dlid:*"), *client.scan_iter(f"{tag}:didx:*")]
        return client.zcard(f"{tag}:delayed"), len(per_job)

    return look


def test_a_delayed_job_with_an_id_is_cancelled_by_the_other(pair, queue_name, keys_left):
    producer, canceller = pair
    producer.add(queue_name, "later", {"k": 1}, delay_ms=HOUR_MS, job_id="chosen")
    assert canceller.ask("cancel", queue=queue_name, job_id="chosen")
    assert keys_left() == (0, 0)
    assert not canceller.ask("cancel", queue=queue_name, job_id="chosen")
    assert not producer.ask("cancel", queue=queue_name, job_id="chosen")


def test_a_delayed_job_whose_id_nobody_chose_is_cancelled_by_ours(
    ours, theirs, queue_name, keys_left
):
    kept = theirs.add(queue_name, "kept", None, delay_ms=HOUR_MS)
    cancelled = theirs.add(queue_name, "later", None, delay_ms=HOUR_MS)
    assert keys_left() == (2, 0)  # the reference engine keeps no index of such a job
    assert ours.ask("cancel", queue=queue_name, job_id=cancelled)
    assert not ours.ask("cancel", queue=queue_name, job_id=cancelled)
    assert keys_left() == (1, 0)
    assert ours.ask("cancel", queue=queue_name, job_id=kept)


def test_a_delayed_job_of_ours_whose_id_nobody_chose_is_cancelled_by_the_reference_engine(
    ours, theirs, queue_name, keys_left
):
    job_id = ours.add(queue_name, "later", None, delay_ms=HOUR_MS)
    assert theirs.ask("cancel", queue=queue_name, job_id=job_id)
    assert keys_left() == (0, 0)


def test_a_waiting_retry_is_cancelled_by_ours_whoever_ran_the_job(
    pair, queue_name, keys_left, ours
):
    producer, worker = pair
    producer.watch(queue_name)
    worker.work(queue_name, plan={"failures": {"flaky": 1}})
    job_id = producer.add(queue_name, "flaky", None, backoff=HOUR_MS)
    producer.has_seen("retry-scheduled", job_id)
    assert ours.ask("cancel", queue=queue_name, job_id=job_id)
    assert keys_left() == (0, 0)


def test_a_promoted_job_cannot_be_cancelled_any_more(pair, queue_name, keys_left):
    producer, worker = pair
    worker.work(queue_name)
    job_id = producer.add(queue_name, "soon", None, delay_ms=50, job_id="soon")
    worker.has_run(job_id)
    worker.ask("stop")
    assert not worker.ask("cancel", queue=queue_name, job_id=job_id)
    assert not producer.ask("cancel", queue=queue_name, job_id=job_id)
    assert keys_left() == (0, 1)  # the marker stays: the id is taken for an hour more


def test_an_id_can_be_added_again_after_the_other_cancelled_it(pair, queue_name):
    producer, other = pair
    producer.add(queue_name, "first", 1, delay_ms=HOUR_MS, job_id="again")
    assert other.ask("cancel", queue=queue_name, job_id="again")
    producer.add(queue_name, "second", 2, delay_ms=50, job_id="again")
    other.work(queue_name)
    [run] = other.has_run("again")
    assert (run.name, run.data) == ("second", 2)


def test_a_delayed_id_is_taken_for_both(pair, queue_name, keys_left):
    first, second = pair
    first.add(queue_name, "first", 1, delay_ms=100, job_id="taken")
    answer = second.ask("add", queue=queue_name, job=job("second", 2, delay_ms=10, job_id="taken"))
    # Only ours can tell; the reference engine returns the id either way.
    assert answer == {"id": "taken", "is_duplicate": True if second.name == "ours" else None}
    assert keys_left() == (1, 2)
    second.work(queue_name)
    [run] = second.has_run("taken")
    assert (run.name, run.data) == ("first", 1)


def test_a_delayed_id_is_taken_for_both_when_they_add_it_at_once(
    ours, theirs, queue_name, keys_left
):
    ids = [f"id-{i}" for i in range(100)]
    under_way = [
        (party, party.order("add_bulk", queue=queue_name, jobs=[
            job(party.name, None, delay_ms=HOUR_MS, job_id=job_id) for job_id in ids
        ]))
        for party in (ours, theirs)
    ]  # fmt: skip
    assert [party.answer(number) for party, number in under_way] == [ids, ids]
    assert keys_left() == (100, 200)


def test_an_id_that_ours_added_at_once_is_taken_on_the_delayed_road_of_both(
    ours, theirs, queue_name, keys_left
):
    ours.add(queue_name, "now", 1, job_id="taken")
    theirs.add(queue_name, "later", 2, delay_ms=HOUR_MS, job_id="taken")
    ours.add(queue_name, "later", 2, delay_ms=HOUR_MS, job_id="taken")
    assert keys_left() == (0, 1)


def test_a_delayed_id_of_the_reference_engine_is_taken_for_an_immediate_add_of_ours(
    ours, theirs, queue_name, server
):
    theirs.add(queue_name, "later", 1, delay_ms=HOUR_MS, job_id="taken")
    answer = ours.ask("add", queue=queue_name, job=job("now", 2, job_id="taken"))
    assert answer["is_duplicate"]
    assert server.client().xlen(f"{{chasqui:{queue_name}}}:stream") == 0
