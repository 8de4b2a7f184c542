"""`complete.lua`: entries go, results stay; each only for a delivery that was still there."""

import pytest

from chasquimq.broker import results, stream
from chasquimq.broker.results import Kept
from chasquimq.broker.stream import ResultKeeping
from tests.support.broker_builders import SILENT, TELLING, TOLD_MS, a_completion, an_entry
from tests.support.raw_queue import GROUP

KEEP = ResultKeeping(result_ttl_s=60, outcome_ttl_s=120)
KEEP_NONE = ResultKeeping()


@pytest.fixture
def complete(keys, server):
    """The variant this server is served with: `XACKDEL` where it has it, else a script's own."""

    def call(*batch, keeping=KEEP, telling=TELLING, has_xackdel=server.is_modern, started=()):
        return stream.complete(
            keys,
            GROUP,
            batch,
            has_xackdel=has_xackdel,
            keeping=keeping,
            telling=telling,
            started=started,
        )

    return call


def test_a_completed_entry_goes_its_result_stays_and_it_is_told(run, raw, keys, complete):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))

    assert run(complete(a_completion(entry_id, "j1", "mail", value=b"\x2a"))) == [True]

    assert raw.everything() == {
        "held": [],
        "stream": [],
        "result:j1": b"\x2a",
        "outcome:j1": b"v%d" % TOLD_MS,
        "events": raw.client.xrange(keys.events),
    }
    assert raw.events() == [f"e=completed id=j1 ts={TOLD_MS} n=mail attempt=1 duration_us=250"]
    assert raw.client.ttl(keys.result("j1")) == 60
    assert raw.client.ttl(keys.outcome("j1")) == 120


def test_a_job_that_returned_nothing_leaves_its_outcome_only(run, raw, complete):
    (entry_id,) = raw.delivered("c1", an_entry("j1", ""))

    assert run(complete(a_completion(entry_id, "j1", "", value=False))) == [True]

    everything = raw.everything()
    assert everything["outcome:j1"] == b"n%d" % TOLD_MS
    assert "result:j1" not in everything
    assert raw.events() == [f"e=completed id=j1 ts={TOLD_MS} attempt=1 duration_us=250"]


def test_a_value_that_an_earlier_job_of_the_id_left_does_not_pass_for_this_ones(
    run, raw, keys, complete
):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.client.set(keys.result("j1"), b"\x2a", ex=60)

    run(complete(a_completion(entry_id, "j1", "mail", value=False)))

    assert run(results.read(keys, ["j1"])) == [Kept(None, b"n%d" % TOLD_MS)]


def test_runs_that_began_lately_are_told_first_with_or_without_a_name(run, raw, complete):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    began = [
        ("j1", "mail", TOLD_MS - 5, 1, 12, TOLD_MS - 17),
        ("j2", "", TOLD_MS, 3, 0, TOLD_MS),
    ]

    run(complete(a_completion(entry_id, "j1", "mail"), keeping=KEEP_NONE, started=began))

    assert raw.events() == [
        f"e=active id=j1 ts={TOLD_MS - 5} n=mail attempt=1 wait_ms=12 created_at_ms={TOLD_MS - 17}",
        f"e=active id=j2 ts={TOLD_MS} attempt=3 wait_ms=0 created_at_ms={TOLD_MS}",
        f"e=completed id=j1 ts={TOLD_MS} n=mail attempt=1 duration_us=250",
    ]


def test_an_empty_value_is_a_value(run, raw, keys, complete):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    run(complete(a_completion(entry_id, "j1", value=b"")))

    assert run(results.read(keys, ["j1", "j2"])) == [
        Kept(b"", b"v%d" % TOLD_MS),
        Kept(None, None),
    ]


def test_with_results_off_nothing_is_kept_and_with_events_off_nothing_is_told(run, raw, complete):
    (first, second) = raw.delivered("c1", an_entry("j1"), an_entry("j2"))

    told = complete(a_completion(first, "j1", value=b"\x2a"), keeping=KEEP_NONE)
    assert run(told) == [True]
    assert sorted(raw.everything()) == ["events", "held", "stream"]
    silent = complete(a_completion(second, "j2", value=b"\x2a"), keeping=KEEP_NONE, telling=SILENT)
    assert run(silent) == [True]
    assert len(raw.events()) == 1
    assert raw.stream() == []


