"""Results that one package's worker stores and the other's queue reads."""

import pytest

from tests.support.eventually import eventually_sync
from tests.support.party import packed

pytestmark = pytest.mark.servers("redis-8.6")

RETURNS = {
    "map": {"sum": 3, "who": "ü", "deep": [1, [2.5, None]]},
    "number": 0,
    "text": "",
    "list": [],
    "false": False,
    "bytes": b"\x00\xff",
    "large": b"r" * 100_000,
    "nothing": None,
}


@pytest.mark.parametrize("result_ttl_ms", [None, 1_500])
def test_results_of_one_are_read_by_the_other(pair, queue_name, server, result_ttl_ms):
    worker, reader = pair
    options = {"result_ttl_ms": result_ttl_ms} if result_ttl_ms else {}
    returns = {name: packed(value) for name, value in RETURNS.items() if value is not None}
    ids = [reader.add(queue_name, name, None) for name in RETURNS]
    worker.work(queue_name, plan={"returns": returns}, store_results=True, **options)
    worker.has_run(*ids)
    worker.ask("stop")
    assert reader.results(queue_name, *ids, "no such job") == [*RETURNS.values(), None]
    ttl = server.client().ttl(f"{{chasqui:{queue_name}}}:result:{ids[0]}")
    whole_s = 3_600 if result_ttl_ms is None else 2
    assert whole_s - 2 <= ttl <= whole_s


def test_a_producer_can_wait_for_what_the_other_package_returns(pair, queue_name):
    worker, producer = pair
    worker.work(queue_name, plan={"returns": {"sum": packed({"sum": 3})}}, store_results=True)
    now = producer.add(queue_name, "sum", [1, 2])
    later = producer.add(queue_name, "sum", [1, 2], delay_ms=100)
    answers = [producer.order("wait", job_id=job_id, timeout=10) for job_id in (now, later)]
    assert [producer.answer(number) for number in answers] == [packed({"sum": 3})] * 2


def test_failed_runs_leave_no_result(pair, queue_name):
    worker, reader = pair
    plan = {"hopeless": ["hard"], "returns": {"hard": packed(1)}}
    reader.watch(queue_name)
    worker.work(queue_name, plan=plan, store_results=True)
    job_id = reader.add(queue_name, "hard", None)
    reader.has_seen("dlq", job_id)
    assert reader.results(queue_name, job_id) == [None]


def test_nothing_is_stored_by_a_worker_that_keeps_no_results(pair, queue_name):
    worker, reader = pair
    worker.work(queue_name, plan={"returns": {"sum": packed(3)}})
    job_id = reader.add(queue_name, "sum", None)
    worker.has_run(job_id)
    worker.ask("stop")
    assert reader.results(queue_name, job_id) == [None]


def test_ours_is_told_why_a_job_it_waits_for_is_given_up(ours, theirs, queue_name, server):
    theirs.work(queue_name, plan={"hopeless": ["hard"], "is_held": True})
    job_id = ours.add(queue_name, "hard", None)
    waiting = ours.order("wait", job_id=job_id, timeout=10)
    eventually_sync(lambda: any(each["cmd"] == "xread" for each in server.client().client_list()))
    theirs.ask("release")
    # What the handler raised is in `failed` alone, which the other tells at about the same time.
    with pytest.raises(AssertionError, match=r"JobFailedError.*unrecoverable"):
        ours.answer(waiting)


def test_ours_is_told_why_a_job_was_given_up_before_it_waits(ours, theirs, queue_name):
    theirs.work(queue_name, plan={"hopeless": ["hard"]})
    job_id = ours.add(queue_name, "hard", None)
    eventually_sync(lambda: ours.dead_letters(queue_name))
    with pytest.raises(AssertionError, match=r"JobFailedError.*unrecoverable"):
        ours.ask("wait", job_id=job_id, timeout=3)
