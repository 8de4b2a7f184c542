"""`complete.lua` where many complete together: the head of the stream goes, and nothing but them.

The entries are deleted by one command, which knows no entries but only where to stop. So whatever
else may stand before that place is put there, by hands that mind no rule, and has to be there still.
"""

import random

import pytest

from chasquimq.broker import stream
from chasquimq.broker.stream import ResultKeeping
from tests.support.broker_builders import SILENT, TELLING, a_completion, an_entry
from tests.support.raw_queue import GROUP

WAYS = ("xtrim", "xdel")
# So many that the question is asked what stands at the head.
MANY = 64
TRIMS = pytest.mark.servers("valkey", "redis-7.0", "redis-8.6")


@pytest.fixture
def complete(keys, run):
    """Complete entries, and say which were there."""

    def call(entry_ids, telling=TELLING):
        batch = [a_completion(each, f"j{n}", "") for n, each in enumerate(entry_ids)]
        told = stream.complete(
            keys, GROUP, batch, has_xackdel=False, keeping=ResultKeeping(), telling=telling
        )
        return run(told)

    return call


@pytest.fixture
def deleted_by(raw):
    """How entries were deleted since the fixture was made: the commands with their counts."""
    client = raw.client

    def counts():
        found = client.info("commandstats")
        return {name: found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in WAYS}

    before = counts()
    return lambda: {name: count - before[name] for name, count in counts().items()}


def entries(many=MANY):
    return [an_entry(f"j{n}") for n in range(many)]


@TRIMS
def test_what_was_read_first_and_completed_goes_at_once(raw, complete, deleted_by):
    ours = raw.delivered("c1", *entries())
    in_flight = raw.delivered("c1", an_entry("in flight"))
    waiting = raw.waiting(an_entry("waits"))

    assert complete(ours) == [True] * MANY

    assert raw.entry_ids() == [*in_flight, *waiting]
    assert [each.entry_id for each in raw.held()] == in_flight
    assert deleted_by() == {"xtrim": 1, "xdel": 0}


@TRIMS
def test_the_last_that_was_read_goes_too_and_what_is_added_then_is_read(raw, complete, deleted_by):
    ours = raw.delivered("c1", *entries())
    waiting = raw.waiting(an_entry("waits"))

    assert complete(ours) == [True] * MANY
    assert raw.entry_ids() == waiting
    assert deleted_by() == {"xtrim": 1, "xdel": 0}

    later = raw.waiting(an_entry("later"))
    assert raw.read("c2") == [*waiting, *later]


@TRIMS
def test_an_emptied_stream_goes_on(raw, complete):
    assert complete(raw.delivered("c1", *entries())) == [True] * MANY
    assert raw.stream() == []

    assert raw.delivered("c1", an_entry("next")) == [each.entry_id for each in raw.held()]


def test_behind_one_that_is_still_in_flight_they_go_one_by_one(raw, complete, deleted_by):
    slow, *ours = raw.delivered("c1", an_entry("slow"), *entries())

    assert complete(ours) == [True] * MANY

    assert raw.entry_ids() == [slow]
    assert deleted_by()["xdel"] == 1


def test_those_before_and_behind_one_in_flight_go_all(raw, complete):
    before = raw.delivered("c1", *entries())
    (slow,) = raw.delivered("c1", an_entry("slow"))
    behind = raw.delivered("c1", *entries())

    assert complete(before + behind) == [True] * 2 * MANY
    assert raw.entry_ids() == [slow]


def test_of_a_batch_that_others_settled_in_part_only_ours_is_told(raw, complete):
    ours = raw.delivered("c1", *entries())
    complete(ours[:10], SILENT)

    assert complete(ours) == [False] * 10 + [True] * (MANY - 10)
    assert raw.stream() == []
    assert len(raw.events()) == MANY - 10


def test_what_another_hand_acknowledged_and_left_is_not_ours_to_delete(raw, keys, complete):
    (left,) = raw.delivered("c1", an_entry("left"))
    raw.client.xack(keys.stream, GROUP, left)
    ours = raw.delivered("c1", *entries())

    complete(ours)

    assert raw.entry_ids() == [left]


def test_what_was_there_before_the_group_began_is_not_ours_to_delete(raw, keys, complete):
    before = raw.client.xadd(keys.stream, an_entry("before"))
    raw.client.xgroup_create(keys.stream, GROUP, "$")
    ours = raw.delivered("c1", *entries())

    complete(ours)

    assert raw.entry_ids() == [before]


def test_what_waits_again_because_the_group_was_set_back_stays(raw, keys, complete):
    again = raw.delivered("c1", an_entry("again"), an_entry("again too"))
    ours = raw.delivered("c1", *entries())
    (in_flight,) = raw.delivered("c1", an_entry("in flight"))
    raw.client.xack(keys.stream, GROUP, *again)
    raw.client.xgroup_setid(keys.stream, GROUP, "0")

    complete(ours)

    assert raw.entry_ids() == [*again, in_flight]
    assert raw.read("c2")[:2] == again


def test_what_another_group_has_to_read_is_deleted_by_name_as_ever(raw, keys, complete, deleted_by):
    ours = raw.delivered("c1", *entries())
    raw.client.xgroup_create(keys.stream, "another", "0")

    assert complete(ours) == [True] * MANY
    assert raw.stream() == []
    assert deleted_by() == {"xtrim": 0, "xdel": 1}


def test_who_may_not_delete_at_the_head_deletes_one_by_one(raw, complete):
    ours = raw.delivered("c1", *entries())
    user = raw.client.acl_whoami()
    raw.client.execute_command("ACL", "SETUSER", user, "-xtrim")
    try:
        assert complete(ours) == [True] * MANY
    finally:
        raw.client.execute_command("ACL", "SETUSER", user, "+xtrim")
    assert raw.stream() == []


@pytest.mark.parametrize("seed", range(12))
def test_whatever_others_did_to_stream_and_group_nothing_but_the_completed_goes(
    raw, keys, complete, seed
):
    """Random hands add, read, claim, acknowledge, delete and set back; then a batch completes."""
    chance = random.Random(seed)
    client, known = raw.client, raw.waiting(*entries(100))

    def some(of, many):
        return chance.sample(of, min(len(of), many))

    for _ in range(chance.randint(3, 12)):
        held = [each.entry_id for each in raw.held()]
        match chance.choice(["add", "read", "read", "claim", "ack", "delete", "back", "complete"]):
            case "add":
                known += raw.waiting(*entries(chance.randint(1, 80)))
            case "read":
                count = chance.randint(1, 120)
                client.xreadgroup(GROUP, chance.choice("ab"), {keys.stream: ">"}, count=count)
            case "claim" if held:
                raw.claimed("c", some(held, 5))
            case "ack" if held:
                client.xack(keys.stream, GROUP, *some(held, 3))
            case "delete":
                client.xdel(keys.stream, *some(known, 3))
            case "back":
                client.xgroup_setid(keys.stream, GROUP, chance.choice(["0", *known]))
            case "complete" if held:
                complete(held[: chance.randint(1, len(held))])
    client.xreadgroup(GROUP, "a", {keys.stream: ">"}, count=90)
    held = [each.entry_id for each in raw.held()]
    batch = held if chance.random() < 0.5 else some(held, MANY + 10)
    before = raw.entry_ids()

    assert complete(batch) == [True] * len(batch)

    gone = set(batch)
    assert raw.entry_ids() == [each for each in before if each not in gone]
    assert [each.entry_id for each in raw.held()] == [each for each in held if each not in gone]
