"""Which windows of a recurring job had to fire, on histories made by hand."""

import pytest

from chaos.checker import check
from chaos.history import (
    EVERYBODY,
    Asked,
    Blocked,
    Born,
    Broke,
    Ceased,
    Cut,
    Died,
    Ended,
    Fired,
    Found,
    Led,
    Quiet,
    Recurs,
    Stage,
    Started,
    Starved,
)
from chaos.past import told
from chaos.windows import fired, had_to_fire, too_many

SECOND = 1_000_000
EVERY_MS = 1_000
SPEC = Recurs(0, "k", EVERY_MS, "skip")
# The wall clock stands where the other one does, so that a window is due at its own second.
BEGIN = [
    Stage(0, seed=1, server="valkey", topology="single", lease_ms=4_000),
    Asked(0, 0, "p/1", "quick", 3),
    SPEC,
]


def history(*records, fired=range(1, 61), run_after_s=0):
    """A minute in which these seconds fired; each job ran so long after its window."""
    jobs = {f"k@{second * EVERY_MS}": second + run_after_s for second in fired}
    runs = [
        record
        for job, at in jobs.items()
        for record in (
            Started(at * SECOND, at * EVERY_MS, f"w#{job}", "w", job, "k", 1, 3),
            Ended(at * SECOND + 1, f"w#{job}", "ok"),
        )
    ]
    done = [Found(job, "completed") for job in jobs]
    return told([*BEGIN, *records, *runs, *done, Quiet(is_drained=True)])


def leads(who="w.1", since=0, until=60, skew=0):
    """A process that leads from one second to another."""
    return [
        Born(since * SECOND, who, f"token-{who}", skew * EVERY_MS),
        Led(since * SECOND, until * SECOND, f"token-{who}"),
    ]


