"""Short runs of `python -m chaos`, each with a seed of its own; `make chaos` is the long one."""

import json

import pytest

from chaos.faults import playable

# One after the other: each keeps two cores busy, and the other tests want some of them too.
pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(600)]


@pytest.fixture
def chaos(play):
    """`chaos(...)`: the report of a run; fails with the whole of it if a promise was broken."""

    def run(*arguments):
        code, told, said = play("chaos", *arguments)
        assert code == 0, told + said
        return json.loads(told)

    return run


def was_rough(report, topology="single"):
    """Whether enough was asked, and everything broken, for the report to mean something."""
    figures = report["figures"]
    assert figures["acknowledged"] > 100
    assert figures["runs"] > 100
    assert figures["deaths"] > 0
    assert figures["wrong_clocks"] > 0
    assert figures["had_to_fire"] > 30
    kinds = {fault.name for fault in playable(topology, ())}
    assert not kinds - report["faults"].keys(), report["futile"]
    return not report["breaches"]


@pytest.mark.servers("valkey", "redis-8.6")
def test_one_server_under_every_fault_keeps_every_promise(server, queue_name, chaos):
    assert was_rough(chaos("--server", server.name, "--minutes", "1", "--seed", "1"))


@pytest.mark.servers("valkey")
@pytest.mark.parametrize("topology", ["sentinel", "cluster"])
def test_servers_that_change_places_keep_every_promise(server, queue_name, chaos, topology):
    report = chaos("--topology", topology, "--minutes", "0.6", "--seed", "2")
    assert was_rough(report, topology)
