"""Processes of `chaos` with a clock that is wrong: what they ask the library for is wrong, too."""

import pytest

from chaos import clocks
from chaos.fleet import Actor, cast
from chaos.history import Born, Scroll, read_all
from chaos.options import Options
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually_sync

pytestmark = [
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(120),
    pytest.mark.servers("valkey"),
]

[PRODUCER, *_] = [part for part in cast(Options()) if part.name.startswith("producer")]


@pytest.mark.parametrize("skew_ms", [-180_000, 0, 240_000])
def test_a_process_with_a_skew_has_a_wrong_clock_and_says_so(
    server, queue_name, tmp_path, monkeypatch, skew_ms
):
    monkeypatch.setattr("chaos.fleet._SKEWS_MS", (skew_ms,))
    scroll = Scroll(tmp_path / "test.jsonl")
    stream = QueueKeys(queue_name).stream
    began_ms = clocks.now_ms()
    actor = Actor(PRODUCER, server.url, queue_name, folder=tmp_path, seed=1)
    actor.start()
    try:
        eventually_sync(lambda: server.client().xlen(stream), 60)
    finally:
        actor.kill(scroll)
        actor.end(scroll)
        scroll.close()
    [(_, fields)] = server.client().xrange(stream, count=1)
    latest_ms = clocks.now_ms()
    assert began_ms <= decode(fields[b"d"]).created_at_ms - skew_ms <= latest_ms
    [born] = [each for each in read_all(tmp_path) if isinstance(each, Born)]
    assert (born.who, born.holder, born.skew_ms) == (actor.who, "", skew_ms)
