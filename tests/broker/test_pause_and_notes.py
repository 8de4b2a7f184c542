"""Plain commands of the pause and of what jobs say of themselves."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from chasquimq.broker import notes, pause
from chasquimq.broker.upkeep import set_paused
from chasquimq.errors import ServerReplyError
from chasquimq.wire.event import event_fields
from tests.support.broker_builders import SILENT
from tests.support.eventually import eventually_sync


def test_whoever_waits_for_the_end_of_a_pause_is_woken_by_it(run, connect, raw, keys, server):
    run(set_paused(keys, paused=True, telling=SILENT))
    waiters = [connect() for _ in range(3)]
    wait = pause.wait_for_resume(keys, after=b"0", block_ms=20_000)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(each.run, wait) for each in waiters]
        eventually_sync(lambda: server.client().info("clients")["blocked_clients"] >= 3)
        run(set_paused(keys, paused=False, telling=SILENT))
        answers = [each.result(timeout=10) for each in waiting]
    assert {is_paused for is_paused, _ in answers} == {False}


def test_a_bell_that_rang_before_the_wait_is_heard_once(run, keys):
    run(set_paused(keys, paused=True, telling=SILENT))
    run(set_paused(keys, paused=False, telling=SILENT))
    run(set_paused(keys, paused=True, telling=SILENT))

    is_paused, heard = run(pause.wait_for_resume(keys, after=b"0", block_ms=20_000))
    assert (is_paused, heard != b"0") == (True, True)
    assert run(pause.wait_for_resume(keys, after=heard, block_ms=1)) == (True, heard)


def test_progress_is_stored_for_a_time_and_told(run, raw, keys):
    event = (100, event_fields("progress", "j1", 5, "mail", {"progress": 40}))
    run(notes.set_progress(keys, "j1", 40, ttl_s=60, event=event))
    run(notes.set_progress(keys, "j1", 41, ttl_s=60, event=None))

    assert raw.client.get(keys.progress("j1")) == b"41"
    assert 0 < raw.client.ttl(keys.progress("j1")) <= 60
    assert raw.events() == ["e=progress id=j1 ts=5 n=mail progress=40"]


def test_a_log_counts_its_lines_keeps_about_its_cap_and_lives_after_the_last(run, raw, keys):
    counts = [
        run(notes.append_log(keys, "j1", b"line %d" % n, cap=100, ttl_s=60)) for n in range(500)
    ]
    assert counts[:3] == [1, 2, 3]
    assert 100 <= counts[-1] <= 250
    newest = [fields[b"line"] for _, fields in raw.client.xrevrange(keys.log("j1"), count=2)]
    assert newest == [b"line 499", b"line 498"]
    assert 0 < raw.client.ttl(keys.log("j1")) <= 60


def test_a_refused_line_is_an_error(run, raw, keys):
    raw.client.set(keys.log("j1"), "not a stream", ex=60)
    with pytest.raises(ServerReplyError) as refused:
        run(notes.append_log(keys, "j1", b"x", cap=10, ttl_s=60))
    assert refused.value.kind == "WRONGTYPE"
