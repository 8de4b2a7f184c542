"""Looking at a queue: counts by state, lists, pages, and what jobs said."""

import asyncio

import pytest

from chasquimq import JobLogs, JobsPage, JobState
from chasquimq.testing import run_until_idle, running
from chasquimq.wire.keys import QueueKeys

HOUR_MS = 3_600_000
EVERY_STATE = ["waiting", "active", "delayed", "completed", "failed"]


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


@pytest.fixture
async def busy(queue, make_worker):
    """One job or more in every state: the jobs by state, and the worker that holds the active."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def failing(_):
        raise ValueError

    async def quick(_):
        return 1

    async def slow(_):
        begun.set()
        await go.wait()

    jobs = {"failed": [await queue.add("failed", n, attempts=1) for n in range(2)]}
    await run_until_idle(make_worker(failing), queue)
    jobs["completed"] = [await queue.add("completed", n) for n in range(3)]
    await run_until_idle(make_worker(quick, store_results=True), queue)
    jobs["active"] = [await queue.add("active", 0)]
    async with running(make_worker(slow, concurrency=1, read_count=1, delayed_enabled=False)):
        await begun.wait()
        await queue.pause()  # in the server only: the worker has its hands full
        jobs["delayed"] = [
            await queue.add("delayed", n, delay_ms=HOUR_MS * (3 - n)) for n in range(3)
        ]
        jobs["waiting"] = []
        yield jobs
        await queue.resume()
        go.set()


async def test_states_are_counted_by_name_all_or_those_asked_for(door, busy):
    expected = {"waiting": 0, "active": 1, "delayed": 3, "completed": 3, "failed": 2}
    counts = await door.get_job_counts()
    assert counts == expected
    assert list(counts) == EVERY_STATE
    assert await door.get_job_counts("failed", JobState.ACTIVE) == {"failed": 2, "active": 1}
    singles = [await getattr(door, f"get_{state}_count")() for state in EVERY_STATE]
    assert singles == list(expected.values())
    assert await door.count() == 3


async def test_jobs_are_listed_by_state_oldest_first_or_newest_first(door, busy):
    for state in ("active", "failed"):
        listed = await door.get_jobs(state)
        assert [job.id for job in listed] == [job.id for job in busy[state]]
        backwards = await door.get_jobs([state], asc=False)
        assert [job.id for job in backwards] == [job.id for job in busy[state]][::-1]
    assert [job.data for job in await door.get_jobs("delayed")] == [2, 1, 0]
    assert [job.data for job in await door.get_jobs("delayed", asc=False)] == [0, 1, 2]
    [active] = await door.get_jobs("active")
    assert (active.name, active.data, active.attempt) == ("active", 0, 1)
    completed = await door.get_jobs("completed")
    assert {job.id for job in completed} == {job.id for job in busy["completed"]}
    assert [(job.name, job.data) for job in completed] == [("", None)] * 3


async def test_positions_count_through_all_states_asked_for(door, busy):
    order = [job.id for job in busy["failed"] + busy["active"]]
    listed = await door.get_jobs(["failed", "active", "failed"], 1, 2)
    assert [job.id for job in listed] == order[1:3]
    assert [job.id for job in await door.get_jobs(["failed", "active"], 2)] == order[2:]
    assert await door.get_jobs(["failed", "active"], 3, 9) == []
    assert await door.get_jobs("failed", 1, 0) == []
    assert len(await door.get_jobs()) == 9


async def test_a_long_queue_is_listed_whole_and_in_parts(door):
    jobs = await door.add_bulk([{"name": "n", "data": n} for n in range(2_300)])
    assert [job.data for job in await door.get_jobs("waiting")] == list(range(2_300))
    assert [job.data for job in await door.get_jobs("waiting", 1_500, 1_502)] == [1500, 1501, 1502]
    newest = await door.get_jobs("waiting", 0, 1, asc=False)
    assert newest == [jobs[-1], jobs[-2]]


async def test_pages_follow_one_another_by_their_cursor(door):
    await door.add_bulk([{"name": "n", "data": n} for n in range(250)])
    seen, cursor = [], None
    for _ in range(3):
        page = await door.get_jobs_page("waiting", cursor=cursor)
        assert isinstance(page, JobsPage)
        seen += [job.data for job in page.jobs]
        cursor = page.next_cursor
    assert seen == list(range(250))
    assert cursor is None


@pytest.mark.parametrize("options", [{}, {"delay_ms": HOUR_MS}], ids=["waiting", "delayed"])
async def test_a_job_that_stays_is_on_one_page_while_others_come_and_go(door, options):
    state = "delayed" if options else "waiting"
    bulk = [{"name": "n", "data": n, "job_id": f"j{n}", **options} for n in range(60)]
    await door.add_bulk(bulk)
    seen, cursor, goes = [], None, iter(range(0, 60, 2))
    while True:
        page = await door.get_jobs_page(state, cursor=cursor, limit=7)
        seen += [job.id for job in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            break
        for n in (next(goes), next(goes)):
            await door.remove(f"j{n}")
        await door.add("new", 0, **options)
    assert len(set(seen)) == len(seen)
    assert {f"j{n}" for n in range(1, 60, 2)} <= set(seen)


@pytest.mark.parametrize(
    ("state", "options", "error"),
    [
        ("paused", {}, ValueError),
        ("unknown", {}, ValueError),
        ("waiting", {"limit": 0}, ValueError),
        ("waiting", {"limit": "5"}, TypeError),
        ("waiting", {"cursor": "failed:1-1"}, ValueError),
        ("waiting", {"cursor": "waiting:x"}, ValueError),
        ("delayed", {"cursor": "nonsense"}, ValueError),
        ("completed", {"cursor": "completed:"}, ValueError),
    ],
)
async def test_a_page_that_cannot_be_is_refused(unconnected, state, options, error):
    with pytest.raises(error):
        await unconnected.get_jobs_page(state, **options)


async def test_lists_that_cannot_be_are_refused(unconnected):
    with pytest.raises(ValueError, match="none of waiting, active, delayed, completed, failed"):
        await unconnected.get_job_counts("waiting", "done")
    for arguments in (["done"], ["waiting", -1], ["waiting", 0, -2]):
        with pytest.raises(ValueError, match=r"done|start|end"):
            await unconnected.get_jobs(*arguments)


async def test_a_listed_job_can_wait_for_its_result(queue, make_worker):
    async def quick(job):
        return job.data

    await queue.add("send", 5)
    [job] = await queue.get_jobs("waiting")
    found = await queue.get_job(job.id)
    async with running(make_worker(quick, store_results=True)):
        assert await job.wait_for_result(timeout=10) == 5
        assert await found.wait_for_result(timeout=10) == 5


async def test_data_that_nobody_can_read_does_not_hide_the_others(door, server, keys):
    await door.add("fine", 1)
    broken = b"\x94\xa1x\xc4\x01\xc1\xcf" + bytes(8) + b"\x00"
    server.client().xadd(keys.stream, {"d": broken})
    assert [job.name for job in await door.get_jobs("waiting")] == ["fine"]


# --- what jobs said


@pytest.fixture
def logged(server, keys):
    client = server.client()
    for number in range(5):
        client.xadd(keys.log("j1"), {"line": f"line {number}"})
    client.expire(keys.log("j1"), 60)
    client.set(keys.progress("j1"), "40", ex=60)


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ([], [0, 1, 2, 3, 4]),
        ([1, 2], [1, 2]),
        ([3], [3, 4]),
        ([-2], [3, 4]),
        ([0, -2], [0, 1, 2, 3]),
        ([-9, 9], [0, 1, 2, 3, 4]),
        ([4, 2], []),
        ([9], []),
        ([0, -1, False], [4, 3, 2, 1, 0]),
        ([0, 1, False], [4, 3]),
        ([-1, -1, False], [0]),
    ],
    ids=str,
)
async def test_lines_of_a_log_are_read_by_position(door, logged, arguments, numbers):
    logs = await door.get_job_logs("j1", *arguments)
    assert logs == JobLogs([f"line {number}" for number in numbers], 5)


async def test_a_job_that_said_nothing_has_no_lines_and_no_progress(door):
    assert await door.get_job_logs("j2") == JobLogs([], 0)
    assert await door.get_job_progress("j2") is None


async def test_progress_is_what_the_job_said_last(door, logged, server, keys):
    assert await door.get_job_progress("j1") == 40
    server.client().set(keys.progress("j1"), "half", ex=60)
    assert await door.get_job_progress("j1") is None


async def test_a_job_that_was_looked_up_knows_its_progress(door, server, keys):
    job = await door.add("n", 1)
    assert (await door.get_job(job.id)).progress is None
    server.client().set(keys.progress(job.id), "40", ex=60)
    found = await door.get_job(job.id)
    assert found.progress == found.to_dict()["progress"] == 40
