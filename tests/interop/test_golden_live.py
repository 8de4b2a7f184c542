"""Bytes that the reference engine wrote, put into a server as they are and worked on by ours.

These need no reference engine: they run on every server.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chasquimq import OutcomeStatus, Queue, QueueEvents, RetryConfig, Worker
from chasquimq.wire.keys import QueueKeys

FILE = Path(__file__).parents[1] / "unit" / "wire" / "golden" / "wire.json"
VECTORS = {vector["name"]: vector for vector in json.loads(FILE.read_text())["vectors"]}

SHAPES = [1, "two", 3.5, None, True, b"\x00\xff", {"nested": {"é": "ü"}}]
# Name and data of the jobs in each vector, in order.
JOBS = {
    "immediate": [("send-email", {"k": 1})],
    "unnamed": [("", {"k": 1})],
    "retry-override": [("n", SHAPES)],
    "attempts-only": [("n", {"k": 1})],
    "backoff-int": [("n", {"k": 1})],
    "delayed-plain": [("send-email", {"k": 1})],
    "delayed-with-id": [("send-email", {"k": 1})],
    "bulk": [("a", {"i": 0}), ("b", {"i": 1}), ("", None)],
    "replay_dlq": [("hard", {"x": "hard"}), ("boom", {"x": "boom"})],
}

PATIENCE_SECS = 10


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


@pytest.fixture
async def queue(server, queue_name):
    async with Queue(queue_name, redis_url=server.socket_url) as queue:
        yield queue


@asynccontextmanager
async def working(server, queue_name, handler, **options):
    """A worker, for as long as the block lasts."""
    worker = Worker(
        queue_name, handler, redis_url=server.socket_url, handle_signals=False, **options
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        try:
            yield
        finally:
            await worker.close()


async def run_all(server, queue_name, count):
    """Let ours run what is in the queue; the jobs, as the handler got them."""
    jobs = asyncio.Queue()
    async with working(server, queue_name, jobs.put), asyncio.timeout(PATIENCE_SECS):
        return [await jobs.get() for _ in range(count)]


def write(client, stream, entry):
    """Write an entry of the file; all values but those of events are in hex there."""
    flat = [part for name, value in entry["fields"] for part in (name, bytes.fromhex(value))]
    return client.execute_command("XADD", stream, "*", *flat)


def test_every_vector_that_holds_a_job_is_here():
    assert {name for name, each in VECTORS.items() if "stream" in each or "delayed" in each} == set(
        JOBS
    )


@pytest.mark.parametrize("vector", [name for name in JOBS if "stream" in VECTORS[name]])
async def test_jobs_in_the_stream_are_run(server, queue_name, keys, vector):
    golden = VECTORS[vector]
    for entry in golden["stream"]:
        write(server.client(), keys.stream, entry)
    jobs = await run_all(server, queue_name, len(JOBS[vector]))
    assert [(job.name, job.data) for job in jobs] == JOBS[vector]
    assert {job.attempt for job in jobs} == {1}
    if vector != "replay_dlq":
        assert [job.id for job in jobs] == (golden.get("job_ids") or [golden["job_id"]])
        for job, entry in zip(jobs, golden["stream"], strict=True):
            assert 0 <= int(entry["id"].split("-")[0]) - job.created_at_ms < 1_000
    assert server.client().xlen(keys.stream) == 0


@pytest.mark.parametrize("vector", [name for name in JOBS if "delayed" in VECTORS[name]])
async def test_members_of_the_delayed_set_are_promoted_and_run(server, queue_name, keys, vector):
    [(member, _)] = VECTORS[vector]["delayed"]
    server.client().zadd(keys.delayed, {bytes.fromhex(member): 1})
    [job] = await run_all(server, queue_name, 1)
    assert [(job.name, job.data)] == JOBS[vector]
    assert job.id == VECTORS[vector]["job_id"]
    assert server.client().zcard(keys.delayed) == 0


async def fail_until(server, queue_name, last_event, **options):
    """Let every run fail; the numbers of the runs, and the first event of that name."""
    numbers = []

    async def fail(job):
        numbers.append(job.attempt)
        raise RuntimeError

    async with (
        QueueEvents(queue_name, redis_url=server.socket_url) as events,
        working(server, queue_name, fail, **options),
        asyncio.timeout(PATIENCE_SECS),
    ):
        event = await anext(events)
        while event.name != last_event:
            event = await anext(events)
    return numbers, event


@pytest.mark.parametrize(("vector", "budget"), [("attempts-only", 7), ("replay_dlq", 2)])
async def test_the_number_of_runs_in_an_envelope_is_kept_to(
    server, queue_name, keys, vector, budget
):
    write(server.client(), keys.stream, VECTORS[vector]["stream"][0])
    quick = RetryConfig(initial_backoff_ms=1, multiplier=1.0, jitter_ms=0)
    numbers, event = await fail_until(server, queue_name, "dlq", max_attempts=1, retry=quick)
    assert numbers == list(range(1, budget + 1))
    assert (event.fields["attempt"], event.fields["reason"]) == (budget, "retries_exhausted")


@pytest.mark.parametrize(
    ("vector", "delay_ms", "jitter_ms"), [("retry-override", 100, 25), ("backoff-int", 250, 100)]
)
async def test_the_backoff_in_an_envelope_is_kept_to(
    server, queue_name, keys, vector, delay_ms, jitter_ms
):
    write(server.client(), keys.stream, VECTORS[vector]["stream"][0])
    _, event = await fail_until(server, queue_name, "retry-scheduled")
    assert abs(event.fields["backoff_ms"] - delay_ms) <= jitter_ms


@pytest.mark.parametrize("vector", [name for name in JOBS if "delayed" in VECTORS[name]])
async def test_members_of_the_delayed_set_can_be_cancelled(server, keys, vector, queue):
    [(member, score)] = VECTORS[vector]["delayed"]
    client = server.client()
    client.zadd(keys.delayed, {bytes.fromhex(member): score})
    if vector == "delayed-with-id":
        client.set(keys.delayed_index("abc"), bytes.fromhex(member), ex=7_200)
        client.set(keys.dedup_marker("abc"), b"1", ex=7_200)
        assert (await queue.add("again", 1, job_id="abc")).deduplicated
    job_id = VECTORS[vector]["job_id"]
    assert (await queue.get_job(job_id)).data == {"k": 1}
    assert await queue.cancel_delayed(job_id)
    assert not await queue.cancel_delayed(job_id)
    assert client.exists(keys.delayed, keys.delayed_index(job_id), keys.dedup_marker(job_id)) == 0


async def test_dead_letters_are_shown_and_replayed(server, queue_name, keys, queue):
    for entry in VECTORS["lifecycle"]["dlq"]:
        write(server.client(), keys.dlq, entry)
    documented = [
        entry | {"dlq_id": None, "payload": bytes.fromhex(entry["payload"])}
        for entry in VECTORS["peek_dlq"]["entries"]
    ]
    letters = await queue.peek_dlq()
    assert [
        {key: None if key == "dlq_id" else letter[key] for key in documented[0]}
        for letter in letters
    ] == documented
    assert await queue.replay_dlq() == VECTORS["replay_dlq"]["replayed"]
    assert len(await queue.peek_dlq()) == len(VECTORS["replay_dlq"]["dlq_left"])
    jobs = await run_all(server, queue_name, 2)
    assert [(job.name, job.data) for job in jobs] == JOBS["replay_dlq"]


@pytest.mark.parametrize(("name", "attempt"), [("ok", 0), ("flaky", 1), ("later", 0)])
async def test_results_are_read(server, keys, queue, name, attempt):
    job_id = VECTORS["lifecycle"]["job_ids"][name]
    raw = bytes.fromhex(VECTORS["lifecycle"]["results"][name])
    server.client().set(keys.result(job_id), raw, ex=60)
    value = {"sum": 3, "who": name, "attempt": attempt}
    assert await queue.get_job_result(job_id) == value
    outcome = await queue.get_outcome(job_id)
    assert (outcome.status, outcome.value) == (OutcomeStatus.OK, value)


async def test_events_are_read(server, queue_name, keys):
    golden = VECTORS["lifecycle"]["events"]
    for entry in golden:
        flat = [part for pair in entry["fields"] for part in pair]
        server.client().execute_command("XADD", keys.events, "*", *flat)
    events = QueueEvents(queue_name, redis_url=server.socket_url, last_event_id="0")
    async with events, asyncio.timeout(PATIENCE_SECS):
        seen = [await anext(events) for _ in golden]
    assert [
        [("e", each.name), ("id", each.job_id or ""), ("n", each.job_name), *each.fields.items()]
        for each in seen
    ] == [documented_event(dict(entry["fields"])) for entry in golden]


def documented_event(texts):
    """The parts of an event, with the documented numbers as numbers."""
    head = [(key, texts.pop(key, "")) for key in ("e", "id", "n")]
    return head + [(key, text if key == "reason" else int(text)) for key, text in texts.items()]
