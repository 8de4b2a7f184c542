"""The judging part of a soak: series that grow are seen, and those that only shake are not."""

import json
import random
from itertools import islice

import pytest

from chaos.soak.ledger import ACKNOWLEDGED, ENDED, Balance, Ledger, balance
from chaos.soak.options import Options, parse
from chaos.soak.report import is_good, to_json, to_text
from chaos.soak.run import Outcome
from chaos.soak.verdict import RULES, Series, judge
from chaos.soak.work import wishes

HOUR_S = 3_600
WARM_UP_S = 900
EVERY_S = 5
READINGS = HOUR_S // EVERY_S


def an_hour(what, value_at):
    """A series of one reading every five seconds; `value_at` is given the share of the hour."""
    points = tuple((n * EVERY_S, value_at(n / READINGS)) for n in range(READINGS))
    return Series("worker-1", what, points)


def a_chance(seed):
    return random.Random(seed)  # noqa: S311 -- repeatable on purpose


def is_flat(what, value_at):
    return judge(an_hour(what, value_at), WARM_UP_S).is_flat


@pytest.mark.parametrize("what", RULES)
def test_what_stays_as_it_is_is_flat(what):
    assert is_flat(what, lambda _: 40)


@pytest.mark.parametrize("what", RULES)
def test_what_becomes_less_is_flat(what):
    assert is_flat(what, lambda share: 40 * (1 - share))


@pytest.mark.parametrize(
    ("what", "begins", "grows"),
    [
        ("memory", 35, 6),  # 25 bytes a job, at 70 a second
        ("sockets", 5, 6),
        ("files", 12, 6),
        ("threads", 4, 2),
        ("memory used", 12, 3),
        ("clients", 15, 12),
        ("consumers", 3, 2),
        ("waiting", 5, 60),
        ("pending", 5, 60),  # one a minute
        ("delayed", 25, 250),
        ("keys", 9_000, 2_500),
        ("keys without ttl", 6, 2),
    ],
)
def test_what_grows_little_by_little_is_seen(what, begins, grows):
    assert not is_flat(what, lambda share: begins + int(grows * share * 10) / 10)


def test_every_kind_of_series_has_a_growth_that_is_seen():
    [mark] = test_what_grows_little_by_little_is_seen.pytestmark
    assert {what for what, *_ in mark.args[1]} == set(RULES)


def test_one_key_that_appears_in_the_middle_and_stays_is_seen():
    assert not is_flat("keys without ttl", lambda share: 6 if share < 0.6 else 7)


def test_growth_that_comes_in_steps_is_seen():
    assert not is_flat("memory", lambda share: 35 + 4 * int(share * 4))


def test_growth_that_ends_with_the_warm_up_is_none():
    assert is_flat("memory", lambda share: 20 + 80 * min(share, 0.25))


def test_peaks_and_readings_during_a_reconnect_do_not_count():
    chance = a_chance(1)
    assert is_flat("memory", lambda _: 35 + chance.random() * 2)
    assert is_flat("sockets", lambda _: chance.choice((5, 5, 5, 5, 2, 9)))
    assert is_flat("pending", lambda _: chance.choice((2, 3, 4, 300)))


def test_a_small_leak_is_seen_through_the_noise():
    chance = a_chance(2)
    assert not is_flat("memory", lambda share: 35 + 6 * share + chance.random() * 2)


def test_a_verdict_tells_what_it_goes_by():
    verdict = judge(an_hour("memory", lambda share: 100 if share < 0.5 else 104), WARM_UP_S)
    assert (verdict.first, verdict.last, verdict.most) == (100, 104, 104)
    assert (verdict.growth, verdict.allowed) == (4, 3)


def test_too_few_readings_are_no_proof():
    with pytest.raises(ValueError, match="worker-1 memory: 2 readings after the warm-up"):
        judge(Series("worker-1", "memory", ((0, 1), (900, 1), (905, 1))), WARM_UP_S)


# --- the ledger


def write(path, numbers):
    ledger = Ledger(path)
    for number in numbers:
        ledger.write(number)
    ledger.close()


def test_the_balance_sees_what_is_lost_and_what_ended_twice(tmp_path):
    write(tmp_path / f"producer-1.{ACKNOWLEDGED}", [1, 2, 3])
    write(tmp_path / f"producer-2.{ACKNOWLEDGED}", [1 << 40])
    write(tmp_path / f"worker-1.{ENDED}", [1, 2])
    # 9 was added by a call whose answer was lost: it may run.
    write(tmp_path / f"worker-2.{ENDED}", [2, 9, 1 << 40])
    assert balance(tmp_path) == Balance(acknowledged=4, ended=4, again=1, lost=1)


def test_half_a_number_at_the_end_of_a_ledger_is_none(tmp_path):
    write(tmp_path / f"worker-1.{ENDED}", [1])
    with (tmp_path / f"worker-1.{ENDED}").open("ab") as file:
        file.write(b"\x02\x00")
    assert balance(tmp_path).ended == 1


# --- what is asked for


def test_jobs_of_all_producers_have_numbers_of_their_own():
    asked = [islice(wishes(producer, a_chance(7)), 5_000) for producer in (1, 2)]
    numbers = [number for some in asked for wish in some for number in wish.numbers]
    assert len(numbers) == len(set(numbers)) > 10_000


def test_unique_ids_come_from_a_pool_that_does_not_grow():
    asked = islice(wishes(1, a_chance(7)), 100_000)
    assert len({wish.options["job_id"] for wish in asked if wish.kind == "once"}) <= 200


# --- the report


OPTIONS = Options(minutes=60)


def an_outcome(*, lost=0, wrongs=()):
    counted = Balance(acknowledged=10, ended=10 - lost, again=0, lost=lost)
    return Outcome(3_600.0, 720, counted, [an_hour("memory", lambda _: 35)], list(wrongs))


def told(outcome, value_at=lambda _: 35):
    verdicts = [judge(an_hour("memory", value_at), WARM_UP_S)]
    text = to_text(OPTIONS, outcome, verdicts)
    answer = json.loads(to_json(OPTIONS, outcome, verdicts))
    assert answer["is_good"] == is_good(outcome, verdicts) == ("WRONG" not in text)
    return text


def test_a_good_soak_says_so():
    assert "everything is flat after the warm-up" in told(an_outcome())


@pytest.mark.parametrize(
    ("text", "outcome", "value_at"),
    [
        ("WRONG: worker-1 memory grows", an_outcome(), lambda share: 35 + 9 * share),
        ("WRONG: 2 jobs are lost", an_outcome(lost=2), lambda _: 35),
        ("WRONG: worker-2.1 ended by itself", an_outcome(wrongs=["worker-2.1 ended by itself"]),
         lambda _: 35),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text, outcome, value_at):
    assert text in told(outcome, value_at)


def test_a_command_line_says_how_long_how_much_and_where():
    given = parse(["--minutes", "1", "--rate", "50", "--server", "redis-7.0", "--every", "2"])
    assert given == Options(minutes=1, rate=50, server="redis-7.0", every_s=2)
    assert given.warm_up_s == 15
