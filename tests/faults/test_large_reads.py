"""Jobs that together are more than one reply may hold: a worker reads fewer at a time."""

import asyncio

from chasquimq import Queue, Worker
from chasquimq.broker import access
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
