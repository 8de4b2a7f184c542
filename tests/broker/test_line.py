"""The line before the workers, as it stands on a server."""

import pytest

from chasquimq.broker import line
from chasquimq.broker.line import Line
from chasquimq.wire.ids import StreamId


def test_without_a_stream_or_a_group_there_is_no_line(run, raw, keys):
    assert run(line.look(keys)) is None
    raw.client.xadd(keys.stream, {"d": "x"})
    assert run(line.look(keys)) is None


def test_what_was_read_does_not_wait_whether_it_is_settled_or_not(run, raw, keys):
    ids = [raw.client.xadd(keys.stream, {"d": "x"}) for _ in range(5)]
    raw.client.xgroup_create(keys.stream, "default", "0")
    assert run(line.look(keys)) == Line(5, StreamId.MIN)
    raw.client.xreadgroup("default", "c", {keys.stream: ">"}, count=2)
    assert run(line.look(keys)) == Line(3, StreamId.parse(ids[1]))
    raw.client.xack(keys.stream, "default", ids[0])
    raw.client.xdel(keys.stream, ids[0])
    assert run(line.look(keys)) == Line(3, StreamId.parse(ids[1]))


def test_pending_entries_that_were_deleted_leave_nothing_below_zero(run, raw, keys):
    entry_id = raw.client.xadd(keys.stream, {"d": "x"})
    raw.client.xgroup_create(keys.stream, "default", "0")
    raw.client.xreadgroup("default", "c", {keys.stream: ">"})
    raw.client.xdel(keys.stream, entry_id)
    assert run(line.look(keys)).waiting == 0


def test_a_server_that_refuses_to_tell_is_not_taken_for_an_empty_one(run, raw, keys):
    raw.client.set(keys.stream, "no stream", ex=10)
    with pytest.raises(Exception, match="WRONGTYPE"):
        run(line.look(keys))
