"""One queue, worked by one worker of each package at the same time."""

from collections import Counter

import pytest

from chasquimq.config import LEAST_LEASE_MS
from tests.support.eventually import eventually_sync
from tests.support.party import PATIENCE_SECS, job

pytestmark = pytest.mark.servers("redis-8.6")

LEASE_MS = 30_000
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

    def consumers(self):
        """How much each consumer holds that has ever read."""
        found = self._client.xinfo_consumers(f"{self._tag}:stream", "default")
        return {each["name"].decode(): each["pending"] for each in found}

    def claimable(self):
        """How many entries are pending for so long that the next reader claims them."""
        pending = self._client.xpending_range(f"{self._tag}:stream", "default", "-", "+", 1_000)
        return sum(each["time_since_delivered"] > LEASE_MS for each in pending)

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
    assert len(ours.started + theirs.started) == len(runs)
    assert min(len(ours.ended), len(theirs.ended)) > 10
    assert keys.contents() == (0, 0, 0, 0)


def test_one_promoter_leads_among_both_and_the_other_follows(pair, queue_name, keys):
    leader, follower = pair
    leader.work(queue_name, consumer_id="leader")
    eventually_sync(lambda: keys.leader() == "leader")
    follower.work(queue_name, consumer_id="follower")
    jobs = [job("later", i, delay_ms=25 * i) for i in range(1, 41)]
    ids = leader.add_bulk(queue_name, jobs)
    holders = Counter()

    def all_have_run():
        holders[keys.leader()] += 1
        return set(ids) <= succeeded(pair)

    eventually_sync(all_have_run)
    assert holders.keys() == {"leader"}
    assert holders["leader"] > 10
    leader.ask("stop")
    # Given up, not waited for: the lock would live for five seconds.
    eventually_sync(lambda: keys.leader() == "follower", timeout=3)
    leader.restart()
    job_id = leader.add(queue_name, "later", None, delay_ms=50)
    follower.has_run(job_id)
    runs = leader.ended + follower.ended
    assert Counter(run.id for run in runs) == Counter([*ids, job_id])


def test_one_that_stops_does_not_forget_what_is_pending_under_its_name(
    either, queue_name, keys, server
):
    """So what a worker that leaves has in hand may be passed on to one of either kind."""
    client, stream = server.client(), f"{{chasqui:{queue_name}}}:stream"
    client.xgroup_create(stream, "default", "0", mkstream=True)
    entry_id = client.xadd(stream, {"d": b"held by another"})
    client.xreadgroup("default", "another", {stream: ">"}, count=1)
    either.work(queue_name, consumer_id="staying", claim_min_idle_ms=LEASE_MS)
    either.has_run(either.add(queue_name, "first", None))
    client.xclaim(stream, "default", "staying", 0, [entry_id], justid=True)
    either.ask("stop")
    either.restart()
    assert keys.consumers()["staying"] == 1


def with_jobs_read_ahead(ours, queue, keys, count, lease_ms=LEASE_MS):
    """Let ours have begun four slow jobs and have read more of them, of `count`; ids by that."""
    quick = ours.add_bulk(queue, [job("quick", i) for i in range(500)])
    slow = ours.add_bulk(queue, [job("slow", i) for i in range(count)])
    ours.work(queue, plan={"held": ["slow"]}, consumer_id="ours", concurrency=4, max_attempts=1,
              claim_min_idle_ms=lease_ms)  # fmt: skip
    ours.has_run(*quick)
    eventually_sync(lambda: keys.consumers().get("ours", 0) > 4)
    ours.until(lambda: len(ours.started) == len(quick) + 4)
    begun = {run.id for run in ours.started if run.name == "slow"}
    return begun, set(slow) - begun


def test_jobs_that_ours_hands_back_when_it_stops_run_in_the_other_that_waits_for_some(
    ours, theirs, queue_name, keys
):
    begun, rest = with_jobs_read_ahead(ours, queue_name, keys, 40)
    theirs.work(queue_name, max_attempts=1, consumer_id="theirs")
    # What ours, on a slow machine, did not read ahead, the other may have had and have run.
    eventually_sync(lambda: keys.waiting() == 0 and keys.consumers().get("theirs") == 0)
    finish_stopping(ours, ours.order("stop"), theirs, begun, rest)
    eventually_sync(lambda: keys.contents() == (0, 0, 0, 0))


@pytest.mark.parametrize("lease_ms", [LEASE_MS, LEAST_LEASE_MS], ids=["same", "shorter"])
def test_jobs_that_ours_hands_back_when_it_stops_run_first_in_the_other_that_comes_later(
    ours, theirs, queue_name, keys, lease_ms
):
    """Whether the leases of ours are as long as the other's or shorter."""
    begun, rest = with_jobs_read_ahead(ours, queue_name, keys, 240, lease_ms)
    stopping = ours.order("stop")
    handed_back = eventually_sync(keys.claimable)
    theirs.work(queue_name, max_attempts=1, concurrency=1)
    finish_stopping(ours, stopping, theirs, begun, rest)
    first = [run.data for run in theirs.ended[:handed_back]]
    assert sorted(first) == list(range(len(begun), len(begun) + handed_back))
    eventually_sync(lambda: keys.contents() == (0, 0, 0, 0))


def finish_stopping(ours, stopping, theirs, begun, rest):
    """What was not begun runs in theirs, before its lease would run out; what was, in ours."""
    theirs.has_run(*rest)
    ours.ask("release")
    ours.answer(stopping)
    slow = [run for run in ours.ended + theirs.ended if run.name == "slow"]
    assert Counter((run.id, run.by, run.number) for run in slow) == Counter(
        [(job_id, "ours", 1) for job_id in begun] + [(job_id, "reference", 1) for job_id in rest]
    )


def test_jobs_of_a_worker_that_crashed_run_in_the_other(pair, queue_name, keys):
    crashing, other = pair
    ids = crashing.add_bulk(queue_name, [job("held", i) for i in range(3)])
    crashing.work(queue_name, plan={"is_held": True})
    crashing.until(lambda: len(crashing.started) == 3)
    crashing.kill()
    other.work(queue_name, claim_min_idle_ms=LEAST_LEASE_MS, read_block_ms=50)
    runs = other.has_run(*ids)
    # For ours the run that crashed counts; the reference engine tells its handlers nothing of it.
    number = 2 if other.name == "ours" else 1
    assert sorted((run.id, run.number) for run in runs) == [(each, number) for each in sorted(ids)]
    eventually_sync(lambda: keys.contents() == (0, 0, 0, 0))


def test_a_long_run_in_ours_is_not_taken_over_by_the_reference_engine(
    ours, theirs, queue_name, keys
):
    lease_ms = LEAST_LEASE_MS
    job_id = ours.add(queue_name, "long", None)
    ours.work(queue_name, plan={"held": ["long"]}, claim_min_idle_ms=lease_ms)
    ours.until(lambda: ours.started)
    theirs.work(queue_name, claim_min_idle_ms=lease_ms, read_block_ms=50)
    later = [
        ours.add(queue_name, "later", None, delay_ms=each) for each in (lease_ms, lease_ms + 2_000)
    ]
    eventually_sync(lambda: set(later) <= succeeded((ours, theirs)), timeout=30)
    ours.ask("release")
    ours.has_run(job_id)
    eventually_sync(lambda: keys.contents() == (0, 0, 0, 0))
    assert [run.by for run in ours.started + theirs.started if run.id == job_id] == ["ours"]


def succeeded(parties):
    return {run.id for party in parties for run in party.ended if run.outcome == "ok"}
