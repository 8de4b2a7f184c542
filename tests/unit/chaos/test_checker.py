"""The checker of chaos, on histories that keep every promise but one."""

from itertools import count

import pytest

from chaos.checker import RULES, check
from chaos.history import (
    EVERYBODY,
    Added,
    Asked,
    Cut,
    Died,
    Ended,
    Forgotten,
    Found,
    Poisoned,
    Quiet,
    Recurs,
    Refused,
    SetAside,
    Stage,
    Started,
    Starved,
    Withdrawing,
    Withdrawn,
)
from chaos.past import told

LEASE_MS = 4_000
MS = 1_000
AT_REST = Quiet(is_drained=True)
STAGE = Stage(0, seed=1, server="valkey", topology="single", lease_ms=LEASE_MS)


def breaches(*records):
    """The names of the rules that are broken, and the job of each."""
    given = [STAGE, *records]
    if not any(isinstance(each, Quiet) for each in given):
        given.append(AT_REST)
    return [(breach.rule, breach.job_id) for breach in check(told(given))]


def added(job_id="j", call="p/1", *, at_ms=0, delay_ms=0, budget=3, is_taken=False, wanted=""):
    """A call of a producer that was answered."""
    return [
        Asked(at_ms * MS, at_ms, call, "quick", budget, delay_ms, wanted),
        Added(at_ms * MS + 1, call, job_id, is_taken),
    ]


_runs = count(1)


def ran(job_id="j", who="w.1", *, at_ms=10, until_ms=20, how="ok", attempt=1, **facts):
    """One run; without `until_ms` its end was not written."""
    run = f"{who}#{next(_runs)}"
    began = Started(
        at_ms * MS, at_ms, run, who, job_id, facts.get("call", "p/1"), attempt,
        facts.get("budget", 3),
    )  # fmt: skip
    return [began] if until_ms is None else [began, Ended(until_ms * MS, run, how)]


def completed(job_id="j", **facts):
    return Found(job_id, "completed", **facts)


def cut(who, from_ms, until_ms, why="frozen"):
    return Cut(from_ms * MS, until_ms * MS, who, why)


def test_a_job_that_is_added_run_and_completed_breaks_nothing():
    assert breaches(*added(), *ran(), completed()) == []


# Nothing is lost


def test_an_acknowledged_job_that_is_nowhere_is_lost():
    assert breaches(*added()) == [("lost", "j")]


def test_a_job_that_ran_and_left_no_trace_is_lost():
    assert breaches(*added(), *ran()) == [("lost", "j")]


def test_a_job_that_nobody_was_told_of_may_be_nowhere():
    assert breaches(Asked(0, 0, "p/1", "quick", 3)) == []


@pytest.mark.parametrize("place", ["stream", "delayed", "dlq", "completed"])
def test_a_job_that_lies_somewhere_is_not_lost(place):
    assert breaches(*added(), Found("j", place)) == []


def test_a_job_that_was_withdrawn_is_not_lost():
    assert breaches(*added(), Withdrawn(5 * MS, "j", is_gone=True)) == []


def test_a_withdrawal_that_was_not_granted_excuses_nothing():
    assert breaches(*added(), Withdrawn(5 * MS, "j", is_gone=False)) == [("lost", "j")]


def test_a_withdrawal_without_an_answer_may_have_been_granted_or_not():
    unknown = Withdrawn(5 * MS, "j", is_gone=None)
    assert breaches(*added(), unknown) == []
    assert breaches(*added(), unknown, *ran(), completed()) == []


def test_who_died_while_it_withdrew_a_job_may_have_been_granted_it():
    asks = Withdrawing(4 * MS, "j")
    assert breaches(*added(), asks) == []
    assert breaches(*added(), asks, Withdrawn(5 * MS, "j", is_gone=False)) == [("lost", "j")]


def test_a_server_without_memory_may_lose_the_outcome_of_a_job_that_succeeded():
    starved = Starved(15 * MS, 900 * MS)
    assert breaches(*added(), *ran(), starved) == []
    assert breaches(*added(), *ran(how="failed"), starved) == [("lost", "j")]
    assert breaches(*added(), starved) == [("lost", "j")]


def test_what_a_primary_was_told_right_before_it_died_may_be_lost():
    loss = Forgotten(900 * MS, "primary killed", since_us=500 * MS)
    assert breaches(*added(at_ms=700), loss) == []
    assert breaches(*added(at_ms=100), loss) == [("lost", "j")]
    assert breaches(*added(at_ms=901), loss) == [("lost", "j")]
    late_answer = [Asked(400 * MS, 400, "p/1", "quick", 3), Added(990 * MS, "p/1", "j")]
    assert breaches(*late_answer, loss) == []