def seconds_due(*records, **given):
    """The seconds of the windows that had to fire."""
    return {window // EVERY_MS for window in had_to_fire(history(*records, **given), SPEC)}


def test_nothing_has_to_fire_while_nobody_leads():
    assert seconds_due() == set()


def test_windows_under_one_leader_have_to_fire_but_for_its_first_and_last_moments():
    assert seconds_due(*leads(since=10, until=20)) == set(range(12, 19))


def test_a_lock_in_the_hands_of_a_stranger_says_nothing():
    assert seconds_due(Led(0, 60 * SECOND, "another")) == set()


def test_a_leader_that_died_leads_no_more():
    assert max(seconds_due(*leads(), Died(30 * SECOND, "w.1"))) == 28


@pytest.mark.parametrize(
    "trouble",
    [
        Cut(20 * SECOND, 25 * SECOND, "w.1", "frozen"),
        Cut(20 * SECOND, 25 * SECOND, EVERYBODY, "server away"),
        Starved(20 * SECOND, 25 * SECOND),
        Blocked(20 * SECOND, 25 * SECOND, "w.1"),
        Broke(20 * SECOND, "lose-request", "w.1 read"),
        Broke(20 * SECOND, "wrong-type", "{chasqui:chaos}:repeat for 2.0 s"),
        Broke(20 * SECOND, "wrong-type", "{chasqui:chaos}:repeat:spec:k for 2.0 s"),
        Broke(20 * SECOND, "wrong-type", "TimeoutError: no answer", is_done=False),
    ],
    ids=lambda trouble: (
        getattr(trouble, "why", None) or getattr(trouble, "detail", type(trouble).__name__)
    ),
)
def test_what_was_done_to_the_leader_or_the_server_excuses_it_for_a_while(trouble):
    due = seconds_due(*leads(), trouble)
    assert not due & set(range(20, 28))
    assert {18, 32} <= due


@pytest.mark.parametrize(
    "elsewhere",
    [
        Cut(20 * SECOND, 25 * SECOND, "w.2", "frozen"),
        Blocked(20 * SECOND, 25 * SECOND, "w.2"),
        Broke(20 * SECOND, "flush-scripts", "3 times"),
        Broke(20 * SECOND, "wrong-type", "{chasqui:chaos}:result:k@3 for 2.0 s"),
        Broke(20 * SECOND, "wrong-type", "{chasqui:chaos}:repeat:wake for 2.0 s"),
        Broke(20 * SECOND, "wrong-type", "{chasqui:chaos}:repeat:spec:other for 2.0 s"),
        Died(20 * SECOND, "w.2"),
    ],
    ids=["cut", "blocked", "scripts", "result", "bell", "other spec", "died"],
)
def test_what_was_done_to_others_excuses_nobody(elsewhere):
    assert seconds_due(*leads(), elsewhere) == seconds_due(*leads())


@pytest.mark.parametrize("skew", [-180, 240])
def test_a_wrong_clock_excuses_no_leader_and_nobody_after_it(skew):
    wrong, right = leads("w.1", until=20, skew=skew), leads("w.2", since=22)
    assert seconds_due(*wrong, *right) == {*range(2, 19), *range(24, 59)}


def test_windows_before_the_first_that_fired_had_to_fire_too():
    [breach] = check(history(*leads(), fired=range(10, 61)))
    assert breach.rule == "windows"
    assert "left out 8 under a leader, the first 2000" in breach.text


def test_a_window_that_passes_under_a_leader_is_a_breach():
    kept = history(*leads())
    broken = history(*leads(), fired=[*range(1, 30), *range(31, 61)])
    assert check(kept) == []
    [breach] = check(broken)
    assert breach.rule == "windows"
    assert "30000" in breach.text


def test_a_job_that_stops_firing_under_a_leader_is_a_breach():
    stopped = {"fired": range(1, 31)}
    [breach] = check(history(*leads(), Ceased(60 * SECOND), **stopped))
    assert breach.rule == "windows"
    # Not the last of them, which it may have been removed before.
    assert "left out 28 under a leader, the first 31000" in breach.text
    assert check(history(*leads(), Ceased(31 * SECOND), **stopped)) == []
    assert check(history(*leads(until=30), Ceased(60 * SECOND), **stopped)) == []


def test_a_window_that_passes_while_nobody_leads_is_none():
    away = [*leads(until=20), *leads("w.2", since=40)]
    assert check(history(*away, fired=[*range(1, 21), *range(41, 61)])) == []


def fire(second, *, late_ms=0, clock_ms=0):
    """The window of a second was fired so late, by a clock that was wrong by so much."""
    at_ms = second * EVERY_MS + late_ms
    return Fired(at_ms * 1_000, f"k@{second * EVERY_MS}", at_ms + clock_ms, at_ms)


def unwanted(policy, *fires, fired):
    """The seconds of windows that fired and should not have, of these that fired."""
    spec = Recurs(0, "k", EVERY_MS, policy)
    # Runs begin when nobody doubts any more that it was the fire that was told of.
    jobs = {f"k@{second * EVERY_MS}": second for second in fired}
    runs = [Started(90 * SECOND, 90 * EVERY_MS, f"w#{job}", "w", job, "k", 1, 3) for job in jobs]
    past = told([*BEGIN[:2], spec, *fires, *runs])
    return [window_ms // EVERY_MS for window_ms, _ in too_many(past, spec)]


def test_a_window_that_skip_fires_when_the_next_has_come_is_seen():
    on_time = [fire(1), fire(2, late_ms=999), fire(3)]
    assert unwanted("skip", *on_time, fired=(1, 2, 3)) == []
    assert unwanted("skip", fire(1), fire(2, late_ms=1_000), fired=(1, 2, 4)) == [2]


def test_of_windows_that_passed_fire_once_fires_one():
    late = fire(2, late_ms=3_500)
    assert unwanted("fire-once", fire(1), late, fired=(1, 2, 6)) == []
    assert unwanted("fire-once", fire(1), late, fired=(1, 2, 5)) == [5]
    assert unwanted("fire-once", fire(1), late, fired=(1, 2, 3, 6)) == [3]


@pytest.mark.parametrize(
    ("policy", "late", "windows", "job", "why"),
    [
        ("skip", fire(2, late_ms=1_000), (1, 2, 4), "k@2000", "fired 1000 ms late, when the next"),
        ("fire-once", fire(2, late_ms=1_500), (1, 2, 3), "k@3000", "fired, too, though it had"),
        ("fire-all", fire(2, clock_ms=60_000), (1, 2, 3), "k@2000", "that was wrong by 60000 ms"),
    ],
)
def test_a_window_that_should_have_been_left_out_is_a_breach(policy, late, windows, job, why):
    def breaches(*fires):
        spec = Recurs(0, "k", EVERY_MS, policy)
        past = history(spec, *fires, fired=windows, run_after_s=3)
        return [(each.rule, each.job_id, why in each.text) for each in check(past)]

    assert breaches() == []
    assert breaches(late) == [("windows", job, True)]


def test_fire_all_fires_every_window_however_late():
    assert unwanted("fire-all", fire(2, late_ms=3_500), fired=(2, 3, 4, 5)) == []


@pytest.mark.parametrize("policy", ["skip", "fire-once", "fire-all"])
@pytest.mark.parametrize("clock_ms", [-90_000, 60_000])
def test_a_window_that_was_fired_by_a_wrong_clock_is_seen(policy, clock_ms):
    assert 2 in unwanted(policy, fire(2, clock_ms=clock_ms), fired=(2,))


def test_of_a_window_of_which_only_a_retry_was_told_nothing_is_said():
    late = fire(2, late_ms=100_000)
    assert unwanted("skip", late, fired=(2,)) == []
    assert unwanted("skip", fire(2, late_ms=5_000), late, fired=(2,)) == [2]


def test_a_window_that_was_told_of_and_vanished_was_left_out():
    jobs = history(fired=[1, 2, 4])
    assert len(fired(jobs, "k")) == 3
    with_event = told([*BEGIN, fire(3)])
    assert fired(with_event, "k") == []
