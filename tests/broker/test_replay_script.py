"""`replay.lua`: dead letters go round again, each once, whoever replays."""

import pytest

from chasquimq.broker import dlq
from chasquimq.broker.dlq import Revival
from chasquimq.errors import ServerReplyError
from tests.support.broker_builders import SILENT, TELLING, TOLD_MS, an_entry, an_envelope


@pytest.fixture
def letter(raw, keys):
    """Write a dead letter, and say how it goes back."""

    def write(job_id="j1", name="mail"):
        fields = {
            "d": an_envelope(job_id, attempt=2),
            "source_id": "1-1",
            "reason": "unrecoverable",
        }
        dlq_id = raw.client.xadd(keys.dlq, fields)
        return Revival(dlq_id.decode(), job_id, name, an_envelope(job_id))

    return write


@pytest.fixture
def replay(keys):
    def call(*revivals, telling=TELLING):
        return dlq.replay(keys, revivals, telling=telling)

    return call


def test_letters_go_back_to_the_stream_in_order_and_are_told(run, raw, keys, letter, replay):
    first, second, stays = letter("j1", "mail"), letter("j2", ""), letter("j3")
    raw.client.set(keys.outcome("j1"), b"f", ex=60)
    raw.client.set(keys.outcome("j3"), b"f", ex=60)

    assert run(replay(first, second)) == 2

    assert raw.stream() == [an_entry("j1", "mail"), {"d": an_envelope("j2")}]
    assert raw.events() == [f"e=waiting id=j1 ts={TOLD_MS} n=mail", f"e=waiting id=j2 ts={TOLD_MS}"]
    everything = raw.everything()
    assert sorted(everything) == ["dlq", "events", "held", "outcome:j3", "stream"]
    assert [dlq_id.decode() for dlq_id, _ in everything["dlq"]] == [stays.dlq_id]


def test_a_letter_that_is_gone_is_not_replayed_and_keeps_its_outcome(
    run, raw, keys, letter, replay
):
    gone, there = letter("j1"), letter("j2")
    raw.client.xdel(keys.dlq, gone.dlq_id)
    raw.client.set(keys.outcome("j1"), b"f", ex=60)

    assert run(replay(gone, there)) == 1
    assert raw.stream() == [an_entry("j2")]
    assert raw.client.get(keys.outcome("j1")) == b"f"


def test_two_replays_of_one_letter_move_it_once(run, connect, raw, letter, replay):
    revival = letter()

    assert run(replay(revival)) == 1
    before = raw.everything()
    assert connect().run(replay(revival)) == 0
    assert raw.everything() == before


def test_a_letter_named_twice_in_one_call_is_moved_once(run, raw, letter, replay):
    revival = letter()

    assert run(replay(revival, revival)) == 1
    assert raw.stream() == [an_entry("j1")]


def test_with_events_off_nothing_is_told(run, raw, letter, replay):
    assert run(replay(letter(), telling=SILENT)) == 1
    assert raw.events() == []


def test_without_memory_nothing_is_lost_and_the_same_call_works_later(
    run, raw, keys, letter, replay, without_memory
):
    call = replay(letter("j1"), letter("j2"))
    raw.client.set(keys.outcome("j1"), b"f", ex=60)
    before = raw.everything()
    with without_memory(), pytest.raises(ServerReplyError) as refused:
        run(call)
    assert refused.value.kind == "OOM"
    assert raw.everything() == before

    assert run(call) == 2


def test_a_replay_is_never_sent_twice_by_itself(keys, letter, replay):
    """It would be harmless, but the count of the first sending could not be told any more."""
    assert replay(letter()).repeatable is False
