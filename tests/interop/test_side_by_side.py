"""One queue, worked by one worker of each package at the same time."""

from collections import Counter

import pytest

from tests.support.eventually import eventually_sync
from tests.support.party import PATIENCE_SECS, job

pytestmark = pytest.mark.servers("redis-8.6")

QUICK = {"kind": "fixed", "delay_ms": 20, "jitter_ms": 0}


class Keys:
    """The raw keys of a queue."""

    def __init__(self, client, queue):
        self._client = client
        self._tag = f"{{chasqui:{queue}}}"

    def contents(self):
        """How much there is in the stream, pending, delayed and dead."""
        client, tag = self._client, self._tag
        pending = client.xpending(f"{tag}:stream", "default")["pending"]
        delayed = client.zcard(f"{tag}:delayed")
        return client.xlen(f"{tag}:stream"), pending, delayed, client.xlen(f"{tag}:dlq")

    def pending_of(self, consumer):
        consumers = self._client.xinfo_consumers(f"{self._tag}:stream", "default")
        return next((each["pending"] for each in consumers if each["name"] == consumer), 0)

    def waiting(self):
        """How many entries no consumer was given yet."""
        [group] = self._client.xinfo_groups(f"{self._tag}:stream")
        return group["lag"]

    def leader(self):
        return (self._client.get(f"{self._tag}:promoter:lock") or b"").decode()


@pytest.fixture
def keys(server, queue_name):
    return Keys(server.client(), queue_name)


def some_of_each_kind(label):
    """200 jobs: most immediate, some delayed, some that fail at first, some with ids."""
    for i in range(200):
        match i % 10:
            case 0:
                yield job("flaky", [label, i], attempts=3, backoff=QUICK)
            case 1:
                yield job("later", [label, i], delay_ms=20 * (i % 7))
            case 2:
                yield job("later-flaky", [label, i], delay_ms=50, attempts=2, backoff=QUICK,
                          job_id=f"{label}-{i}")  # fmt: skip
            case _:
                yield job("plain", [label, i])


def test_every_job_succeeds_exactly_once_in_one_of_two_workers(ours, theirs, queue_name, keys):
    parties = (ours, theirs)
    asked = [
        (party, party.order("add_bulk", queue=queue_name, jobs=list(some_of_each_kind(party.name))))
        for party in parties
    ]
    ids = [job_id for party, number in asked for job_id in party.answer(number)]
    plan = {"failures": {"flaky": 2, "later-flaky": 1}, "is_held": True}
    for party in parties:
        party.work(queue_name, plan=plan, concurrency=10)
    # Nobody may finish before both have something to do.
    for party in parties:
        party.until(lambda party=party: party.started)
    for party in parties:
        party.ask("release")
    eventually_sync(lambda: set(ids) <= succeeded(parties), timeout=3 * PATIENCE_SECS)
    eventually_sync(lambda: keys.contents() == (0, 0, 0, 0))
    for party in parties:
        party.ask("stop")

    runs = ours.ended + theirs.ended
    assert Counter(run.id for run in runs if run.outcome == "ok") == Counter(ids)
    assert Counter(run.number for run in runs if run.name == "flaky") == {1: 40, 2: 40, 3: 40}
    assert Counter(run.number for run in runs if run.name == "later-flaky") == {1: 40, 2: 40}
    assert Counter(run.number for run in runs if run.name in {"plain", "later"}) == {1: 320}
    assert len(ours.ended) > 10
    assert len(theirs.ended) > 10
    assert keys.contents() == (0, 0, 0, 0)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_one_promoter_leads_among_both_and_the_other_follows(
    ours, theirs, queue_name, keys, first
):
    leader, follower = (ours, theirs) if first == "ours" else (theirs, ours)
    leader.work(queue_name, consumer_id="leader")
    eventually_sync(lambda: keys.leader() == "leader")
    follower.work(queue_name, consumer_id="follower")
    jobs = [job("later", i, delay_ms=25 * i) for i in range(1, 41)]
    ids = leader.add_bulk(queue_name, jobs)
    holders = Counter()

    def all_have_run():
        holders[keys.leader()] += 1
        return set(ids) <= succeeded((ours, theirs))

    eventually_sync(all_have_run)
    assert holders.keys() == {"leader"}
    assert holders["leader"] > 10
    leader.ask("stop")
    # Given up, not waited for: the lock would live for five seconds.
    eventually_sync(lambda: keys.leader() == "follower", timeout=3)
    leader.restart()
    job_id = leader.add(queue_name, "later", None, delay_ms=50)
    follower.has_run(job_id)
    runs = ours.ended + theirs.ended
    assert Counter(run.id for run in runs) == Counter([*ids, job_id])


@pytest.mark.parametrize("backlog", [0, 200])
def test_jobs_that_a_stopping_worker_of_ours_has_not_begun_run_at_once_in_the_other(
    ours, theirs, queue_name, keys, backlog
):
    """With more jobs waiting in the stream than those handed back, and with none."""
    quick = ours.add_bulk(queue_name, [job("quick", i) for i in range(500)])
    slow = ours.add_bulk(queue_name, [job("slow", i) for i in range(40 + backlog)])
    ours.work(queue_name, plan={"held": ["slow"]}, consumer_id="ours", concurrency=4,
              max_attempts=1)  # fmt: skip
    ours.has_run(*quick)
    # It reads ahead while handlers are quick; now four run and the rest of what it read waits.
    eventually_sync(lambda: keys.pending_of("ours") > 4 and keys.waiting() <= backlog)
    theirs.work(queue_name, max_attempts=1)
    stopping = ours.order("stop")
    held = {run.id for run in ours.started if run.name == "slow"}
    theirs.has_run(*(set(slow) - held))
    ours.ask("release")
    ours.answer(stopping)
    assert keys.contents() == (0, 0, 0, 0)
    runs = [run for run in ours.ended + theirs.ended if run.name == "slow"]
    assert Counter(run.id for run in runs) == Counter(slow)
    assert {run.by for run in runs if run.id in held} == {"ours"}


def test_jobs_of_a_worker_that_crashed_run_in_the_other(pair, queue_name, keys):
    crashing, other = pair
    ids = crashing.add_bulk(queue_name, [job("held", i) for i in range(3)])
    crashing.work(queue_name, plan={"is_held": True})
    crashing.until(lambda: len(crashing.started) == 3)
    crashing.kill()
    other.work(queue_name, claim_min_idle_ms=200, read_block_ms=50)
    runs = other.has_run(*ids)
    assert sorted(run.id for run in runs) == sorted(ids)
    eventually_sync(lambda: keys.contents() == (0, 0, 0, 0))


def test_a_long_run_in_ours_is_not_taken_over_by_the_reference_engine(
    ours, theirs, queue_name, keys
):
    lease_ms = 1_000
    job_id = ours.add(queue_name, "long", None)
    ours.work(queue_name, plan={"held": ["long"]}, claim_min_idle_ms=lease_ms)
    ours.until(lambda: ours.started)
    theirs.work(queue_name, claim_min_idle_ms=lease_ms, read_block_ms=50)
    later = [ours.add(queue_name, "later", None, delay_ms=each) for each in (1_200, 1_800, 2_400)]
    eventually_sync(lambda: set(later) <= succeeded((ours, theirs)))
    ours.ask("release")
    ours.has_run(job_id)
    eventually_sync(lambda: keys.contents() == (0, 0, 0, 0))
    assert [run.by for run in ours.started + theirs.started if run.id == job_id] == ["ours"]


def succeeded(parties):
    return {run.id for party in parties for run in party.ended if run.outcome == "ok"}
