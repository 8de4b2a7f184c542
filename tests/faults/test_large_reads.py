"""Jobs that together are more than one reply may hold: a worker reads fewer at a time."""

import asyncio
import contextlib
import socket
import socketserver
import threading
from collections.abc import Awaitable

import pytest

from chasquimq import Queue, Worker
from chasquimq.broker import access
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import call
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url
from tests.support.eventually import eventually

JOBS, BYTES = 100, 16_384


async def test_a_backlog_that_no_reply_can_hold_is_worked_off(
    server, queue_name, monkeypatch, caplog
):
    # Of life's size it would be a hundred jobs of 16 MB, and a limit of one GiB.
    monkeypatch.setattr(access, "MOST_REPLY_BYTES", 1 << 20)
    ran = []

    async def handle(job):
        ran.append(job.data["number"])

    worker = Worker(
        queue_name, handle, redis_url=server.url, concurrency=JOBS, handle_signals=False
    )
    async with Queue(queue_name, redis_url=server.url) as queue:
        for number in range(JOBS):
            await queue.add("large", {"number": number, "filler": bytes(BYTES)})
        working = asyncio.create_task(worker.run())
        await eventually(lambda: len(ran) == JOBS)
        await worker.close()
        await working
        assert await queue.peek_dlq() == []

    assert sorted(ran) == list(range(JOBS))
    [told, *_] = [record.getMessage() for record in caplog.records if "reading" in record.msg]
    assert told.startswith(f"queue {queue_name}: redis: a reply has more than 1048576 bytes")
    assert told.endswith("; reading 50 for now")


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_an_entry_that_no_reply_can_hold_keeps_nobody_from_the_jobs_around_it(
    server, queue_name, monkeypatch, concurrency
):
    monkeypatch.setattr(access, "MOST_REPLY_BYTES", 1 << 20)
    ran = []

    async def handle(job):
        ran.append(job.data["number"])

    large = {"max_payload_bytes": 8 << 20}
    worker = Worker(
        queue_name, handle, redis_url=server.url, concurrency=concurrency, handle_signals=False,
        **large,
    )  # fmt: skip
    async with Queue(queue_name, redis_url=server.url, **large) as queue:
        for number in range(30):
            await queue.add("small", {"number": number})
            if number == 2:
                await queue.add("large", {"number": -1, "filler": bytes(2 << 20)})
        working = asyncio.create_task(worker.run())
        await eventually(lambda: len(ran) == 30, timeout=40)
        await worker.close()
        await working
        # It waits for somebody who takes more at once.
        assert (await queue.counts()).dead == 0
        await queue.obliterate(force=True)
    assert sorted(ran) == list(range(30))


class SlowWay(socketserver.BaseRequestHandler):
    """The way to a server on which answers come at about 100 kB a second."""

    def handle(self):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.server.target)) as upstream,
        ):
            asking = threading.Thread(target=self.pass_requests, args=(upstream,), daemon=True)
            asking.start()
            while data := upstream.recv(10_000):
                self.request.sendall(data)
                self.server.is_over.wait(0.1)

    def pass_requests(self, upstream):
        with contextlib.suppress(OSError):
            while data := self.request.recv(65_536):
                upstream.sendall(data)
        with contextlib.suppress(OSError):
            upstream.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def slow_url(server):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), SlowWay) as way:
        way.target, way.is_over, way.daemon_threads = server.port, threading.Event(), True
        thread = threading.Thread(target=way.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"redis://127.0.0.1:{way.server_address[1]}"
        way.is_over.set()
        way.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", [BlockingConnection, Connection])
async def test_an_answer_that_takes_longer_than_the_server_may_be_silent_comes_whole(
    server, queue_name, slow_url, kind
):
    key = f"{{chasqui:{queue_name}}}:result:1"
    server.client().set(key, bytes(300_000), ex=60)
    options = ConnectionOptions(response_timeout_ms=1_500, reconnect_max_attempts=1)
    connection = kind(parse_url(slow_url), options, slot_key=b"k")
    found = connection.run(call("GET", key, read=len))
    assert (await found if isinstance(found, Awaitable) else found) == 300_000
    closed = connection.close()
    if isinstance(closed, Awaitable):
        await closed
