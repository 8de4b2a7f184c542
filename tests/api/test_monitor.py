"""`/metrics`, `/healthz` and `/readyz` of real workers, over real HTTP."""

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from chasquimq import ConfigError, UnrecoverableError, Worker
from chasquimq.metrics import CompositeSink, WorkerPulse
from chasquimq.prometheus import PrometheusSink, own_registry
from chasquimq.testing import RecordingSink, running, until_idle
from tests.support.eventually import eventually, eventually_sync


def fetch(address, path, method="GET"):
    """Status and body; from a thread, unless the event loop may stand still."""
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


async def get(worker, path, method="GET"):
    return await asyncio.to_thread(fetch, worker.metrics_address, path, method)


async def scrape(worker):
    status, text = await get(worker, "/metrics")
    assert status == 200
    return samples(text)


def samples(text):
    """Every sample: name, labels in alphabetical order, value."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def says(worker, path, status):
    """Whether a probe answers with this status, and what its body says."""
    got, text = await get(worker, path)
    return json.loads(text) if got == status else None


@asynccontextmanager
async def served(worker):
    async with running(worker):
        await eventually(lambda: worker.metrics_address)
        await eventually(lambda: says(worker, "/readyz", 200))
        yield worker


@pytest.fixture
def make(make_worker):
    def make(handler, **options):
        return make_worker(handler, **{"metrics_port": 0, "read_block_ms": 100} | options)

    return make


async def nothing(job):
    return None


def a_worker(queue_name, server, **options):
    """A worker that does nothing, soon and in the open."""
    usual = {"handle_signals": False, "read_block_ms": 100, "metrics_port": 0}
    return Worker(queue_name, nothing, redis_url=server.url, **usual | options)


async def test_a_scrape_tells_what_the_worker_did(make, queue, queue_name):
    async def handler(job):
        if job.name == "bad":
            raise UnrecoverableError
        if job.name == "shaky" and job.attempt == 1:
            raise RuntimeError

    async with served(make(handler)) as worker:
        await queue.add_bulk([{"name": "good", "data": n} for n in range(5)])
        await queue.add("shaky", None)
        await queue.add("bad", None)
        await queue.add("later", None, delay_ms=3_600_000)
        await eventually(lambda: _depth(worker, queue_name, waiting=0, active=0, delayed=1))
        seen = await scrape(worker)

    def value(metric, /, **labels):
        return seen[(f"chasquimq_{metric}", *sorted({"queue": queue_name, **labels}.items()))]

    assert value("jobs_completed_total", name="good") == 5
    assert value("jobs_completed_total", name="shaky") == 1
    assert value("jobs_failed_total", kind="error", name="shaky") == 1
    assert value("jobs_failed_total", kind="error", name="bad") == 1
    assert value("handler_duration_seconds_count", name="shaky") == 2
    assert value("retries_scheduled_total", name="shaky") == 1
    assert value("retry_backoff_seconds_sum", name="shaky") == 0.001
    assert value("dlq_routed_total", reason="unrecoverable", name="bad") == 1
    assert value("consumer_batch_size_sum") == 8
    assert value("promoter_promoted_total") == 1
    assert value("promoter_lock_acquired_total") == 2
    assert value("delayed_zset_depth") == 1
    assert value("queue_depth", state="dead") == 1
    assert value("queue_lag_seconds") == 0
    assert value("jobs_in_flight") == 0
    assert abs(value("consumer_last_read_timestamp_seconds") - time.time()) < 10
    assert seen[("process_start_time_seconds",)] > 0


async def _depth(worker, queue_name, **wanted):
    seen = await scrape(worker)
    key = ("chasquimq_queue_depth", ("queue", queue_name))
    return all(seen.get((*key, ("state", state))) == n for state, n in wanted.items())


async def test_jobs_that_nobody_takes_are_depth_and_lag(make, queue, queue_name):
    gate = asyncio.Event()

    async def handler(job):
        await gate.wait()

    async with served(make(handler, concurrency=1)) as worker:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
        await eventually(lambda: _depth(worker, queue_name, waiting=2, active=1))

        async def lags():
            seen = await scrape(worker)
            return seen[("chasquimq_queue_lag_seconds", ("queue", queue_name))] > 0

        async def is_in_flight():
            seen = await scrape(worker)
            return seen.get(("chasquimq_jobs_in_flight", ("queue", queue_name))) == 1

        await eventually(lags)
        await eventually(is_in_flight)
        status, text = await get(worker, "/readyz")
        assert (status, json.loads(text)["full"]) == (200, True)
        gate.set()
        await eventually(lambda: _depth(worker, queue_name, waiting=0, active=0))


async def test_a_worker_that_waits_for_jobs_is_healthy_and_ready(make):
    async with served(make(nothing)) as worker:
        status, text = await get(worker, "/healthz")
        assert (status, json.loads(text)["status"]) == (200, "ok")
        body = json.loads((await get(worker, "/readyz"))[1])
        assert (body["status"], body["connected"]) == ("ready", True)
        assert body["last_read_age_ms"] <= body["read_bound_ms"] == 100 + 5_000


async def test_a_blocked_event_loop_is_told_while_it_is_blocked_and_over_when_it_is(make, queue):
    begun, blocked, release = threading.Event(), [], threading.Event()

    async def handler(job):
        begun.set()
        release.wait(20)

    def ask(address):
        begun.wait(20)
        try:
            blocked.extend(fetch(address, path) for path in ("/healthz", "/readyz", "/metrics"))
        finally:
            release.set()

    async with served(make(handler)) as worker:
        asking = threading.Thread(target=ask, args=(worker.metrics_address,))
        asking.start()
        await queue.add("n", None)
        await until_idle(queue)
        await asyncio.to_thread(asking.join)
        (healthz, health), (readyz, ready), (metrics, text) = blocked
        assert (healthz, json.loads(health)["status"]) == (503, "blocked")
        assert (readyz, json.loads(ready)["event_loop_lag_ms"]) == (503, None)
        assert metrics == 200
        assert samples(text)
        await eventually(lambda: says(worker, "/healthz", 200))
        await eventually(lambda: says(worker, "/readyz", 200))


async def test_a_server_that_dies_makes_the_worker_not_ready_until_it_is_back(
    start_server, queue_name
):
    server = start_server()
    worker = a_worker(queue_name, server, metrics=RecordingSink())
    async with served(worker):
        server.kill()
        body = await eventually(lambda: says(worker, "/readyz", 503))
        assert "broken" in body["why"]
        assert (await get(worker, "/healthz"))[0] == 200
        seen = await scrape(worker)
        assert not [key for key in seen if key[0] == "chasquimq_queue_depth"]
        server.restart()
        await eventually(lambda: says(worker, "/readyz", 200))
        reconnects = ("chasquimq_reconnects_total", ("queue", queue_name))

        async def counts_them():
            return (await scrape(worker)).get(reconnects, 0) >= 2

        await eventually(counts_them)


async def test_a_server_that_stands_still_makes_the_worker_not_ready_and_hangs_no_scrape(
    start_server, queue_name
):
    server = start_server()
    worker = a_worker(queue_name, server)
    async with served(worker):
        server.pause()
        try:
            began = time.monotonic()
            await scrape(worker)
            assert time.monotonic() - began < 5
            body = await eventually(lambda: says(worker, "/readyz", 503), timeout=20)
            assert "last successful read" in body["why"]
        finally:
            server.resume()
        await eventually(lambda: says(worker, "/readyz", 200))


async def test_reads_that_fail_make_the_worker_not_ready(make, server, queue_name):
    """Something of another kind at the stream's key: the server answers, and refuses."""
    async with served(make(nothing)) as worker:
        stream = f"{{chasqui:{queue_name}}}:stream"
        server.client().delete(stream)
        server.client().set(stream, "not a stream", ex=60)
        body = await eventually(lambda: says(worker, "/readyz", 503), timeout=20)
        assert "last successful read" in body["why"]
        server.client().delete(stream)
        await eventually(lambda: says(worker, "/readyz", 200))


