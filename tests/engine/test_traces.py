"""Handlers inside spans: what they wait for, and what they do not."""

import socket
from contextlib import contextmanager

import pytest

from chasquimq.broker import traces
from chasquimq.broker.call import call
from chasquimq.broker.url import parse_url
from chasquimq.config import ConsumerConfig
from chasquimq.engine.traces import Traces
from chasquimq.tracing import RunSpan
from chasquimq.wire.keys import QueueKeys
from tests.support.builders import a_run, an_override
from tests.support.flavours import connection, short_options
from tests.support.scene import soon


class Recorder:
    """Remembers the runs it is told of, and what their jobs carried."""

    def __init__(self):
        self.runs = []

    @contextmanager
    def running(self, span, carried):
        self.runs.append((span, carried))
        yield


@pytest.fixture
def config(queue_name):
    return ConsumerConfig(queue_name=queue_name, consumer_id="c-1", max_attempts=3)


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


async def echo(run):
    return run.envelope.packed_data


async def test_a_server_that_never_answers_costs_a_job_its_relation_and_half_a_second(
    config, caplog
):
    recorder = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        own = Traces(recorder, config, parse_url(url), short_options())
        own.start()
        handler = own.around(echo)
        first, second = a_run(1), a_run(2)
        assert await soon(handler(first)) == first.envelope.packed_data
        assert await soon(handler(second)) == second.envelope.packed_data
        await soon(own.end())
    assert [carried for _, carried in recorder.runs] == [None, None]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_run_knows_whether_it_is_the_last_and_gets_what_its_job_carries(
    config, keys, server
):
    recorder = Recorder()
    own = Traces(recorder, config, parse_url(server.url), short_options())
    own.start()
    handler = own.around(echo)
    server.client().set(keys.trace("one"), "carried", ex=60)
    await handler(a_run("x", id="one", name="n", attempt=2))
    await handler(a_run("x", id="two", name="n", attempt=2, retry=an_override(max_attempts=2)))
    await own.end()
    usual = {
        "queue": config.queue_name, "group": "default", "consumer_id": "c-1", "name": "n",
        "attempt": 2, "size": 2,
    }  # fmt: skip
    assert recorder.runs == [
        (RunSpan(job_id="one", is_last=False, **usual), b"carried"),
        (RunSpan(job_id="two", is_last=True, **usual), None),
    ]
    assert not server.client().exists(keys.trace("one"))


async def test_what_jobs_carry_is_written_before_they_are_added_and_in_the_same_pipeline(
    keys, server
):
    add = call("EXISTS", keys.trace("one"), read=int)
    own = connection(server.url, slot_key=keys.tag)
    carrying = traces.carrying(keys, [traces.Carried("one", b"carried", 60)], add)
    assert len(carrying.requests) == 2
    assert await own.run(carrying) == 1
    await own.close()
