"""Orders, targets, tables and pictures of the benchmark; nothing here depends on speed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import limits, peers
from bench.__main__ import main, scenarios_named
from bench.chart import chart
from bench.contest import Contender, asked, by_order, hold
from bench.draining import drained_s
from bench.limits import MODES, limit
from bench.peers import PEERS, MissingError, Peer, home
from bench.program.adapter import Adapter, CannotError
from bench.program.bodies import BODIES
from bench.program.meter import quantiles_ms
from bench.program.order import Answer, Order
from bench.program.payloads import nested, payload
from bench.results import OURS, results, shown, skipped, summary
from bench.rounds import Spread, turns
from bench.scenarios import FIGURES, SCENARIOS
from bench.targets import ITSELF, LIMIT, REFERENCE, TARGETS, Target

ROOT = Path(__file__).parents[3]
SERVERS = ROOT / "scripts" / "servers.py"


def rates(*found):
    return [Answer({"rate": each, "client_us": 2.0}) for each in found]


def told(scenario="bulk50", **answers):
    return results(SCENARIOS[scenario], answers)


def test_an_order_and_an_answer_survive_the_way_to_a_program_and_back():
    order = Order(adapter="chasqui", body="work", port=7, depths=(1, 2), events=False)
    answer = Answer({"rate": 1.5}, None)
    assert Order.from_json(order.to_json()) == order
    assert Answer.from_json(answer.to_json()) == answer
    assert Answer.from_json('{"figures": {}}') == Answer()


def test_every_scenario_names_a_body_and_figures_that_exist():
    for name, each in SCENARIOS.items():
        assert each.name == name
        assert each.order.body in BODIES
        assert set(each.figures) <= set(FIGURES)
    assert set(MODES) <= set(SCENARIOS)


def test_every_target_is_about_a_figure_that_its_scenario_tells():
    for target in TARGETS:
        assert target.figure in SCENARIOS[target.scenario].figures
        assert (target.least is None) != (target.most is None)
        assert target.against in {ITSELF, REFERENCE, LIMIT}
        if target.against == LIMIT:
            assert target.scenario in MODES


def test_the_page_on_performance_tells_of_every_scenario_and_every_target():
    page = (ROOT / "docs" / "performance.md").read_text()
    scenarios, _, targets = page.partition("## Targets")
    assert [name for name in SCENARIOS if f"`{name}`" not in scenarios] == []
    assert [each for each in TARGETS if f"`{each.scenario}`" not in targets] == []


def test_slow_peers_and_quick_runs_get_fewer_jobs_but_never_next_to_none():
    scenario = SCENARIOS["bulk50"]
    whole = scenario.ordered("a", 1, is_quick=False)
    assert (whole.adapter, whole.port, whole.jobs) == ("a", 1, scenario.order.jobs)
    assert scenario.ordered("a", 1, share=0.1, is_quick=False).jobs == whole.jobs / 10
    assert scenario.ordered("a", 1, share=0.00001, is_quick=False).jobs == 200
    quick = SCENARIOS["growth"].ordered("a", 1, is_quick=True)
    assert (quick.jobs, quick.seconds, max(quick.depths)) == (200, 1, 50_000)
    assert SCENARIOS["recurring"].ordered("a", 1, is_quick=True).jobs == 100


def test_a_ratio_is_taken_within_a_round_and_the_median_of_them_is_judged():
    ours = told(ours=rates(300, 100, 90), reference=rates(100, 50, 50), limit=rates(600, 200, 100))
    (first, reference, limited) = ours
    assert (first.rival, reference.rival, limited.rival) == (OURS, REFERENCE, LIMIT)
    assert first.values == Spread(100, 90, 300)
    assert first.to_reference == Spread(2, 1.8, 3)
    assert first.to_limit == Spread(0.5, 0.5, 0.9)
    assert [each.is_met for each in first.verdicts] == [True, False]
    assert reference.to_reference is None
    assert reference.verdicts == ()
    assert (first.client_us, first.server_us) == (2.0, None)


def test_a_table_marks_what_was_missed_and_what_could_not_be_compared():
    table = shown(told(ours=rates(150), reference=rates(100)))
    assert ">= 2x reference MISSED, >= 0.65x limit (not compared)" in table
    assert "1.50 (1.50-1.50)" in table
    assert "MISSED" not in shown(told(ours=rates(200), reference=rates(100)))


def test_a_summary_counts_targets_and_lists_those_that_are_not_met():
    lines = summary(told(ours=rates(150), reference=rates(100))).splitlines()
    assert lines[0] == "0 of 2 targets met"
    assert lines[1] == "  bulk50 jobs/s: >= 2x reference MISSED, found 1.50"


def test_a_figure_that_has_to_be_small_is_judged_by_itself():
    answers = {"ours": [Answer({"p50_ms": 4.0, "p99_ms": 30.0, "p999_ms": 31.0})]}
    p50, p99, _ = results(SCENARIOS["lateness"], answers)
    assert [each.is_met for each in p50.verdicts] == [True]
    assert [each.is_met for each in p99.verdicts] == [False]
    assert str(p99.verdicts[0]) == "<= 20 MISSED"


def test_ours_on_an_older_server_is_held_against_ours_on_a_newer_one():
    answers = {"ours": rates(60), "ours, redis-8.6": rates(100)}
    (first, _) = results(SCENARIOS["worker100-1k"], answers)
    assert first.verdicts[0].target == Target("worker100-1k", "rate", "ours, redis-8.6", least=0.7)
    assert first.verdicts[0].is_met is False


def test_a_round_in_which_somebody_failed_does_not_count_and_is_told_of():
    gone = Answer(skipped="failed: no")
    answers = {"ours": rates(300, 100), "reference": [*rates(100), gone], "arq": [gone, gone]}
    ours = results(SCENARIOS["bulk50"], answers)
    assert ours[0].to_reference == Spread(3, 3, 3)
    assert [each.rival for each in ours] == ["ours", "reference"]
    assert skipped(SCENARIOS["bulk50"], answers) == [
        "bulk50: reference 1 of 2: failed: no",
        "bulk50: arq 2 of 2: failed: no",
    ]


def test_a_chart_is_well_formed_has_a_bar_for_each_rate_and_escapes_what_it_is_told():
    found = told(ours=rates(300), reference=rates(100)) + told("worker100", ours=rates(5))
    late = results(SCENARIOS["lateness"], {"ours": [Answer({"p50_ms": 4.0})]})
    tree = ET.fromstring(chart(found + late, note="load < 1 & quiet"))  # noqa: S314 -- ours
    space = "{http://www.w3.org/2000/svg}"
    bars = [each for each in tree.iter(f"{space}rect") if each.get("x")]
    texts = [each.text for each in tree.iter(f"{space}text")]
    assert len(bars) == 3
    assert float(bars[0].get("width")) == pytest.approx(3 * float(bars[1].get("width")), rel=0.01)
    assert "300  (3x)" in texts
    assert "load < 1 & quiet" in texts


def test_a_chart_of_nothing_is_well_formed_too():
    assert ET.fromstring(chart([])).tag.endswith("svg")  # noqa: S314 -- ours


def test_quantiles_are_values_that_were_seen():
    found = quantiles_ms([each / 1_000 for each in range(1_000, 0, -1)])
    assert (found["p50_ms"], found["p99_ms"], found["max_ms"]) == (501, 991, 1_000)
    assert quantiles_ms([0.002])["p999_ms"] == 2


def test_payloads_have_the_size_that_is_asked_for():
    assert len(payload(1_024)["data"]) == 1_024
    assert 3_000 < len(json.dumps(nested())) < 6_000


def test_turns_go_forth_and_back():
    assert "".join(turns("abc", 3)) == "abccbaabc"


def test_a_program_that_fails_or_is_silent_is_an_answer_with_the_reason():
    def python(code):
        return asked([sys.executable, "-c", code])

    assert python("print('noise'); print('{\"figures\": {\"rate\": 2}}')") == Answer({"rate": 2})
    assert python("raise SystemExit('no such thing')").skipped == "failed: no such thing"
    assert python("").skipped == "failed: it said nothing"


def test_a_rival_that_cannot_do_a_scenario_is_asked_once_on_a_wiped_server():
    wiped = []
    answer = json.dumps({"skipped": "no"})
    cannot = Contender("a", "x", 5, lambda _: [sys.executable, "-c", f"print({answer!r})"])
    absent = Contender("b", "x", 6, lambda _: None)
    found = hold(SCENARIOS["bulk50"], [cannot, absent], rounds=3, is_quick=True, wipe=wiped.append)
    assert wiped == [5]
    assert found == {"a": [Answer(skipped="no")] * 3}


def test_an_order_goes_to_a_program_as_its_last_argument():
    order = Order(adapter="chasqui", body="work", port=7)
    assert by_order(["python", "-m"])(order) == ["python", "-m", order.to_json()]


def test_a_limit_does_as_many_jobs_as_the_order_says_or_takes_no_part():
    order = replace(SCENARIOS["bulk50"].order, port=7, jobs=300)
    assert limit("bulk50", ["limits"])(order) == ["limits", "7", "add", "300", "50"]
    told = limit("bulk50", ["limits"], is_told=True)
    assert told(order) == ["limits", "7", "add-told", "300", "50"]
    assert limit("worker1", ["limits"], is_told=True)(order) is None
    assert limit("idle", ["limits"])(order) is None


def test_without_a_compiler_the_limit_is_a_loop_in_python(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert limits.limit_program() == ("Python", [sys.executable, "-m", "bench.limits.loop"])


def test_a_peer_that_cannot_be_installed_is_missing_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("CHASQUI_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(peers.sys, "executable", "/nonexistent/python")
    with pytest.raises(MissingError, match="nonexistent"):
        home(Peer("nobody", "nobody", ("nobody",)))
    assert list(tmp_path.iterdir()) == []


def test_the_reference_is_the_version_that_the_tests_run_with():
    version = next(
        line.split('"')[1]
        for line in SERVERS.read_text().splitlines()
        if line.startswith("REFERENCE_VERSION")
    )
    assert PEERS[REFERENCE].packages == (f"chasquimq=={version}",)


def test_every_peer_has_an_adapter():
    folder = ROOT / "bench" / "program" / "adapters"
    known = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {peer.adapter for peer in PEERS.values() if not peer.is_node} == known


@pytest.mark.parametrize(
    ("change", "feature"),
    [({"events": False}, "events"), ({"results": True}, "results"), ({"pause_ms": 1}, "pause")],
)
def test_an_adapter_refuses_what_its_rival_does_not_have(change, feature):
    adapter = Adapter.__new__(Adapter)
    adapter.order = Order(adapter="x", body="work", port=7, **change)
    with pytest.raises(CannotError, match=feature):
        adapter.check()
    adapter.features = frozenset({feature})
    adapter.check()


def test_a_queue_is_timed_from_its_first_job_to_its_last():
    depths = iter([3, 3, 2, 1, 0])
    begun = []
    assert drained_s(lambda: next(depths), lambda: begun.append(True)) > 0
    assert begun == [True]


def test_a_name_that_is_unknown_is_refused_before_anything_starts(capsys):
    with pytest.raises(SystemExit):
        main(["--only", "bulk50,nonsense"])
    assert "unknown: nonsense" in capsys.readouterr().err


def test_a_name_without_its_number_stands_for_all_that_have_one():
    assert scenarios_named("processes,worker100") == ("processes2", "processes4", "worker100")


def test_nothing_but_its_adapter_imports_what_is_measured():
    code = "import sys, bench.program.__main__; print('chasquimq' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "False"
