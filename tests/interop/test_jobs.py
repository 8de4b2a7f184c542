"""Jobs that one package adds and the other runs: names, data, delays, bulk, retries."""

from itertools import pairwise

import pytest

from tests.support.party import HandlerRun, job

pytestmark = pytest.mark.servers("redis-8.6")

QUICK = {"kind": "fixed", "delay_ms": 20, "jitter_ms": 0}

SHAPES = {
    "nil": None,
    "booleans": [True, False],
    "integers": [0, -1, 127, 128, -32, -33, 255, 256, 65_536, 2**32, 2**63, 2**64 - 1, -(2**63)],
    "floats": [0.0, -0.5, 3.5, 1e300],
    "text": ["", "plain", "Größe 東京 🦙", "x" * 300],
    "bytes": [b"", b"\x00\xff", bytes(range(256)) * 2],
    "number": 42,
    "string": "not in a container",
    "raw bytes": b"\x94\xc0",
    "empty list": [],
    "empty map": {},
    "nested": {"a": [{"b": {"c": [1, [2, [3, None]]]}}]},
    "large": {"blob": b"\x5a" * 200_000, "text": "y" * 70_000, "list": list(range(20_000))},
}


def test_the_parties_are_two_packages(ours, theirs):
    assert theirs.ask("version") == "1.3.0"
    assert ours.ask("version") != "1.3.0"


@pytest.mark.parametrize("name", ["send-email", "", "chaski 🏃 räpido", "n" * 256, "ü" * 128])
def test_a_job_keeps_its_id_name_data_and_time_of_creation(pair, queue_name, server, name):
    producer, worker = pair
    before_ms = server_ms(server)
    job_id = producer.add(queue_name, name, {"k": 1})
    after_ms = server_ms(server)
    worker.work(queue_name)
    [run] = worker.has_run(job_id)
    assert run == HandlerRun(
        by=worker.name, id=job_id, name=name, data={"k": 1}, number=1,
        created_at_ms=run.created_at_ms, at_ms=run.at_ms, outcome="ok",
    )  # fmt: skip
    assert before_ms <= run.created_at_ms <= after_ms


def test_every_shape_of_data_arrives_as_it_was_given(pair, queue_name):
    producer, worker = pair
    added = {producer.add(queue_name, name, data): (name, data) for name, data in SHAPES.items()}
    worker.work(queue_name)
    runs = worker.has_run(*added)
    assert {run.id: (run.name, run.data) for run in runs} == added
    assert len(runs) == len(added)


def test_keys_of_maps_need_not_be_text_in_ours(ours, theirs, queue_name):
    added = theirs.add(queue_name, "keys", {1: {b"two": None}})
    ours.work(queue_name)
    [run] = ours.has_run(added)
    assert run.data == {1: {b"two": None}}


@pytest.mark.parametrize("job_id", [None, "my own id: ü"])
def test_a_delayed_job_runs_once_and_not_before_its_time(pair, queue_name, job_id):
    producer, worker = pair
    worker.work(queue_name)
    options = {"job_id": job_id} if job_id else {}
    added = producer.add(queue_name, "later", [1], delay_ms=200, **options)
    assert added == job_id or job_id is None
    [run] = worker.has_run(added)
    assert (run.name, run.data, run.number) == ("later", [1], 1)
    # The reference engine sets the due time first and the time of creation a moment later.
    assert run.at_ms >= run.created_at_ms + 200 - 5


def test_a_job_for_a_moment_runs_at_that_moment(pair, queue_name, server):
    producer, worker = pair
    worker.work(queue_name)
    at_ms = server_ms(server) + 300
    added = producer.add(queue_name, "at", None, at_ms=at_ms)
    [run] = worker.has_run(added)
    assert run.at_ms >= at_ms


def test_bulk_jobs_arrive_in_order_with_their_names_and_data(pair, queue_name):
    producer, worker = pair
    names = ["" if i % 3 == 0 else f"n{i % 3}" for i in range(120)]
    ids = producer.add_bulk(queue_name, [job(name, {"i": i}) for i, name in enumerate(names)])
    worker.work(queue_name, concurrency=1)
    runs = worker.has_run(*ids)
    assert [(run.id, run.name, run.data) for run in runs] == [
        (ids[i], name, {"i": i}) for i, name in enumerate(names)
    ]


