"""`python -m chaos.soak` for some seconds, to see that it works; a real one takes an hour."""

import json

import pytest

from chaos.soak.verdict import RULES

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(300)]

# Settled from the first second on; memory and what is kept for a while need minutes.
AT_ONCE = {"sockets", "files", "consumers", "keys without ttl"}


@pytest.mark.servers("valkey", "redis-8.6")
def test_a_short_soak_reads_everything_and_loses_nothing(server, queue_name, play):
    code, told, said = play(
        "chaos.soak", "--minutes", "0.2", "--every", "0.5", "--rate", "100", "--server", server.name
    )
    assert told, said
    report = json.loads(told)
    assert report["wrongs"] == []
    assert report["balance"]["acknowledged"] > 300
    assert report["balance"]["lost"] == 0
    assert report["cuts"] > 10
    assert {each["what"] for each in report["verdicts"]} == set(RULES)
    grown = {each["what"] for each in report["verdicts"] if not each["is_flat"]}
    assert grown.isdisjoint(AT_ONCE), report["verdicts"]
    assert code == (1 if grown else 0)
