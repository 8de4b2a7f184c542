"""The checker of chaos, on histories that keep every promise but one."""

from itertools import count

import pytest

from chaos.checker import RULES, check
from chaos.history import (
    EVERYBODY,
    Added,
    Asked,
    Blocked,
    Born,
    Broke,
    Cut,
    Died,
    Ended,
    Forgotten,
    Found,
    Paused,
    Poisoned,
    Quiet,
    Recurs,
    Refused,
    Revived,
    Reviving,
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


def failed(times, who="w.1", **facts):
    """As many runs, one after the other, the first at 10 ms, the others 20 ms later each."""
    runs = [
        ran(who=who, at_ms=10 + 20 * at, until_ms=11 + 20 * at, how="failed", attempt=at + 1,
            **facts)
        for at in range(times)
    ]  # fmt: skip
    return [record for run in runs for record in run]


def dead_letter(job_id="j", at_ms=0, **facts):
    """A dead letter; without a time it may have become one at any."""
    return Found(job_id, "dlq", ms=at_ms, **facts)


def completed(job_id="j", **facts):
    return Found(job_id, "completed", **facts)


def cut(who, from_ms, until_ms, why="frozen"):
    return Cut(from_ms * MS, until_ms * MS, who, why)


def test_a_job_that_is_added_run_and_completed_breaks_nothing():
    assert breaches(*added(), *ran(), completed()) == []


# Nothing is lost


def test_an_acknowledged_job_that_is_nowhere_is_lost():
    assert breaches(*added()) == [("lost", "j")]


def test_an_id_that_is_said_to_be_taken_and_that_no_job_has_is_lost():
    taken = added(wanted="j", is_taken=True)
    assert breaches(*taken) == [("lost", "j")]
    assert breaches(*taken, *ran(), completed()) == []
    assert breaches(*taken, Found("j", "stream")) == []


def test_a_job_that_was_begun_and_is_nowhere_is_lost_though_nobody_was_told_of_it():
    """Such as a recurring one."""
    assert breaches(*ran("nightly@60000", until_ms=None), Died(15 * MS, "w.1")) == [
        ("lost", "nightly@60000")
    ]


def test_a_job_that_ran_and_left_no_trace_is_lost():
    assert breaches(*added(), *ran()) == [("lost", "j")]


def test_a_job_that_nobody_was_told_of_may_be_nowhere():
    assert breaches(Asked(0, 0, "p/1", "quick", 3)) == []


@pytest.mark.parametrize("place", ["stream", "delayed"])
def test_a_job_that_lies_somewhere_is_not_lost(place):
    assert breaches(*added(), Found("j", place)) == []


def test_a_job_that_has_ended_is_not_lost():
    assert breaches(*added(), *ran(), completed()) == []
    assert breaches(*added(), *failed(3), dead_letter()) == []


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


def test_a_worker_that_keeps_no_results_leaves_nothing_of_what_succeeded_there():
    bare = Born(0, "w.2", "token", 0, keeps_results=False)
    assert breaches(bare, *added(), *ran(who="w.2")) == []
    assert breaches(bare, *added(), *ran(who="w.2", how="failed")) == [("lost", "j")]
    assert breaches(bare, *added(), *ran(who="w.1")) == [("lost", "j")]
    unread = completed(has_result=False)
    assert breaches(bare, *added(), *ran(who="w.1"), unread) == [("result", "j")]


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
    broken = breaches(*added(budget=1), *ran(budget=1), completed(), Found("j", second))
    assert broken[0] == ("one place", "j")


def test_a_job_twice_in_one_place_is_seen():
    twice = [dead_letter(), dead_letter()]
    assert breaches(*added(), *failed(3), *twice) == [("one place", "j")]


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


@pytest.mark.parametrize(
    "later",
    [Died(9_000 * MS, "w.1"), Cut(9_000 * MS, 12_000 * MS, EVERYBODY, "server frozen")],
    ids=["died", "frozen"],
)
def test_what_befell_a_worker_long_after_a_success_excuses_no_second_run(later):
    again = ran(who="w.2", at_ms=20_000, until_ms=20_010, attempt=2)
    assert breaches(*added(), *ran(), *again, later, completed()) == [("doubled", "j")]


def test_a_group_that_was_destroyed_under_a_run_makes_it_run_again():
    assert breaches(*twice_ok(Forgotten(15 * MS, "group destroyed"))) == []
    long_before = Forgotten(-LEASE_MS * MS, "group destroyed")
    assert breaches(*twice_ok(long_before)) == [("doubled", "j")]


def test_a_server_without_memory_excuses_no_second_run():
    assert breaches(*twice_ok(Starved(15 * MS, 6_000 * MS))) == [("doubled", "j")]


def woken(at_ms=8_002, attempt=1, *, until_ms=20, before=()):
    """A worker stood still from the first millisecond on; another had its job meanwhile."""
    taken_over = ran(who="w.2", at_ms=5_000, until_ms=5_000 + until_ms, attempt=2)
    late = ran(who="w.1", at_ms=at_ms, until_ms=at_ms + 9, attempt=attempt)
    told = [*added(), *taken_over, *late, cut("w.1", 1, 8_000), completed()]
    for ms in before:
        told += ran("other", who="w.1", at_ms=ms, until_ms=ms + 1, call="p/2")
        told += [*added("other", "p/2"), completed("other", call="p/2")]
    return told


def test_who_stood_still_between_the_look_and_the_beginning_begins_what_another_has():
    assert breaches(*woken()) == []
    assert breaches(*woken(until_ms=4_000)) == []  # and is still at


def test_only_the_first_run_of_who_wakes_and_only_at_once_may_be_one_that_another_has():
    assert breaches(*woken(at_ms=8_100)) == [("doubled", "j")]
    assert breaches(*woken(before=(8_001,))) == [("doubled", "j")]
    assert breaches(*woken(attempt=3)) == [("doubled", "j")]
    assert breaches(*woken(at_ms=8_100, until_ms=4_000)) == [("beside itself", "j")]


# Budgets


def test_a_run_more_than_its_budget_is_seen():
    runs = [ran(at_ms=at, until_ms=at + 1, how="failed") for at in (10, 20, 30, 40)]
    broken = breaches(*added(), *(each for run in runs for each in run), Found("j", "dlq"))
    assert broken == [("budget", "j")]


def test_a_number_above_the_budget_is_seen():
    skipped = ran(at_ms=90, until_ms=91, attempt=4, how="failed")
    assert breaches(*added(), *failed(2), *skipped, dead_letter()) == [("budget", "j")]


def test_a_run_more_than_was_asked_for_is_seen_whatever_the_job_says_itself():
    broken = breaches(*added(budget=3), *failed(5, budget=9), dead_letter())
    assert set(broken) == {("budget", "j")}


def test_a_job_that_forgot_its_budget_is_seen():
    assert breaches(*added(budget=3), *ran(budget=2), completed()) == [("budget", "j")]


def test_a_recurring_job_has_the_budget_of_its_spec():
    spec = Recurs(0, "k", every_ms=100, policy="skip", budget=2)
    runs = ran("k@100", at_ms=100, until_ms=110, call="k", how="failed", budget=4)
    broken = breaches(spec, *runs, Found("k@100", "completed"))
    assert ("budget", "k@100") in broken


def test_runs_that_the_server_forgot_do_not_count():
    runs = [ran(at_ms=at, until_ms=at + 1, how="failed") for at in (10, 20, 30, 40)]
    told_of = [*added(), *(each for run in runs for each in run), Found("j", "dlq")]
    assert breaches(*told_of, Forgotten(25 * MS, "group destroyed")) == []
    assert breaches(*told_of, Forgotten(45 * MS, "group destroyed")) == [("budget", "j")]


def test_a_group_that_was_destroyed_once_makes_a_budget_twice_what_it_was_and_no_more():
    runs = [ran(at_ms=10 * at, until_ms=10 * at + 1, how="failed") for at in range(1, 8)]
    told_of = [*added(), Found("j", "dlq"), Forgotten(25 * MS, "group destroyed")]
    assert breaches(*told_of, *(each for run in runs[:6] for each in run)) == []
    broken = breaches(*told_of, *(each for run in runs for each in run))
    assert broken == [("budget", "j")]


# How jobs end


def revived(at_ms, *, is_done=True):
    """Somebody asks at that time to send the job round again."""
    return [Reviving(at_ms * MS, "j"), Revived((at_ms + 1) * MS, at_ms * MS, "j", is_done)]


def failed_again(times):
    runs = [
        ran(at_ms=510 + 20 * at, until_ms=511 + 20 * at, how="failed", attempt=at + 1)
        for at in range(times)
    ]
    return [record for run in runs for record in run]


def test_a_job_that_was_sent_round_again_has_its_runs_once_more_and_no_more():
    both = [*added(), *failed(3), *failed_again(3), dead_letter()]
    assert breaches(*both) == [("budget", "j")]
    assert breaches(*both, *revived(500)) == []
    assert breaches(*both, Reviving(500 * MS, "j")) == []
    assert breaches(*both, *revived(900)) == [("budget", "j"), ("given up", "j")]
    assert ("budget", "j") in breaches(*both, *failed_again(1), *revived(500))


def test_who_was_told_that_there_is_no_dead_letter_has_sent_none_round():
    both = [*added(), *failed(3), *failed_again(3), dead_letter()]
    assert breaches(*both, *revived(500, is_done=False)) == [("budget", "j")]


def test_what_was_sent_round_again_by_a_primary_that_died_may_not_have_been():
    loss = Forgotten(600 * MS, "primary killed", since_us=400 * MS)
    stays = [*added(), *failed(3), *revived(500), dead_letter()]
    assert breaches(*stays) == [("given up", "j")]
    assert breaches(*stays, loss) == []


def test_a_job_that_was_sent_round_again_has_all_its_runs_again():
    given_up = [*added(), *failed(3), *failed_again(2), dead_letter()]
    assert breaches(*given_up, *revived(500)) == [("given up", "j")]
    # Who was not told may have sent it round later, or not at all.
    assert breaches(*given_up, *revived(500, is_done=None)) == []
    assert breaches(*given_up, Reviving(500 * MS, "j")) == []


def test_a_job_that_was_sent_round_again_and_is_nowhere_is_lost():
    assert breaches(*added(), *failed(3), *revived(500)) == [("lost", "j")]


def test_a_job_that_completed_without_a_run_is_seen():
    assert breaches(*added(), completed()) == [("completed", "j")]


def test_a_job_that_completed_though_every_run_failed_is_seen():
    assert breaches(*added(), *ran(how="failed"), completed()) == [("completed", "j")]
    killed = [*ran(until_ms=None), Died(15 * MS, "w.1")]
    assert breaches(*added(), *killed, completed()) == [("completed", "j")]


def test_a_dead_letter_that_had_succeeded_is_seen():
    story = [*added(budget=1), *ran(budget=1), dead_letter(at_ms=5_000)]
    assert breaches(*story) == [("succeeded", "j")]
    assert breaches(*story, Died(15_000 * MS, "w.1")) == [("succeeded", "j")]
    assert breaches(*story, Died(25 * MS, "w.2")) == [("succeeded", "j")]
    assert breaches(*story, cut("w.1", 20, 25)) == [("succeeded", "j")]


@pytest.mark.parametrize(
    "excuse",
    [
        Died(25 * MS, "w.1"),
        cut("w.1", 15, 5_000),
        cut(EVERYBODY, 15, 5_000, "server killed"),
        Forgotten(15 * MS, "group destroyed"),
    ],
    ids=lambda excuse: getattr(excuse, "why", "died"),
)
def test_a_success_that_could_not_be_told_may_become_a_dead_letter(excuse):
    assert breaches(*added(budget=1), *ran(budget=1), dead_letter(at_ms=5_000), excuse) == []


def test_a_dead_letter_without_a_run_is_seen():
    assert breaches(*added(), dead_letter()) == [("given up", "j")]


def test_a_dead_letter_whose_add_nobody_was_told_of_has_its_budget_all_the_same():
    asked = Asked(0, 0, "p/1", "quick", 3)
    assert breaches(asked, dead_letter(call="p/1")) == [("given up", "j")]


def test_a_dead_letter_with_runs_left_is_seen():
    assert breaches(*added(), *failed(2), dead_letter()) == [("given up", "j")]


def test_a_recurring_job_that_was_given_up_early_is_seen():
    spec = Recurs(0, "k", every_ms=100, policy="skip", budget=2)
    runs = ran("k@100", at_ms=100, until_ms=110, call="k", how="failed", budget=2)
    assert breaches(spec, *runs, dead_letter("k@100")) == [("given up", "k@100")]


def test_a_job_without_hope_may_be_given_up_at_once():
    assert breaches(*added(), *ran(how="hopeless"), dead_letter()) == []


def test_a_job_that_killed_its_worker_has_all_its_runs_too():
    deadly = [*ran(until_ms=None), Died(15 * MS, "w.1")]
    again = [*ran(who="w.2", at_ms=5_000, until_ms=None, attempt=2), Died(5_001 * MS, "w.2")]
    assert breaches(*added(budget=2), *deadly, dead_letter())[-1] == ("given up", "j")
    story = [*added(), *deadly, *again, dead_letter(at_ms=9_000)]
    assert breaches(*story) == [("given up", "j")]


@pytest.mark.parametrize(
    "cost",
    [
        Died(25 * MS, "w.2"),
        Died(25 * MS, "worker-2.1", "after-read"),
        cut("w.2", 20, 4_000),
        cut(EVERYBODY, 20, 900, "server killed"),
    ],
    ids=lambda cost: getattr(cost, "why", getattr(cost, "step", "")) or "killed",
)
def test_a_job_that_may_have_been_read_and_lost_has_one_run_less(cost):
    assert breaches(*added(), *failed(2), dead_letter(at_ms=9_000), cost) == []
    assert breaches(*added(), *failed(1), dead_letter(at_ms=9_000), cost) == [("given up", "j")]
    before = added(delay_ms=20_000)
    late = ran(at_ms=20_010, until_ms=20_020, how="failed", attempt=2)
    assert ("given up", "j") in breaches(*before, *late, dead_letter(at_ms=20_030), cost)


def test_a_job_is_not_lost_again_before_a_lease_has_run_out():
    deaths = [Died(25 * MS, "w.2"), Died(26 * MS, "w.3")]
    in_time, too_soon = dead_letter(at_ms=2 * LEASE_MS), dead_letter(at_ms=2 * LEASE_MS - 10)
    assert breaches(*added(), *failed(1), in_time, *deaths) == []
    assert breaches(*added(), *failed(1), too_soon, *deaths) == [("given up", "j")]


def test_who_hears_nothing_for_long_may_be_given_the_same_job_some_times():
    deaf = cut("w.2", 20, 9_000, "mute")
    assert breaches(*added(budget=4), *failed(1, budget=4), dead_letter(at_ms=12_500), deaf) == []


@pytest.mark.parametrize(
    "harmless",
    [
        Died(9_000 * MS, "w.2"),
        Died(25 * MS, "producer-1.1"),
        Died(25 * MS, "scheduler-1.1"),
        cut("promoter-1.1", 20, 4_000),
        cut("w.2", 20, 120, "refused"),
        Broke(15 * MS, "reset", "worker-1.1"),
        Broke(15 * MS, "reset-everybody", "2 times"),
        Broke(15 * MS, "truncate-answer", "worker-1.1 read after 9 bytes"),
        Broke(15 * MS, "flush-scripts", "2 times"),
        Blocked(15 * MS, 7_000 * MS, "w.2"),
        Starved(15 * MS, 900 * MS),
    ],
    ids=lambda each: f"{type(each).__name__}-{getattr(each, 'fault', getattr(each, 'who', ''))}",
)
def test_what_cannot_cost_a_read_excuses_no_run_less(harmless):
    story = [*added(), *failed(2), dead_letter(at_ms=8_000)]
    assert breaches(*story, harmless) == [("given up", "j")]


def test_a_stop_costs_no_run():
    stopped = [cut("w.2", 20, 900, "stopped"), Died(901 * MS, "w.2")]
    story = [*added(), *failed(2), dead_letter(at_ms=8_000)]
    assert breaches(*story, *stopped) == [("given up", "j")]
    killed_in_it = [cut("w.2", 20, 900, "stopped"), Died(500 * MS, "w.2")]
    assert breaches(*story, *killed_in_it) == []


# Delays


def test_a_delayed_job_that_begins_early_is_seen():
    story = [*added(at_ms=100, delay_ms=500), completed()]
    assert breaches(*story, *ran(at_ms=597, until_ms=610)) == [("early", "j")]
    assert breaches(*story, *ran(at_ms=600, until_ms=610)) == []


# Withdrawn


def test_a_job_that_begins_after_it_was_withdrawn_is_seen():
    gone = Withdrawn(5 * MS, "j", is_gone=True)
    assert breaches(*added(), gone, *ran(how="failed")) == [("withdrawn", "j")]


@pytest.mark.parametrize(
    ("destroyed_ms", "is_excused"), [(19_000, True), (18_900, False), (20_100, False)]
)
def test_a_job_in_hand_can_be_withdrawn_once_its_group_is_destroyed(destroyed_ms, is_excused):
    """Of what was read within a lease before it began the server knew, until the group was gone."""
    gone = Withdrawn(20_000 * MS, "j", is_gone=True)
    destroyed = Forgotten(destroyed_ms * MS, "group destroyed")
    begun = ran(at_ms=19_000 + LEASE_MS, until_ms=30_000, how="failed")
    told = breaches(*added(), destroyed, gone, *begun)
    assert told == ([] if is_excused else [("withdrawn", "j")])


def test_a_job_that_failed_before_it_was_withdrawn_breaks_nothing():
    gone = Withdrawn(50 * MS, "j", is_gone=True)
    assert breaches(*added(), *ran(how="failed"), gone) == []


def pause(from_ms, until_ms, *, asked_ms=None, ended_ms=None):
    asked_ms = from_ms if asked_ms is None else asked_ms
    ended_ms = until_ms if ended_ms is None else ended_ms
    return Paused(from_ms * MS, until_ms * MS, asked_ms * MS, ended_ms * MS)


def test_a_job_that_begins_in_the_pause_in_which_it_was_added_is_seen():
    begun = [*added(at_ms=100), *ran(at_ms=150, until_ms=160), completed()]
    assert breaches(*begun, pause(90, 200)) == [("paused", "j")]
    assert breaches(*begun, pause(90, 140)) == []


def test_a_job_that_was_added_before_a_pause_may_have_been_read_before():
    assert breaches(*added(at_ms=80), *ran(at_ms=150), completed(), pause(90, 200)) == []


def test_of_two_pauses_the_first_to_end_ends_both():
    begun = [*added(at_ms=100), *ran(at_ms=150, until_ms=160), completed()]
    assert breaches(*begun, pause(90, 200), pause(50, 120)) == []


@pytest.mark.parametrize(("ended_ms", "is_excused"), [(91, True), (69, False)])
def test_a_pause_that_was_asked_for_before_another_was_ended_may_be_ended_with_it(
    ended_ms, is_excused
):
    """A server that stood still carries out what it was asked meanwhile in any order."""
    begun = [*added(at_ms=100), *ran(at_ms=150, until_ms=160), completed()]
    before = pause(20, 40, ended_ms=ended_ms)
    told = breaches(*begun, before, pause(90, 200, asked_ms=70))
    assert told == ([] if is_excused else [("paused", "j")])


@pytest.mark.parametrize(
    "excuse",
    [
        Forgotten(95 * MS, "primary killed", since_us=85 * MS),
        Broke(80 * MS, "wrong-type", "{chasqui:chaos}:paused for 0.1 s"),
        Broke(80 * MS, "wrong-type", "TimeoutError: no answer", is_done=False),
    ],
    ids=["died with its primary", "something else at its key", "at which key nobody knows"],
)
def test_a_pause_that_may_not_be_there_any_more_holds_nobody(excuse):
    begun = [*added(at_ms=100), *ran(at_ms=150, until_ms=160), completed()]
    assert breaches(*begun, pause(90, 200), excuse) == []


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


def test_a_value_that_was_returned_and_is_not_kept_is_seen():
    [began, ended] = ran()
    returned = Ended(ended.us, ended.run, "ok", has_value=True)
    assert breaches(*added(), began, returned, completed()) == [("result", "j")]
    assert breaches(*added(), began, returned, completed(call="p/1")) == []


def test_of_two_runs_that_succeeded_either_may_have_left_its_value():
    [began, ended] = ran()
    returned = Ended(ended.us, ended.run, "ok", has_value=True)
    silent = ran(who="w.2", at_ms=30, until_ms=40)
    died = Died(25 * MS, "w.1")
    assert breaches(*added(), began, returned, died, *silent, completed()) == []


# Recurring jobs


def fired(*windows, policy="fire-all"):
    jobs = [f"k@{window}" for window in windows]
    runs = [
        each
        for job, window in zip(jobs, windows, strict=True)
        for each in ran(job, at_ms=window, until_ms=window + 10, call="k")
    ]
    return [Recurs(0, "k", every_ms=100, policy=policy), *runs, *map(completed, jobs)]


def test_windows_that_all_fired_break_nothing():
    assert breaches(*fired(100, 200, 300)) == []


def test_a_window_that_was_left_out_is_seen_where_all_must_fire():
    assert breaches(*fired(100, 300)) == [("windows", "")]
    assert breaches(*fired(100, 300, policy="skip")) == []


def test_a_primary_that_died_excuses_no_window_that_was_left_out():
    loss = Forgotten(900 * MS, "primary killed", since_us=500 * MS)
    assert breaches(*fired(100, 300), loss) == [("windows", "")]


def test_a_window_off_the_grid_is_seen():
    assert breaches(*fired(100, 250, policy="skip")) == [("windows", "k@250")]


def test_a_window_that_fired_twice_is_seen():
    twice = [*fired(100), *ran("k@100", who="w.2", at_ms=150, until_ms=160, call="k", attempt=1)]
    assert breaches(*twice) == [("doubled", "k@100")]


def test_a_window_that_fired_before_it_came_is_seen():
    early = ran("k@200", at_ms=150, until_ms=160, call="k")
    assert breaches(*fired(100), *early, completed("k@200")) == [("early", "k@200")]


def test_windows_before_the_first_that_fired_are_missed_where_all_must_fire():
    assert breaches(*fired(200, 300)) == [("windows", "")]


def test_a_recurring_job_that_never_fired_is_seen():
    assert breaches(*fired()) == [("windows", "")]


# Poison and rest


ENTRY = Poisoned(1, "entry: garbage", "ff00", "7-1")
MEMBER = Poisoned(2, "member: too short", "01")
ENTRY_ASIDE, MEMBER_ASIDE = SetAside("7-1", "ff00"), SetAside("0-0", "01")


def test_poison_that_vanished_is_seen():
    assert breaches(ENTRY, MEMBER, ENTRY_ASIDE, MEMBER_ASIDE) == []
    assert breaches(ENTRY, MEMBER, ENTRY_ASIDE) == [("poison", "")]
    assert breaches(ENTRY, MEMBER, MEMBER_ASIDE) == [("poison", "")]


def test_poison_that_vanished_is_seen_though_another_was_set_aside_twice():
    twice = breaches(ENTRY, MEMBER, ENTRY_ASIDE, ENTRY_ASIDE)
    assert twice == [("poison", ""), ("poison", "")]


def test_members_that_are_alike_are_counted():
    assert breaches(MEMBER, MEMBER, MEMBER_ASIDE, MEMBER_ASIDE) == []
    assert breaches(MEMBER, MEMBER, MEMBER_ASIDE) == [("poison", "")]


def test_a_member_that_came_to_the_stream_is_known_by_its_last_bytes():
    assert breaches(MEMBER, SetAside("9-1", "01")) == []


def test_a_dead_letter_that_is_no_job_and_that_nobody_left_is_seen():
    """Such as a job of which something was lost on the way."""
    assert breaches(ENTRY, ENTRY_ASIDE, SetAside("8-1", "aa")) == [("poison", "")]


def test_an_entry_that_a_worker_handed_back_is_known_by_its_last_bytes():
    assert breaches(ENTRY, SetAside("8-1", "ff00")) == []
    assert breaches(ENTRY, SetAside("8-1", "ff00"), ENTRY_ASIDE) == [("poison", "")]
    other = Poisoned(3, "entry: garbage", "ff00", "9-1")
    assert breaches(ENTRY, other, ENTRY_ASIDE, SetAside("8-1", "ff00")) == []
    assert breaches(ENTRY, other, ENTRY_ASIDE) == [("poison", "")]


def test_what_was_left_without_an_answer_may_be_there_or_not():
    unsure = Poisoned(5, "entry: garbage", "ee", is_certain=False)
    assert breaches(unsure) == []
    assert breaches(unsure, SetAside("8-1", "ee")) == []
    assert breaches(unsure, SetAside("8-1", "ee"), SetAside("8-2", "ee")) == [("poison", "")]


def test_poison_that_died_with_a_primary_is_excused_and_no_other():
    loss = Forgotten(900 * MS, "primary killed", since_us=500 * MS)

    def left(at_ms):
        return Poisoned(at_ms * MS, "entry: garbage", "ff00", "7-1")

    assert breaches(left(600), loss) == []
    assert breaches(left(600), loss, ENTRY_ASIDE) == []
    assert breaches(left(600), loss, ENTRY_ASIDE, ENTRY_ASIDE) == [("poison", "")]
    assert breaches(left(499), loss) == [("poison", "")]
    assert breaches(left(901), loss) == [("poison", "")]


def test_a_queue_that_does_not_drain_is_seen():
    stuck = Quiet(is_drained=False)
    assert breaches(*added(), Found("j", "stream"), stuck) == [("rest", "j")]


def test_what_is_left_behind_is_seen():
    assert breaches(Quiet(is_drained=True, leftovers=("key k never expires",))) == [("rest", "")]


def test_a_history_without_an_end_proves_nothing():
    assert [breach.rule for breach in check(told([STAGE]))] == ["rest"]


# Every rule

VIOLATIONS = {
    "lost": added(),
    "one place": [*added(), *failed(3), dead_letter(), dead_letter()],
    "beside itself": overlapping(),
    "doubled": twice_ok(),
    "budget": [*added(budget=3), *failed(5, budget=9), dead_letter()],
    "completed": [*added(), completed()],
    "succeeded": [*added(budget=1), *ran(budget=1), dead_letter(at_ms=5_000)],
    "given up": [*added(), *failed(2), dead_letter()],
    "early": [*added(at_ms=100, delay_ms=500), *ran(at_ms=597, until_ms=610), completed()],
    "withdrawn": [*added(), Withdrawn(5 * MS, "j", is_gone=True), *ran(how="failed")],
    "paused": [
        *added(at_ms=100),
        *ran(at_ms=150, until_ms=160),
        completed(),
        pause(90, 200),
    ],
    "refused": [
        Asked(0, 0, "p/1", "quick", 3),
        Refused(5 * MS, "p/1", "QueueFullError", is_certain=True),
        *ran(),
        completed(),
    ],
    "unique": [*added(wanted="j"), *added(call="p/2", wanted="j"), *ran(), completed()],
    "added once": [*added(), *ran(), *ran("other", who="w.2"), completed(), completed("other")],
    "result": [*added(), *ran(), completed(has_result=False)],
    "windows": fired(100, 300),
    "poison": [ENTRY],
    "rest": [Quiet(is_drained=False)],
}
"""For each name of a breach a history that breaks that promise and no other."""


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_history_that_breaks_one_promise_is_told_by_its_name(name):
    assert {rule for rule, _ in breaches(*VIOLATIONS[name])} == {name}


def test_every_rule_has_a_history_that_breaks_it():
    """`unique` has two names: an id of two jobs, and a call of two."""
    assert set(VIOLATIONS) == {*RULES, "added once"}
    for name, rule in RULES.items():
        given = told([STAGE, *VIOLATIONS[name]])
        assert {breach.rule for breach in rule(given)} == {name}


def test_every_rule_has_a_docstring_that_states_its_promise():
    assert all(rule.__doc__ for rule in RULES.values())