async def test_a_stopping_worker_is_not_ready_and_the_port_is_free_when_it_has_stopped(make, queue):
    begun, gate = asyncio.Event(), asyncio.Event()

    async def handler(job):
        begun.set()
        await gate.wait()

    async with served(make(handler)) as worker:
        address = worker.metrics_address
        await queue.add("n", None)
        await begun.wait()
        await worker.close()
        body = await eventually(lambda: says(worker, "/readyz", 503))
        assert "stopping" in body["why"]
        assert await says(worker, "/healthz", 200)
        gate.set()
    assert worker.metrics_address is None
    with socket.create_server(address):
        pass
    assert not [each for each in threading.enumerate() if "monitor" in each.name]


async def test_without_a_host_only_this_machine_can_reach_the_port(make):
    async with served(make(nothing)) as worker:
        host, port = worker.metrics_address
        assert host == "127.0.0.1"
        # All of 127.0.0.0/8 is this machine; a port that is open to all is open on 127.0.0.2 too.
        with pytest.raises(OSError, match=r"127\.0\.0\.2"):
            await asyncio.open_connection("127.0.0.2", port)


async def test_a_port_in_use_is_a_clear_error_at_the_start(make):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"metrics_port {port} on 127\.0\.0\.1 cannot be"):
            await make(nothing, metrics_port=port).run()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"metrics_port": -1}, "metrics_port is -1"),
        ({"metrics_port": 65_536}, "metrics_port is 65536"),
        ({"metrics_port": True}, "metrics_port is True"),
        ({"metrics_port": "9100"}, "metrics_port is '9100'"),
        ({"metrics_port": 0, "metrics_host": ""}, "metrics_host is ''"),
    ],
)
def test_what_cannot_be_listened_on_is_refused_when_the_worker_is_made(options, told):
    with pytest.raises(ConfigError, match=told):
        Worker("emails", nothing, **options)