def test_a_batch_is_answered_one_by_one(run, raw, keys, complete):
    """One of ours, one that is settled, one that nobody read yet, another of ours."""
    (settled,) = raw.delivered("c1", an_entry("settled"))
    run(complete(a_completion(settled, "settled"), keeping=KEEP_NONE, telling=SILENT))
    (ours, also_ours) = raw.delivered("c1", an_entry("ours"), an_entry("also ours"))
    (unread,) = raw.waiting(an_entry("unread"))

    answer = run(
        complete(
            a_completion(ours, "ours", value=b"1"),
            a_completion(settled, "settled", value=b"2"),
            a_completion(unread, "unread", value=b"3"),
            a_completion(also_ours, "also-ours", value=b"4"),
        )
    )

    assert answer == [True, False, False, True]
    assert raw.entry_ids() == [unread]
    assert raw.held() == []
    kept = [name for name in sorted(raw.everything()) if name.startswith(("result", "outcome"))]
    assert kept == ["outcome:also-ours", "outcome:ours", "result:also-ours", "result:ours"]
    assert raw.client.get(keys.result("also-ours")) == b"4"
    assert [line.split()[1] for line in raw.events()] == ["id=ours", "id=also-ours"]


def test_a_job_that_two_workers_ran_is_completed_by_the_first_to_end(run, raw, complete):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.claimed("c2", [entry_id])

    assert run(complete(a_completion(entry_id, "j1", value=b"slow"))) == [True]
    before = raw.everything()
    assert run(complete(a_completion(entry_id, "j1", value=b"rescuer"))) == [False]
    assert raw.everything() == before


def test_a_call_that_is_sent_again_changes_nothing(run, raw, complete):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    call = complete(a_completion(entry_id, "j1", value=b"\x2a"))
    run(call)
    before = raw.everything()

    assert run(call) == [False]
    assert raw.everything() == before


def test_an_entry_that_was_deleted_under_its_delivery_is_completed_all_the_same(
    run, raw, keys, complete
):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.client.xdel(keys.stream, entry_id)

    assert run(complete(a_completion(entry_id, "j1", value=b"\x2a"))) == [True]
    assert raw.held() == []
    assert raw.client.get(keys.result("j1")) == b"\x2a"


def test_a_lost_group_means_that_nothing_was_ours(run, raw, keys, complete):
    (entry_id,) = raw.delivered("c1", an_entry("j1"))
    raw.client.xgroup_destroy(keys.stream, GROUP)

    assert run(complete(a_completion(entry_id, "j1", value=b"\x2a"))) == [False]
    assert sorted(raw.everything()) == ["held", "stream"]


def test_a_batch_of_many_thousands_is_completed_whole(run, raw, keys, complete):
    pipeline = raw.client.pipeline()
    for _ in range(9_000):
        pipeline.xadd(keys.stream, {"d": b"x"})
    entry_ids = pipeline.execute()
    raw.read("c1")
    batch = [a_completion(entry_id) for entry_id in entry_ids]

    assert run(complete(*batch, keeping=KEEP_NONE)) == [True] * 9_000
    assert raw.client.xlen(keys.stream) == 0
    assert raw.held() == []


def test_without_memory_a_completed_entry_goes_all_the_same(run, raw, complete, without_memory):
    (first, second) = raw.delivered("c1", an_entry("j1"), an_entry("j2"))
    with without_memory():
        assert run(complete(a_completion(first, "j1", value=b"\x2a"))) == [True]
        silent = complete(a_completion(second, "j2"), keeping=KEEP_NONE, telling=SILENT)
        assert run(silent) == [True]

    assert raw.stream() == []
    assert raw.held() == []


@pytest.mark.servers("redis-8.6")
def test_the_new_command_and_what_stands_in_for_it_do_the_same(run, raw, keys, complete):
    left = []
    for has_xackdel in (True, False):
        (ours, also_ours) = raw.delivered("c1", an_entry("a"), an_entry("b"))
        (unread,) = raw.waiting(an_entry("c"))
        batch = [a_completion(each, value=b"\x2a") for each in (ours, b"1-1", unread, also_ours)]
        answer = run(complete(*batch, has_xackdel=has_xackdel))
        left.append(
            (answer, raw.stream(), raw.held(), raw.events(), raw.client.get(keys.result("j1")))
        )
        raw.client.delete(keys.stream, keys.events)

    assert left[0] == left[1]
    assert left[0][0] == [True, False, False, True]


@pytest.mark.servers("redis-8.6")
def test_bare_acknowledgements_are_one_plain_command_where_the_server_has_it(run, raw, complete):
    (ours,) = raw.delivered("c1", an_entry("a"))
    call = complete(a_completion(ours), a_completion(b"1-1"), keeping=KEEP_NONE, telling=SILENT)

    assert b"XACKDEL" in call.requests[0]
    assert run(call) == [True, False]
    assert raw.everything() == {"held": [], "stream": []}