def test_bulk_jobs_keep_options_of_their_own(pair, queue_name):
    producer, worker = pair
    jobs = [
        job("plain", 0),
        job("chosen", 1, job_id="chosen-id"),
        job("later", 2, delay_ms=100),
        job("later-chosen", 3, delay_ms=50, job_id="later-id"),
        job("flaky", 4, attempts=2, backoff=QUICK),
    ]
    ids = producer.add_bulk(queue_name, jobs)
    worker.work(queue_name, plan={"failures": {"flaky": 1}}, max_attempts=1)
    runs = worker.has_run(*ids)
    assert (ids[1], ids[3]) == ("chosen-id", "later-id")
    assert sorted((ids.index(run.id), run.number, run.outcome) for run in runs) == [
        (0, 1, "ok"), (1, 1, "ok"), (2, 1, "ok"), (3, 1, "ok"), (4, 1, "failed"), (4, 2, "ok"),
    ]  # fmt: skip


def test_a_job_that_fails_is_run_again_until_it_succeeds(pair, queue_name):
    producer, worker = pair
    added = producer.add(queue_name, "flaky", {"k": [1]}, job_id="flaky-1")
    worker.work(queue_name, plan={"failures": {"flaky": 2}})
    runs = worker.has_run(added)
    assert [(run.number, run.outcome) for run in runs] == [(1, "failed"), (2, "failed"), (3, "ok")]
    for run in runs:
        same = (added, "flaky", {"k": [1]}, runs[0].created_at_ms)
        assert (run.id, run.name, run.data, run.created_at_ms) == same
    assert producer.dead_letters(queue_name) == []


def test_a_jobs_own_backoff_is_the_one_that_is_used(pair, queue_name):
    producer, worker = pair
    curve = {"kind": "exponential", "jitter_ms": 0}
    backoffs = {
        "fixed": ({"kind": "fixed", "delay_ms": 90, "jitter_ms": 0}, [90, 90]),
        "growing": (curve | {"delay_ms": 40, "multiplier": 3.0}, [40, 120]),
        "doubling": (curve | {"delay_ms": 50}, [50, 100]),
        # Without its cap the second delay would be longer than the test waits.
        "capped": (curve | {"delay_ms": 60, "multiplier": 1e3, "max_delay_ms": 100}, [60, 100]),
        # A number leaves the jitter to the worker; in ours it can also take some away.
        "number": (220, [120, 120] if worker.name == "ours" else [220, 220]),
    }
    worker.work(queue_name, plan={"failures": dict.fromkeys(backoffs, 2)}, max_attempts=1)
    added = {
        producer.add(queue_name, name, 0, attempts=3, backoff=backoff): least_gaps
        for name, (backoff, least_gaps) in backoffs.items()
    }
    runs = worker.has_run(*added)
    for job_id, least_gaps in added.items():
        times = [run.at_ms for run in runs if run.id == job_id]
        gaps = [late - early for early, late in pairwise(times)]
        assert all(gap >= least for gap, least in zip(gaps, least_gaps, strict=True))


@pytest.mark.parametrize(
    ("own_attempts", "worker_attempts", "runs_made"), [(2, 5, 2), (4, 1, 4), (None, 3, 3)]
)
def test_a_job_gets_its_own_number_of_runs_else_the_workers(
    pair, queue_name, own_attempts, worker_attempts, runs_made
):
    producer, worker = pair
    producer.watch(queue_name)
    worker.work(queue_name, plan={"failures": {"bad": 99}}, max_attempts=worker_attempts)
    options = {"attempts": own_attempts} if own_attempts else {}
    added = producer.add(queue_name, "bad", 0, backoff=QUICK, **options)
    producer.has_seen("dlq", added)
    worker.until(lambda: len(worker.ended) >= runs_made)
    numbers = range(1, runs_made + 1)
    assert [(run.id, run.number) for run in worker.ended] == [(added, each) for each in numbers]
    [letter] = producer.dead_letters(queue_name)
    assert (letter["reason"], letter["name"]) == ("retries_exhausted", "bad")


def test_a_hopeless_job_is_run_once(pair, queue_name):
    producer, worker = pair
    producer.watch(queue_name)
    worker.work(queue_name, plan={"hopeless": ["hard"]})
    added = producer.add(queue_name, "hard", 0, attempts=9)
    producer.has_seen("dlq", added)
    worker.until(lambda: worker.ended)
    assert [(run.id, run.outcome) for run in worker.ended] == [(added, "hopeless")]
    [letter] = producer.dead_letters(queue_name)
    assert (letter["reason"], letter["name"]) == ("unrecoverable", "hard")


def server_ms(server):
    seconds, micros = server.client().time()
    return seconds * 1_000 + micros // 1_000
