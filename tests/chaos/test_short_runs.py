"""Short runs of `python -m chaos`, each with a seed of its own; `make chaos` is the long one."""

import json
import subprocess
import sys

import pytest

from tests.support.servers import ROOT

# One after the other: each keeps two cores busy, and the other tests want some of them too.
pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(600)]


def chaos(*arguments):
    """Play a run, and return its report; fails with the whole of it if a promise was broken."""
    command = [sys.executable, "-m", "chaos", "--json", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            told, said = run.communicate()
        finally:
            run.terminate()  # not killed: it has servers to end
    assert run.returncode == 0, told + said
    return json.loads(told)


def was_rough(report):
    """Whether enough was asked and broken for the report to mean something."""
    figures = report["figures"]
    assert figures["acknowledged"] > 100
    assert figures["runs"] > 100
    assert figures["deaths"] > 0
    assert sum(report["faults"].values()) > 5
    return not report["breaches"]


@pytest.mark.servers("valkey", "redis-8.6")
def test_one_server_under_every_fault_keeps_every_promise(server, queue_name):
    assert was_rough(chaos("--server", server.name, "--minutes", "0.6", "--seed", "1"))


@pytest.mark.servers("valkey")
@pytest.mark.parametrize("topology", ["sentinel", "cluster"])
def test_servers_that_change_places_keep_every_promise(server, queue_name, topology):
    assert was_rough(chaos("--topology", topology, "--minutes", "0.3", "--seed", "2"))
