"""`python -m bench`, as small as it gets: that it measures, not what."""

import json
import os
import subprocess
import sys
from xml.etree import ElementTree as ET

from tests.support.servers import ROOT


def test_a_quick_run_without_peers_tells_figures_limits_and_targets(tmp_path):
    picture = tmp_path / "chart.svg"
    command = [sys.executable, "-m", "bench", "--quick", "--peers", "none", "--rounds", "1"]
    command += ["--only", "bulk50,worker100", "--server", "valkey", "--json"]
    done = subprocess.run(
        [*command, "--chart", str(picture)],
        cwd=ROOT,
        env=os.environ | {"CHASQUI_BENCH_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    found = {(each["scenario"], each["rival"]): each for each in told["results"]}
    limits = {("bulk50", "limit"), ("bulk50", "limit, told"), ("worker100", "limit")}
    assert set(found) == {("bulk50", "ours"), ("worker100", "ours")} | limits
    for each in found.values():
        assert each["values"]["median"] > 0
    assert found["bulk50", "ours"]["to_limit"]["median"] > 0
    assert found["bulk50", "ours"]["to_reference"] is None
    assert "valkey" in told["machine"]["versions"]
    assert ET.parse(picture).getroot().tag.endswith("svg")  # noqa: S314 -- ours
