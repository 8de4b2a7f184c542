"""The page on metrics and the dashboard name what the code has, and all of it."""

import inspect
import json
import re

import pytest
from prometheus_client import CollectorRegistry

from chasquimq import metrics
from chasquimq.metrics import MetricsSink
from chasquimq.prometheus import families
from tests.architecture.test_docs import ROOT, table

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "chasquimq.json").read_text())
TYPES = ("counter", "gauge", "histogram")
# What a histogram is stored as.
PARTS = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture
def known():
    """Every metric as Prometheus stores it: type and labels, in order."""
    found = {}
    for each in families(CollectorRegistry()):
        [described] = each.describe()
        suffix = "_total" if described.type == "counter" else ""
        found[described.name + suffix] = (described.type, each._labelnames)  # noqa: SLF001
    return found


def queries(dashboard):
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])
    ]
    variables = [each.get("definition", "") for each in dashboard["templating"]["list"]]
    return expressions + variables


def test_every_metric_is_in_its_table_with_its_type_and_labels(known):
    rows = {row[0]: (row[1], tuple(row[2].split(", "))) for row in table("metrics.md", "Metrics")}
    assert rows == known
    assert {kind for kind, _ in known.values()} == set(TYPES)


def test_every_report_is_in_its_table_with_what_it_carries():
    rows = {row[0]: row[1] for row in table("metrics.md", "The sink")}
    methods = {
        name: next(
            each.annotation
            for each in inspect.signature(member).parameters.values()
            if each.name != "self"
        )
        for name, member in vars(MetricsSink).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }
    assert {name: getattr(metrics, kind) for name, kind in rows.items()} == methods


def test_every_metric_of_the_dashboard_exists_and_none_is_left_out(known):
    named = {
        name if name in known else PARTS.sub("", name)
        for query in queries(DASHBOARD)
        for name in re.findall(r"chasquimq_\w+", query)
    }
    assert named == set(known)


def test_every_label_that_the_dashboard_groups_or_chooses_by_exists(known):
    labels = {label for _, each in known.values() for label in each}
    for query in queries(DASHBOARD):
        grouped = re.findall(r"by \(([^)]*)\)", query)
        chosen = re.findall(r"(\w+)=~?\"", query)
        used = {label.strip() for group in grouped for label in group.split(",")} | set(chosen)
        assert used <= labels | {"le", "instance"}, query


def test_the_dashboard_can_be_imported_with_any_data_source():
    variables = [each["name"] for each in DASHBOARD["templating"]["list"]]
    assert variables == ["datasource", "queue"]
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    sources = [panel["datasource"] for panel in panels]
    sources += [target["datasource"] for panel in panels for target in panel["targets"]]
    assert {source["uid"] for source in sources} == {"${datasource}"}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_no_two_panels_of_the_dashboard_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