def test_a_group_that_was_destroyed_excuses_no_loss():
    assert breaches(*added(), Forgotten(900 * MS, "group destroyed")) == [("lost", "j")]


# One place


@pytest.mark.parametrize("second", ["stream", "delayed", "dlq"])
def test_a_job_in_two_places_is_seen(second):
    broken = breaches(*added(), *ran(), completed(), Found("j", second))
    assert broken == [("one place", "j")]


def test_a_job_twice_in_one_place_is_seen():
    twice = [Found("j", "dlq"), Found("j", "dlq")]
    assert breaches(*added(), *ran(how="failed"), *twice) == [("one place", "j")]


def test_a_withdrawn_job_that_lies_somewhere_is_seen():
    gone = Withdrawn(5 * MS, "j", is_gone=True)
    assert breaches(*added(), gone, Found("j", "delayed")) == [("one place", "j")]


# Beside itself


def overlapping(*, first="w.1", second="w.2"):
    """A run of ten seconds, and another from its eighth second on."""
    return [
        *added(),
        *ran(who=first, until_ms=10_000, how="failed"),
        *ran(who=second, at_ms=8_000, until_ms=9_000, attempt=2),
        completed(),
    ]


def test_two_runs_at_the_same_time_are_seen():
    assert breaches(*overlapping()) == [("beside itself", "j")]


def test_two_runs_at_the_same_time_in_one_worker_are_seen():
    assert breaches(*overlapping(second="w.1")) == [("beside itself", "j")]


@pytest.mark.parametrize("who", ["w.1", EVERYBODY])
def test_a_worker_that_could_not_work_before_may_have_lost_the_job(who):
    assert breaches(*overlapping(), cut(who, 3_000, 7_500)) == []


def test_a_frozen_worker_excuses_no_other():
    assert breaches(*overlapping(), cut("w.2", 3_000, 7_500)) == [("beside itself", "j")]


def test_a_reset_excuses_nothing():
    assert breaches(*overlapping(), cut("w.1", 5_000, 5_100)) == [("beside itself", "j")]


def test_what_comes_after_the_second_run_began_excuses_nothing():
    assert breaches(*overlapping(), cut("w.1", 8_500, 14_000)) == [("beside itself", "j")]


def test_a_run_that_was_killed_lasts_until_its_worker_died():
    def story(died_ms):
        return [
            *added(),
            *ran(until_ms=None),
            Died(died_ms * MS, "w.1"),
            *ran(who="w.2", at_ms=5_000, until_ms=5_001, attempt=2),
            completed(),
        ]

    assert breaches(*story(died_ms=900)) == []
    assert breaches(*story(died_ms=5_500)) == [("beside itself", "j")]


# Doubled


def twice_ok(*more):
    return [*added(), *ran(), *ran(who="w.2", at_ms=6_000, until_ms=6_010, attempt=2), *more,
            completed()]  # fmt: skip


def test_a_run_after_a_success_is_seen():
    assert breaches(*twice_ok()) == [("doubled", "j")]


def test_a_worker_that_died_after_a_success_may_not_have_said_so():
    assert breaches(*twice_ok(Died(21 * MS, "w.1"))) == []
    assert breaches(*twice_ok(Died(21 * MS, "w.2"))) == [("doubled", "j")]
    assert breaches(*twice_ok(Died(6_001 * MS, "w.1"))) == [("doubled", "j")]


def test_a_group_that_was_destroyed_under_a_run_makes_it_run_again():
    assert breaches(*twice_ok(Forgotten(15 * MS, "group destroyed"))) == []
    long_before = Forgotten(-LEASE_MS * MS, "group destroyed")
    assert breaches(*twice_ok(long_before)) == [("doubled", "j")]


def test_a_server_without_memory_excuses_no_second_run():
    assert breaches(*twice_ok(Starved(15 * MS, 6_000 * MS))) == [("doubled", "j")]


# Budgets


def test_a_run_more_than_its_budget_is_seen():
    runs = [ran(at_ms=at, until_ms=at + 1, how="failed") for at in (10, 20, 30, 40)]
    broken = breaches(*added(), *(each for run in runs for each in run), Found("j", "dlq"))
    assert broken == [("budget", "j")]


def test_a_number_above_the_budget_is_seen():
    broken = breaches(*added(), *ran(attempt=4, how="failed"), Found("j", "dlq"))
    assert broken == [("budget", "j")]


def test_runs_that_the_server_forgot_do_not_count():
    runs = [ran(at_ms=at, until_ms=at + 1, how="failed") for at in (10, 20, 30, 40)]
    told_of = [*added(), *(each for run in runs for each in run), Found("j", "dlq")]
    assert breaches(*told_of, Forgotten(25 * MS, "group destroyed")) == []
    assert breaches(*told_of, Forgotten(45 * MS, "group destroyed")) == [("budget", "j")]


