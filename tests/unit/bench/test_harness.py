"""The parts that every benchmark is made of; nothing here depends on how fast anything is."""

import os
import subprocess
import sys

import pytest

from bench.machine import machine
from bench.rounds import Rival, Sample, Spread, play, ratios
from bench.spark.data import events
from bench.spark.ground import Match, Target
from bench.spark.result import results, shown
from bench.table import spread, table, thousands
from bench.usage import Usage, Watch
from chasquimq.wire.event import EventName, parse_event
from chasquimq.wire.ids import StreamId, ulid_time_ms


def test_rivals_take_turns_in_both_orders_and_only_their_work_is_timed():
    done = []

    def rival(name, took_s):
        def run():
            done.append(name)
            return took_s

        return Rival(name, run, prepare=lambda: done.append(f"for {name}"))

    samples = play([rival("a", 2.0), rival("b", 4.0)], rows=8, rounds=2, watch=Watch)
    assert done == ["for a", "a", "for b", "b", "for b", "b", "for a", "a"]
    assert [each.rate for each in samples["a"]] == [4.0, 4.0]
    assert samples["b"][0].us_per_row == 500_000
    assert ratios(samples, "b", "a") == [0.5, 0.5]


def test_a_rival_that_says_nothing_is_timed_as_a_whole():
    samples = play([Rival("a", lambda: None)], rows=1, rounds=1, watch=Watch)
    assert samples["a"][0].wall_s > 0


def test_what_processes_below_ours_use_is_seen_and_what_is_left_out_counts_apart():
    with Watch() as watching:
        subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    with Watch([os.getpid()]) as blind:
        sum(range(1_000_000))
    assert watching.usage.cpu_s > 0
    assert blind.usage.cpu_s < watching.usage.cpu_s  # but for what looks at it
    assert blind.usage.server_cpu_s > 0


def test_a_result_says_whether_its_target_was_met():
    def taken(*rates):
        return [Sample(100, 100 / rate, Usage(0.5, 0.25, 40, 300)) for rate in rates]

    rivals = [Rival("raw", lambda: None), Rival("ours", lambda: None)]
    match = Match(rivals, [Target("ours", 0.5)])
    raw, ours = results("read", match, {"raw": taken(100, 200, 400), "ours": taken(60, 90, 200)})
    assert (raw.ratio, raw.is_met) == (None, True)
    assert (ours.ratio, ours.is_met) == (Spread(0.5, 0.45, 0.6), True)
    assert (ours.cpu_us_per_row, ours.server_us_per_row) == (5_000, 2_500)
    assert (ours.python_mb, ours.jvm_mb) == (40, 300)
    lines = shown([raw, ours]).splitlines()
    assert "0.50 (0.45-0.60)" in lines[3]
    assert "(missed)" not in lines[3]
    slow = results("read", match, {"raw": taken(100), "ours": taken(49)})[1]
    assert "0.5 (missed)" in shown([slow])


def test_a_table_is_markdown_with_columns_below_each_other():
    assert table(["what", "rate"], [["a", "1"], ["longer", "10 k"]]) == (
        "| what   | rate |\n| ------ | ---: |\n| a      |    1 |\n| longer | 10 k |"
    )
    assert [thousands(each) for each in (950, 9_940, 85_400)] == ["0.9 k", "9.9 k", "85 k"]
    assert spread(Spread(0.7, 0.6, 0.8)) == "0.70 (0.60-0.80)"


def test_a_machine_tells_its_versions_and_what_is_missing():
    told = str(machine("hiredis", "no-such-package", Valkey="9.1"))
    assert "hiredis " in told
    assert "no-such-package not installed" in told
    assert "Valkey 9.1" in told


@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_events_are_as_many_as_asked_for_in_order_and_tell_whole_lives(count):
    told = [(StreamId.parse(entry_id), fields) for entry_id, fields in events(count)]
    assert len(told) == count
    assert [entry_id for entry_id, _ in told] == sorted({entry_id for entry_id, _ in told})
    of_first = [parse_event("0-1", fields) for _, fields in told if fields[3].endswith(b"0" * 16)]
    if count == 5_000:
        assert [each.name for each in of_first] == [
            EventName.WAITING, EventName.ACTIVE, EventName.FAILED, EventName.RETRY_SCHEDULED,
            EventName.WAITING, EventName.ACTIVE, EventName.COMPLETED,
        ]  # fmt: skip
        assert {ulid_time_ms(each.job_id) for each in of_first} == {told[0][0].ms}
