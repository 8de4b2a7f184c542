"""The report of a flood: tenth by tenth, how fast it drained and how late new jobs were."""

import json

from chaos.flood.__main__ import parse
from chaos.flood.report import tenths, to_json, to_text
from chaos.flood.run import Look, Options, Outcome


def an_outcome(seconds=20, *, late_s=0.1):
    """A thousand jobs that drain evenly, and a new one in the middle of each second."""
    left = [1_000 - 1_000 * n // seconds for n in range(seconds + 1)]
    looks = [Look(float(at), max(0, n - 40), min(40, n)) for at, n in enumerate(left)]
    return Outcome(looks, [(at + 0.5, late_s) for at in range(seconds)], unheard=0)


def test_a_flood_that_drains_evenly_has_ten_equal_tenths():
    found = tenths(an_outcome())
    assert len(found) == 10
    assert {each.rate for each in found} == {51}  # of the flood and the new job
    assert {(each.took_s, each.new, each.max_s) for each in found} == {(2, 2, 0.1)}
    assert sum(each.took_s for each in found) == 20


def test_a_tenth_in_which_nothing_moves_is_seen():
    outcome = an_outcome()
    outcome.looks[4:7] = [Look(float(at), 760, 40) for at in (4, 5, 6)]
    assert tenths(outcome)[2].rate == 1  # the new job only


def test_a_flood_that_is_over_soon_has_fewer_tenths():
    assert len(tenths(an_outcome(seconds=3))) == 3


def test_the_report_tells_what_new_jobs_had_to_wait():
    outcome = an_outcome(late_s=0.75)
    text = to_text(Options(jobs=1_000), outcome)
    assert "1,000 jobs due in one second on valkey: 20 s, 50 jobs/s" in text
    assert "20 new jobs meanwhile: p50 0.75 s, max 0.75 s; 0 never ran" in text
    assert len(json.loads(to_json(Options(), outcome))["tenths"]) == 10


def test_a_command_line_says_how_many_jobs_and_how_slow():
    assert parse(["--jobs", "9", "--takes-ms", "20", "--json"]) == Options(
        jobs=9, takes_ms=20, is_json=True
    )
