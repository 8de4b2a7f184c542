"""`dead_letter.lua`: a delivery that is given up moves to the DLQ, if it is still ours to move."""

import pytest

from chasquimq.broker import dlq, results
from chasquimq.broker.dlq import Burial
from chasquimq.broker.results import Kept
from chasquimq.errors import DlqReason, ServerReplyError
from chasquimq.wire.entry import DeadLetter
from tests.support.broker_builders import SILENT, TELLING, TOLD_MS, an_entry, an_envelope
from tests.support.raw_queue import GROUP

NO_OUTCOME = (0, b"")


@pytest.fixture
def bury(keys):
    def call(burial, *, consumer="c1", cap=1_000, outcome=(60, b"f!"), telling=TELLING):
        return dlq.dead_letter(
            keys, GROUP, consumer, burial, cap=cap, outcome=outcome, telling=telling
        )

    return call


@pytest.fixture
def delivery(raw):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    return entry_id


def a_burial(entry_id, job_id="j1", **fields):
    chosen = {
        "source_id": entry_id.decode(),
        "reason": DlqReason.RETRIES_EXHAUSTED,
        "payload": an_envelope("j1", attempt=2),
        "name": "mail",
    }
    return Burial(entry_id, job_id, attempt=3, letter=DeadLetter(**(chosen | fields)))


def test_a_given_up_job_is_in_the_dlq_its_outcome_is_kept_and_it_is_told(
    run, raw, keys, bury, delivery
):
    burial = a_burial(
        delivery,
        error="ValueError: nope",
        traceback="Traceback ...",
        attempts=3,
        failed_at=TOLD_MS,
        consumer="c1",
    )

    assert run(bury(burial)) is True

    ((dlq_id, fields),) = raw.client.xrange(keys.dlq)
    assert list(fields.items()) == [
        (b"d", an_envelope("j1", attempt=2)),
        (b"n", b"mail"),
        (b"source_id", delivery),
        (b"reason", b"retries_exhausted"),
        (b"error", b"ValueError: nope"),
        (b"traceback", b"Traceback ..."),
        (b"attempts", b"3"),
        (b"failed_at", str(TOLD_MS).encode()),
        (b"consumer", b"c1"),
    ]
    assert raw.everything() == {
        "held": [],
        "stream": [],
        "dlq": [(dlq_id, fields)],
        "outcome:j1": b"f!",
        "events": raw.client.xrange(keys.events),
    }
    assert raw.events() == [f"e=dlq id=j1 ts={TOLD_MS} n=mail attempt=3 reason=retries_exhausted"]
    assert raw.client.ttl(keys.outcome("j1")) == 60
    assert [letter.dlq_id for letter in run(dlq.peek(keys, limit=9))] == [dlq_id.decode()]


def test_a_value_that_an_earlier_job_of_the_id_left_does_not_pass_for_this_ones(
    run, raw, keys, bury, delivery
):
    raw.client.set(keys.result("j1"), b"\x2a", ex=60)

    assert run(bury(a_burial(delivery))) is True

    assert run(results.read(keys, ["j1"])) == [Kept(None, b"f!")]


def test_what_is_not_ours_any_more_takes_no_value_along(run, raw, keys, bury, delivery):
    raw.client.set(keys.result("j1"), b"\x2a", ex=60)
    raw.claimed("c2", [delivery])

    assert run(bury(a_burial(delivery))) is False

    assert run(results.read(keys, ["j1"])) == [Kept(b"\x2a", None)]


def test_an_entry_that_could_not_be_read_is_buried_without_name_id_and_outcome(
    run, raw, bury, delivery
):
    burial = a_burial(
        delivery, "", payload=b"", name="", reason=DlqReason.MALFORMED, detail="no field d"
    )

    assert run(bury(burial)) is True

    assert raw.dlq() == [
        {"d": b"", "source_id": delivery, "reason": b"malformed", "detail": b"no field d"}
    ]
    assert raw.events() == [f"e=dlq id= ts={TOLD_MS} attempt=3 reason=malformed"]
    assert sorted(raw.everything()) == ["dlq", "events", "held", "stream"]


def test_a_dead_letter_is_dropped_when_another_consumer_claimed_the_entry(run, raw, bury, delivery):
    raw.claimed("c2", [delivery])
    before = raw.everything()

    assert run(bury(a_burial(delivery))) is False
    assert raw.everything() == before


def test_the_consumer_that_claimed_the_entry_may_give_it_up(run, raw, bury, delivery):
    raw.claimed("c2", [delivery])

    assert run(bury(a_burial(delivery), consumer="c2")) is True
    assert len(raw.dlq()) == 1


def test_a_dead_letter_is_dropped_when_the_entry_was_settled(run, raw, keys, bury, delivery):
    raw.client.xack(keys.stream, GROUP, delivery)
    before = raw.everything()

    assert run(bury(a_burial(delivery))) is False
    assert raw.everything() == before


def test_a_call_that_is_sent_again_writes_no_second_letter(run, raw, bury, delivery):
    call = bury(a_burial(delivery))
    assert run(call) is True
    before = raw.everything()

    assert run(call) is False
    assert raw.everything() == before


def test_an_entry_that_was_deleted_under_its_delivery_can_still_be_buried(
    run, raw, keys, bury, delivery
):
    raw.client.xdel(keys.stream, delivery)

    assert run(bury(a_burial(delivery, payload=b""))) is True
    assert raw.held() == []
    assert len(raw.dlq()) == 1


def test_without_a_time_to_live_no_outcome_is_kept(run, raw, bury, delivery):
    run(bury(a_burial(delivery), outcome=NO_OUTCOME))

    assert "outcome:j1" not in raw.everything()


def test_with_events_off_nothing_is_told(run, raw, bury, delivery):
    assert run(bury(a_burial(delivery), telling=SILENT)) is True
    assert raw.events() == []


def test_the_dlq_is_kept_at_its_cap_and_the_newest_letter_is_in_it(run, raw, keys, bury, delivery):
    pipeline = raw.client.pipeline()
    for _ in range(350):
        pipeline.xadd(keys.dlq, {"d": b"old"})
    pipeline.execute()

    run(bury(a_burial(delivery), cap=100))

    letters = raw.dlq()
    assert 100 <= len(letters) < 350
    assert letters[-1]["source_id"] == delivery


def test_without_memory_nothing_is_lost_and_the_same_call_works_later(
    run, raw, bury, delivery, without_memory
):
    before = raw.everything()
    call = bury(a_burial(delivery))
    with without_memory(), pytest.raises(ServerReplyError) as refused:
        run(call)
    assert refused.value.kind == "OOM"
    assert raw.everything() == before

    assert run(call) is True
    assert len(raw.dlq()) == 1


def test_a_lost_group_is_said_in_the_servers_word_for_it(run, raw, keys, bury, delivery):
    raw.client.xgroup_destroy(keys.stream, GROUP)

    with pytest.raises(ServerReplyError) as refused:
        run(bury(a_burial(delivery)))
    assert refused.value.kind == "NOGROUP"
    assert raw.dlq() == []
