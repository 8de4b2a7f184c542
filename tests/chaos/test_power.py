"""Short runs with workers that break a promise on purpose: what cannot fail proves nothing."""

from collections import Counter
from dataclasses import replace

import pytest

from chaos.checker import check
from chaos.fleet import cast
from chaos.options import Options
from chaos.past import told
from chaos.run import run

pytestmark = [
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(240),
    pytest.mark.servers("valkey"),
]


def breaches_of(breaks, folder, *, fault, kinds, rate):
    """How often each rule was broken by a run of such jobs in which all workers do so."""
    options = Options(minutes=0.1, seed=1, rate=rate, faults=(fault,))
    broken = "tests.support.broken_worker"
    parts = [
        replace(part, module=broken, settings={**part.settings, "breaks": breaks})
        if part.module == "chaos.worker"
        else replace(part, settings={**part.settings, "kinds": kinds})
        if part.module == "chaos.producer"
        else part
        for part in cast(options)
    ]
    return Counter(breach.rule for breach in check(told(run(options, folder, parts))))


def test_workers_that_never_renew_their_leases_are_found_out(server, tmp_path):
    broken = breaches_of(
        "never-renews",
        tmp_path,
        fault="flush-scripts",  # which excuses nothing
        kinds=["longer-than-a-lease"],
        rate=2,
    )
    assert broken["beside itself"] > 0


def test_workers_that_acknowledge_before_they_run_are_found_out(server, tmp_path):
    broken = breaches_of(
        "acknowledges-first", tmp_path, fault="kill-worker", kinds=["quick", "slow"], rate=15
    )
    assert broken["lost"] > 0
