"""The report of chaos: figures, and the story of a job whose promise was broken."""

import json

from chaos.checker import Breach, check
from chaos.history import (
    Added,
    Asked,
    Born,
    Broke,
    Burst,
    Died,
    Ended,
    Found,
    Led,
    Quiet,
    Recurs,
    Stage,
    Started,
)
from chaos.options import Options, parse
from chaos.past import told
from chaos.report import figures, story, to_json, to_text

RECORDS = [
    Stage(0, seed=7, server="valkey", topology="single", lease_ms=4_000),
    Broke(1, "kill-worker", "w.1"),
    Broke(2, "reset", "TimeoutError", is_done=False),
    Burst(3, "p", 300),
    Burst(4, "p", 12),
    Asked(10, 0, "p/1", "quick", 3),
    Added(11, "p/1", "lost-one"),
    Born(12, "p.1", "", -90_000),
    Born(13, "p.2", "", 0),
    Asked(20, 0, "p/2", "quick", 3),
    Added(21, "p/2", "good-one"),
    Started(30, 0, "w.1#1", "w.1", "good-one", "p/2", 1, 3),
    Ended(31, "w.1#1", "failed"),
    Started(40, 0, "w.1#2", "w.1", "good-one", "p/2", 2, 3),
    Died(41, "w.1"),
    Started(50, 0, "w.2#1", "w.2", "good-one", "p/2", 3, 3),
    Ended(51, "w.2#1", "ok"),
    Found("good-one", "completed"),
    Quiet(is_drained=True),
]
OPTIONS = Options(minutes=2, seed=7, workers=9, faults=("reset",))


def test_figures_tell_retries_from_redeliveries():
    past = told(RECORDS)
    counted = figures(past, check(past))
    assert (counted.asked, counted.acknowledged, counted.completed) == (2, 2, 1)
    assert (counted.runs, counted.retried, counted.redelivered) == (3, 1, 1)
    assert (counted.deaths, counted.lost, counted.at_risk, counted.doubled) == (1, 1, 0, 0)
    assert counted.most_under_way == 300
    assert counted.wrong_clocks == 1


def test_a_breach_is_shown_with_the_whole_story_of_its_job_and_of_no_other():
    past = told(RECORDS)
    text = to_text(OPTIONS, past, check(past), RECORDS)
    assert "1 BREACHES" in text
    assert "lost: lost-one: it was acknowledged, and is nowhere" in text
    assert '"what": "Asked", "us": 10' in text
    assert '"job_id": "lost-one"' in text
    assert '"job_id": "good-one"' not in text


def test_windows_that_are_missing_are_shown_with_who_led_and_other_breaches_are_not():
    leader = Born(1, "w.1", "token", 240_000)
    records = [*RECORDS, leader, Led(2, 3, "token"), Recurs(0, "k", 700, "skip")]
    lines = story(Breach("windows", "", "k never fired"), records)
    assert [json.loads(line)["what"] for line in lines] == ["Born", "Led", "Recurs"]
    assert story(Breach("rest", "", "a key is left"), records) == []


def test_the_command_that_is_shown_repeats_the_run():
    past = told(RECORDS)
    [line] = [
        each
        for each in to_text(OPTIONS, past, check(past), RECORDS).splitlines()
        if "to repeat it" in each
    ]
    words = line.partition("python -m chaos ")[2].split()
    assert parse(words, ["reset"]) == OPTIONS


def test_only_faults_that_were_carried_out_are_counted():
    past = told(RECORDS)
    assert json.loads(to_json(OPTIONS, past, check(past), RECORDS))["faults"] == {"kill-worker": 1}


def test_a_run_without_a_breach_says_so():
    kept = [record for record in RECORDS if getattr(record, "job_id", "") != "lost-one"]
    past = told(kept)
    assert "every promise was kept" in to_text(OPTIONS, past, check(past), kept)


def test_faults_that_could_not_be_done_are_shown_with_the_reason():
    past = told([*RECORDS, Broke(3, "reset", "TimeoutError", is_done=False)])
    text = to_text(OPTIONS, past, [], RECORDS)
    assert "reset could not be done 2 times:" in text
    assert "2  TimeoutError" in text
    assert json.loads(to_json(OPTIONS, past, [], RECORDS))["futile"] == {
        "reset": {"TimeoutError": 2}
    }


def test_a_fault_that_was_never_done_is_named():
    past = told(RECORDS)
    text = to_text(OPTIONS, past, check(past), RECORDS)
    assert "reset was NEVER DONE" in text
    assert json.loads(to_json(OPTIONS, past, [], RECORDS))["never_done"] == ["reset"]
    done = told([*RECORDS, Broke(3, "reset", "w.1")])
    assert "NEVER DONE" not in to_text(OPTIONS, done, [], RECORDS)
