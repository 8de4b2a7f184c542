"""Dead letters that one package writes and the other reads, replays, and runs."""

import pytest

from chasquimq.wire.envelope import decode
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.servers("redis-8.6")

DOCUMENTED = ("dlq_id", "source_id", "reason", "detail", "payload", "name")
QUICK = {"kind": "fixed", "delay_ms": 20, "jitter_ms": 0}

# What no producer writes, and as what it ends: reason, detail, name, payload.
NO_JOBS = [
    ({"d": b"\xc1garbage", "n": "x"}, ("decode_failed", None, "", b"\xc1garbage")),
    ({"n": "x"}, ("malformed", "missing or non-bytes payload field", "", b"")),
    ({"d": b"x" * 2_000, "n": "x"}, ("oversize_payload", None, "x", b"x" * 2_000)),
]


def bury(worker, queue):
    """Let `worker` write two dead letters, `hard` and then `bad`; the ids of their jobs."""
    worker.watch(queue)
    worker.work(queue, plan={"hopeless": ["hard"], "failures": {"bad": 99}})
    ids = [worker.add(queue, "hard", {"k": "h"})]
    worker.has_seen("dlq", *ids)
    ids.append(worker.add(queue, "bad", {"k": "b"}, attempts=2, backoff=QUICK))
    worker.has_seen("dlq", *ids)
    worker.restart()
    return ids


def test_a_dead_letter_is_the_same_for_both(pair, queue_name):
    writer, reader = pair
    ids = bury(writer, queue_name)
    seen = reader.dead_letters(queue_name)
    for theirs, own in zip(seen, writer.dead_letters(queue_name), strict=True):
        assert {key: theirs[key] for key in DOCUMENTED} == {key: own[key] for key in DOCUMENTED}
    kept = [decode(letter["payload"]) for letter in seen]
    assert [(letter["name"], letter["reason"], letter["detail"]) for letter in seen] == [
        ("hard", "unrecoverable", None),
        ("bad", "retries_exhausted", None),
    ]
    # The attempt is as it was before the last run.
    assert [(each.id, each.attempt) for each in kept] == [(ids[0], 0), (ids[1], 1)]


def test_dead_letters_are_replayed_by_the_other_with_a_full_budget(pair, queue_name):
    writer, replayer = pair
    ids = bury(writer, queue_name)
    assert replayer.ask("replay", queue=queue_name) == 2
    assert writer.dead_letters(queue_name) == replayer.dead_letters(queue_name) == []
    replayer.work(queue_name, plan={"failures": {"bad": 1}})
    runs = replayer.has_run(*ids)
    assert sorted((run.name, run.number, run.data["k"]) for run in runs) == [
        ("bad", 1, "b"),
        ("bad", 2, "b"),
        ("hard", 1, "h"),
    ]


def test_replayed_jobs_can_be_run_by_the_one_who_had_given_them_up(pair, queue_name):
    writer, replayer = pair
    ids = bury(writer, queue_name)
    earlier = len(writer.ended)
    assert replayer.ask("replay", queue=queue_name) == 2
    writer.work(queue_name)
    again = writer.has_run(*ids)[earlier:]
    assert sorted((run.name, run.number) for run in again) == [("bad", 1), ("hard", 1)]


def test_a_replay_stops_at_its_limit_and_begins_with_the_oldest(pair, queue_name):
    writer, replayer = pair
    bury(writer, queue_name)
    _, newest = writer.dead_letters(queue_name)
    assert replayer.ask("replay", queue=queue_name, limit=1) == 1
    assert writer.dead_letters(queue_name) == [newest]


def test_two_replays_at_once_move_each_dead_letter_once(ours, theirs, queue_name, server):
    ids = bury(ours, queue_name)
    under_way = [(party, party.order("replay", queue=queue_name)) for party in (ours, theirs)]
    assert sum(party.answer(number) for party, number in under_way) == len(ids)
    assert server.client().xlen(f"{{chasqui:{queue_name}}}:stream") == len(ids)


def test_entries_that_are_no_jobs_end_as_the_same_dead_letters(either, queue_name, server):
    worker = either
    stream = f"{{chasqui:{queue_name}}}:stream"
    sources = [server.client().xadd(stream, fields).decode() for fields, _ in NO_JOBS]
    worker.work(queue_name, max_payload_bytes=1_000)
    eventually_sync(lambda: len(worker.dead_letters(queue_name)) == len(NO_JOBS))
    letters = {letter["source_id"]: letter for letter in worker.dead_letters(queue_name)}
    assert [
        tuple(letters[source][key] for key in ("reason", "detail", "name", "payload"))
        for source in sources
    ] == [expected for _, expected in NO_JOBS]
    assert worker.started == []


def test_a_job_that_may_not_run_at_all_ends_as_a_dead_letter(either, theirs, queue_name):
    """Only the reference engine lets one add such a job."""
    worker = either
    job_id = theirs.add(queue_name, "never", {"k": 1}, attempts=0)
    worker.watch(queue_name)
    worker.work(queue_name)
    [told] = worker.has_seen("dlq", job_id)
    assert (told.job_name, told.fields["attempt"]) == ("never", 0)
    [letter] = worker.dead_letters(queue_name)
    assert (letter["reason"], letter["name"]) == ("retries_exhausted", "never")
    assert (decode(letter["payload"]).id, worker.started) == (job_id, [])


def test_dead_letters_that_are_no_jobs_are_not_replayed(pair, queue_name, server):
    writer, replayer = pair
    server.client().xadd(f"{{chasqui:{queue_name}}}:stream", {"d": b"\xc1garbage"})
    writer.work(queue_name)
    [letter] = eventually_sync(lambda: writer.dead_letters(queue_name))
    assert replayer.ask("replay", queue=queue_name) == 0
    assert [each["dlq_id"] for each in replayer.dead_letters(queue_name)] == [letter["dlq_id"]]