async def test_other_paths_are_not_found_and_a_head_has_no_body(make):
    async with served(make(nothing)) as worker:
        status, text = await get(worker, "/")
        assert (status, json.loads(text)["paths"]) == (404, ["/metrics", "/healthz", "/readyz"])
        assert await get(worker, "/healthz", method="HEAD") == (200, "")


async def test_a_collector_of_the_users_that_fails_is_an_error_of_one_scrape(make, queue_name):
    class Moody:
        is_bad = True

        def collect(self):
            if self.is_bad:
                raise RuntimeError
            return []

    registry, moody = CollectorRegistry(auto_describe=False), Moody()
    registry.register(moody)
    sink = PrometheusSink(queue_name, registry=registry)
    async with served(make(nothing, metrics=sink)) as worker:
        status, text = await get(worker, "/metrics")
        assert (status, json.loads(text)["why"]) == (500, "RuntimeError: ")
        moody.is_bad = False
        assert await scrape(worker)


async def test_a_client_that_says_nothing_or_hangs_up_does_not_keep_others_waiting(make, capfd):
    async with served(make(nothing)) as worker:
        with (
            socket.create_connection(worker.metrics_address),
            socket.create_connection(worker.metrics_address) as rude,
        ):
            rude.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            rude.close()
            assert (await get(worker, "/healthz"))[0] == 200
    assert capfd.readouterr().err == ""


async def test_a_sink_of_the_users_own_is_told_as_well(make, queue):
    sink = RecordingSink()
    worker = make(nothing, metrics=sink)
    async with served(worker):
        await queue.add("n", None)
        pulse = await sink.next(WorkerPulse)
        await until_idle(queue)
        assert await _completed(worker, queue.name) == 1
    assert pulse.consumer_id.startswith("c-")
    assert sink.of(WorkerPulse)[-1] == WorkerPulse(pulse.consumer_id, 0, 0, None)


@pytest.mark.parametrize("wrap", [lambda sink: sink, CompositeSink])
async def test_a_prometheus_sink_of_the_users_own_is_served_and_not_doubled(make, queue, wrap):
    registry = own_registry()
    sink = PrometheusSink(queue.name, registry=registry)
    async with served(make(nothing, metrics=wrap(sink))) as worker:
        await queue.add("n", None)
        await until_idle(queue)
        assert await _completed(worker, queue.name) == 1
    labels = {"queue": queue.name, "name": "n"}
    assert registry.get_sample_value("chasquimq_jobs_completed_total", labels) == 1


async def _completed(worker, queue_name):
    seen = await scrape(worker)
    return seen[("chasquimq_jobs_completed_total", ("name", "n"), ("queue", queue_name))]


async def test_two_workers_of_one_process_each_have_a_port_and_metrics_of_their_own(
    make, server, queue_name
):
    other = a_worker(f"{queue_name}-other", server)
    async with served(make(nothing)) as one, served(other):
        assert one.metrics_address != other.metrics_address
        labels = [dict(key[1:]) for key in await scrape(one)]
        assert {each["queue"] for each in labels if "queue" in each} == {queue_name}


def test_the_probe_answers_a_thread_without_an_event_loop(server, queue_name):
    """As a supervisor does: a worker in a thread, asked from outside."""
    worker = a_worker(queue_name, server)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(worker.run(),))
    thread.start()
    address = eventually_sync(lambda: worker.metrics_address)
    eventually_sync(lambda: fetch(address, "/readyz")[0] == 200)
    asyncio.run_coroutine_threadsafe(worker.close(), loop).result(5)
    thread.join(10)
    loop.close()
    assert not thread.is_alive()


async def test_a_paused_worker_is_ready_and_says_that_it_is_paused(make):
    async with served(make(nothing)) as worker:
        worker.pause()

        async def is_paused():
            body = await says(worker, "/readyz", 200)
            return body and (body["status"], body["paused"]) == ("paused", True)

        await eventually(is_paused)
        worker.resume()
        await eventually(lambda: says(worker, "/readyz", 200))


async def test_a_worker_that_a_rate_limit_holds_is_ready_and_says_so(make):
    async with served(make(nothing)) as worker:
        await worker.rate_limit(3_600_000)

        async def is_held():
            body = await says(worker, "/readyz", 200)
            return body and body["status"] == "held"

        await eventually(is_held)