# Delays


def test_a_delayed_job_that_begins_early_is_seen():
    story = [*added(at_ms=100, delay_ms=500), completed()]
    assert breaches(*story, *ran(at_ms=597, until_ms=610)) == [("early", "j")]
    assert breaches(*story, *ran(at_ms=600, until_ms=610)) == []


# Withdrawn


def test_a_job_that_begins_after_it_was_withdrawn_is_seen():
    gone = Withdrawn(5 * MS, "j", is_gone=True)
    assert breaches(*added(), gone, *ran(how="failed")) == [("withdrawn", "j")]


def test_a_job_that_failed_before_it_was_withdrawn_breaks_nothing():
    gone = Withdrawn(50 * MS, "j", is_gone=True)
    assert breaches(*added(), *ran(how="failed"), gone) == []


def test_a_call_that_was_refused_for_certain_and_ran_is_seen():
    asked = Asked(0, 0, "p/1", "quick", 3)
    ended = [*ran(), completed()]
    full = Refused(5 * MS, "p/1", "QueueFullError", is_certain=True)
    assert breaches(asked, full, *ended) == [("refused", "j")]
    assert breaches(asked, Refused(5 * MS, "p/1", "OutcomeUnknownError"), *ended) == []


# Unique


def test_an_id_that_two_calls_were_told_they_added_is_seen():
    story = [*added(wanted="j"), *added(call="p/2", wanted="j"), *ran(), completed()]
    assert breaches(*story) == [("unique", "j")]


def test_an_id_that_was_taken_for_the_others_breaks_nothing():
    story = [*added(wanted="j"), *added(call="p/2", wanted="j", is_taken=True), *ran()]
    assert breaches(*story, completed()) == []


def test_an_id_under_which_two_calls_ran_is_seen():
    story = [*added(wanted="j"), Asked(0, 0, "p/2", "quick", 3, job_id="j")]
    runs = [*ran(how="failed"), *ran(call="p/2", at_ms=30, until_ms=40, attempt=2)]
    assert breaches(*story, *runs, completed()) == [("unique", "j")]


def test_a_call_that_made_two_jobs_is_seen():
    runs = [*ran(), *ran("other", who="w.2")]
    assert breaches(*added(), *runs, completed(), completed("other")) == [("added once", "j")]


# Results


def test_a_result_that_cannot_be_read_is_seen():
    assert breaches(*added(), *ran(), completed(has_result=False)) == [("result", "j")]


def test_a_result_of_another_job_is_seen():
    assert breaches(*added(), *ran(), completed(call="p/9")) == [("result", "j")]
    assert breaches(*added(), *ran(), completed(call="p/1")) == []


# Recurring jobs


def fired(*windows, policy="fire-all"):
    jobs = [f"k@{window}" for window in windows]
    runs = [each for job in jobs for each in ran(job, call="k")]
    return [Recurs(0, "k", every_ms=100, policy=policy), *runs, *map(completed, jobs)]


def test_windows_that_all_fired_break_nothing():
    assert breaches(*fired(100, 200, 300)) == []


def test_a_window_that_was_left_out_is_seen_where_all_must_fire():
    assert breaches(*fired(100, 300)) == [("windows", "")]
    assert breaches(*fired(100, 300, policy="skip")) == []


def test_a_window_off_the_grid_is_seen():
    assert breaches(*fired(100, 250, policy="skip")) == [("windows", "k@250")]


def test_a_window_that_fired_twice_is_seen():
    twice = [*fired(100), *ran("k@100", who="w.2", at_ms=50, until_ms=60, call="k", attempt=1)]
    assert breaches(*twice) == [("doubled", "k@100")]


def test_a_recurring_job_that_never_fired_is_seen():
    assert breaches(*fired()) == [("windows", "")]


# Poison and rest


def test_poison_that_vanished_is_seen():
    poison = [Poisoned(1, "entry: garbage", 2), SetAside(1)]
    assert breaches(*poison) == [("poison", "")]
    assert breaches(*poison, SetAside(1)) == []


def test_a_queue_that_does_not_drain_is_seen():
    stuck = Quiet(is_drained=False)
    assert breaches(*added(), Found("j", "stream"), stuck) == [("rest", "j")]


def test_what_is_left_behind_is_seen():
    assert breaches(Quiet(is_drained=True, leftovers=("key k never expires",))) == [("rest", "")]


def test_a_history_without_an_end_proves_nothing():
    assert [breach.rule for breach in check(told([STAGE]))] == ["rest"]


def test_every_rule_has_a_docstring_that_states_its_promise():
    assert all(rule.__doc__ for rule in RULES.values())
