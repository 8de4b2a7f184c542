"""The two parties, in processes that are lent to one test after another."""

import sys
from contextlib import contextmanager

import pytest

from tests.support.party import Package, Party

# The reference engine keeps the connections of stopped workers for as long as its process lives.
TESTS_PER_PROCESS = 25


class Kept:
    """Processes that wait for the next test."""

    def __init__(self):
        self._free = {}

    @contextmanager
    def lend(self, package, redis_url):
        """A process that is as if just started; one that cannot be made so again is not kept."""
        place = (package, redis_url)
        party, tests = self._free.pop(place, None) or (Party(package, redis_url), 0)
        is_sound = False
        try:
            yield party
            party.reset()
            is_sound = True
        finally:
            if is_sound and tests + 1 < TESTS_PER_PROCESS:
                self._free[place] = (party, tests + 1)
            else:
                party.close()

    def close(self):
        for party, _ in self._free.values():
            party.close()


@pytest.fixture(scope="session")
def _kept():
    kept = Kept()
    yield kept
    kept.close()


@pytest.fixture
def ours(server, reference, _kept):
    """Our package, in a process of its own."""
    with _kept.lend(Package("ours", sys.executable, first_attempt=1), server.url) as party:
        yield party


@pytest.fixture
def theirs(server, reference, _kept):
    """The reference engine."""
    with _kept.lend(Package("reference", reference, first_attempt=0), server.url) as party:
        yield party


@pytest.fixture(params=["reference-to-ours", "ours-to-reference"])
def pair(request, ours, theirs):
    """The one who writes and the one who reads, in both directions."""
    return (theirs, ours) if request.param == "reference-to-ours" else (ours, theirs)


@pytest.fixture(params=["ours", "reference"])
def either(request, ours, theirs):
    """One of the two; what it does, the other does as well."""
    return ours if request.param == "ours" else theirs
