"""`python -m chaos.flood` with some thousands of jobs, to see that it works."""

import json

import pytest

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(300)]

DUE = 4_000


@pytest.mark.servers("valkey", "redis-8.6")
def test_a_small_flood_drains_and_new_jobs_get_through(server, play):
    code, told, said = play(
        "chaos.flood", "--jobs", str(DUE), "--takes-ms", "20", "--concurrency", "10",
        "--server", server.name,
    )  # fmt: skip
    assert told, said
    report = json.loads(told)
    assert (code, report["unheard"]) == (0, 0)
    last = report["looks"][-1]
    assert (last["delayed"], last["in_stream"]) == (0, 0)
    # Behind all of it the first would have waited until the end, which is seconds away.
    first_new, *_ = sorted(report["new"])
    assert sum(first_new) < last["at_s"] / 2
