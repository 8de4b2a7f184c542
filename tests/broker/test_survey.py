"""What is read of whole queues, for people: depths, due times, dead letters, names."""

import pytest

from chasquimq.broker import backlog, dlq, inspect, survey
from chasquimq.broker.survey import Depths
from chasquimq.errors import ServerReplyError
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.envelope import encode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import encode_member
from tests.support.builders import an_envelope


def test_a_queue_that_was_never_used_is_empty(run, keys):
    found = run(survey.depths(keys, "default"))
    assert found == Depths(0, None, 0, 0, None, 0, is_paused=False, added=0, is_known=False)
    assert found.lag_ms(5) is None


def test_depths_tell_what_waits_runs_and_is_late(server, run, keys):
    client = server.client()
    for _ in range(3):
        client.xadd(keys.stream, {"d": "x"})
    client.xgroup_create(keys.stream, "default", "0")
    client.xreadgroup("default", "c", {keys.stream: ">"}, count=2)
    client.zadd(keys.delayed, {b"a": 1_000, b"b": 5_000})
    client.set(keys.paused, 1)

    found = run(survey.depths(keys, "default"))

    counts_added = server.version >= (7, 0)
    assert found == Depths(3, 2, 0, 2, 1_000, 0, is_paused=True, added=3 if counts_added else None)
    assert (found.lag_ms(1_250), found.lag_ms(500)) == (250, 0)


def test_a_delayed_job_that_cannot_be_read_hides_no_other(server, run, keys):
    member = encode_member("welcome", encode(an_envelope()))
    server.client().zadd(keys.delayed, {b"\xff broken": 1, member: 2, b"far": float("inf")})
    found = run(survey.delayed_jobs(keys, limit=10))
    assert [(due.due_ms, due.name, due.envelope is None) for due in found] == [
        (1, "", True), (2, "welcome", False), (2**53, "", True),
    ]  # fmt: skip


def test_dead_letters_are_chosen_across_pages(server, drive, keys, monkeypatch):
    monkeypatch.setattr(dlq, "_PAGE", 2)
    for number in range(5):
        server.client().xadd(keys.dlq, {"d": b"", "reason": "malformed", "n": f"n{number}"})

    def is_odd(letter: DeadLetter) -> bool:
        return letter.name in ("n1", "n3")

    everything = drive(dlq.chosen(keys, lambda _: True, limit=4))
    odd = drive(dlq.chosen(keys, is_odd, limit=10))
    after = drive(dlq.chosen(keys, is_odd, limit=10, after=f"({everything[1].dlq_id}"))
    assert [letter.name for letter in everything] == ["n0", "n1", "n2", "n3"]
    assert [letter.name for letter in odd] == ["n1", "n3"]
    assert [letter.name for letter in after] == ["n3"]


def test_queues_are_found_by_their_lasting_keys_within_bounds(server, drive, queue_name):
    client, other = server.client(), QueueKeys(f"{queue_name}-other")
    client.xadd(QueueKeys(queue_name).stream, {"d": "x"})
    client.set(other.result("j1"), "x", ex=60)
    client.zadd(QueueKeys(f"{queue_name}-later").delayed, {b"m": 1})

    found = drive(survey.queues(most_keys=10**9))

    assert found.is_complete
    ours = {name for name in found.names if name.startswith(queue_name)}
    assert ours == {queue_name, f"{queue_name}-later"}


@pytest.mark.parametrize("key", [b"{chasqui:", b"{chasqui:q}", b"{chasqui:\xff}:stream", b"x"])
def test_keys_that_are_none_of_a_queue_are_passed_over(key):
    assert survey._queue_of(key) is None  # noqa: SLF001 -- keys nobody can make through the library


@pytest.mark.parametrize(
    "look",
    [
        lambda keys: survey.depths(keys, "default"),
        lambda keys: inspect.counts(keys, "default"),
        lambda keys: backlog.work(keys, "default", min_idle_ms=1),
    ],
    ids=["depths", "counts", "work"],
)
def test_who_may_not_see_what_is_in_flight_is_not_told_that_nothing_is(keys, raw, connect_as, look):
    raw.delivered("c1", {"d": b"x"})
    with pytest.raises(ServerReplyError, match="NOPERM"):
        connect_as("+@all", "-xpending").run(look(keys))
