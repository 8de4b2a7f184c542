"""The two parties, in processes that are kept from test to test."""

import sys

import pytest

from tests.support.party import Package, Party


@pytest.fixture(scope="session")
def _kept_parties():
    kept = {}
    yield kept
    for party in kept.values():
        party.close()


@pytest.fixture
def _party(server, reference, _kept_parties):
    """Get a process with `ours` or with the `reference` engine, as if it were just started."""
    packages = {
        "ours": Package("ours", sys.executable, first_attempt=1),
        "reference": Package("reference", reference, first_attempt=0),
    }
    lent = []

    def get(name):
        key = (name, server.url)
        if key not in _kept_parties:
            _kept_parties[key] = Party(packages[name], server.url)
        lent.append(key)
        return _kept_parties[key]

    yield get
    for key in lent:
        party = _kept_parties.pop(key)
        try:
            party.reset()
        except BaseException:
            party.close()
            raise
        _kept_parties[key] = party


@pytest.fixture
def ours(_party):
    """Our package, in a process of its own."""
    return _party("ours")


@pytest.fixture
def theirs(_party):
    """The reference engine."""
    return _party("reference")


@pytest.fixture(params=["reference-to-ours", "ours-to-reference"])
def pair(request, ours, theirs):
    """The one who writes and the one who reads, in both directions."""
    return (theirs, ours) if request.param == "reference-to-ours" else (ours, theirs)
