"""Adding and cancelling: what is stored, and what the caller sees of it."""

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from chasquimq import Counts, JobState, Queue
from chasquimq.testing import run_until_idle
from chasquimq.wire import ids
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.ids import ulid_time_ms
from chasquimq.wire.keys import QueueKeys


async def test_an_added_job_has_a_ulid_attempt_0_and_the_time_it_was_made(door, monkeypatch):
    # Ids of a process never go back, and another test may have had a clock that was ahead.
    monkeypatch.setattr(ids, "_mint", ids._Mint())  # noqa: SLF001 -- no door for this
    before_ms = int(datetime.now(UTC).timestamp() * 1_000)
    job = await door.add("send", {"k": 1})
    assert (job.name, job.data, job.attempt, job.attempts_made) == ("send", {"k": 1}, 0, 0)
    assert ulid_time_ms(job.id) == job.created_at_ms
    assert job.created_at_ms >= before_ms
    assert not job.deduplicated


async def test_a_handler_sees_attempts_from_1_and_the_job_as_it_was_added(door, queue, make_worker):
    seen = []

    async def fails_once(job):
        seen.append(dataclasses.replace(job))
        if job.attempt == 1:
            raise ValueError

    added = await door.add("send", {"k": 1}, job_id="mine")
    await run_until_idle(make_worker(fails_once), queue)
    assert [job.attempt for job in seen] == [1, 2]
    assert seen == [dataclasses.replace(added, attempt=number) for number in (1, 2)]


@dataclasses.dataclass
class Person:
    name: str
    born: datetime


async def test_rich_values_go_in_and_plain_ones_come_out(door, queue, make_worker):
    seen = []

    async def handler(job):
        seen.append(job.data)

    born = datetime(1815, 12, 10, tzinfo=UTC)
    await door.add(
        "send",
        {
            "who": Person("Ada", born),
            "id": UUID(int=1),
            "price": Decimal("1.20"),
            "tags": {"b", "a"},
            5: (1, 2),
        },
    )
    await run_until_idle(make_worker(handler), queue)
    assert seen == [
        {
            "who": {"name": "Ada", "born": born.isoformat()},
            "id": str(UUID(int=1)),
            "price": "1.20",
            "tags": ["a", "b"],
            5: [1, 2],
        }
    ]


@pytest.mark.parametrize(
    "now",
    [
        {"delay_ms": 0},
        {"delay_ms": 0.9},
        {"delay": timedelta(0)},
        {"delay": timedelta(microseconds=900)},
        {"delay_ms": datetime(2020, 1, 1, tzinfo=UTC)},
        {"delay_ms": datetime(2020, 1, 1)},  # noqa: DTZ001 -- naive on purpose
        {"delay_ms": None, "delay": None},
    ],
    ids=repr,
)
async def test_no_delay_worth_the_name_means_now(door, now):
    await door.add("send", 1, **now)
    assert await door.counts() == Counts(waiting=1, active=0, delayed=0, dead=0)


@pytest.mark.parametrize(
    "an_hour",
    [{"delay_ms": 3_600_000}, {"delay_ms": 3_600_000.9}, {"delay": timedelta(hours=1)}],
    ids=repr,
)
async def test_a_delay_counts_from_the_servers_clock(door, server, queue_name, an_hour):
    def now_ms():
        seconds, micros = server.client().time()
        return seconds * 1_000 + micros // 1_000

    before_ms = now_ms()
    await door.add("send", 1, **an_hour)
    [(_, score)] = server.client().zrange(
        f"{{chasqui:{queue_name}}}:delayed", 0, -1, withscores=True
    )
    assert before_ms + 3_600_000 <= score <= now_ms() + 3_600_000


async def test_a_moment_is_kept_to_the_millisecond_and_naive_means_utc(door, server, queue_name):
    aware = datetime.now(UTC).replace(microsecond=123_000) + timedelta(days=1)
    expected_ms = (aware - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    for moment in (aware, aware.replace(tzinfo=None)):
        await door.add("send", 1, delay_ms=moment)
    members = server.client().zrange(f"{{chasqui:{queue_name}}}:delayed", 0, -1, withscores=True)
    assert [score for _, score in members] == [expected_ms, expected_ms]


@pytest.mark.parametrize("delay_ms", [None, 60_000], ids=["now", "later"])
async def test_an_id_is_taken_once_across_producers(make_door, delay_ms):
    first = await make_door().add("send", 1, job_id="mine", delay_ms=delay_ms)
    again = await make_door().add_unique("send", 2, job_id="mine", delay_ms=delay_ms)
    assert (first.id, again.id) == ("mine", "mine")
    assert (first.deduplicated, again.deduplicated) == (False, True)
    counts = await make_door().counts()
    assert counts.waiting + counts.delayed == 1
    assert (await make_door().get_job("mine")).data == 1


async def test_an_id_taken_on_one_road_is_taken_on_the_other(door):
    await door.add("send", 1, job_id="mine", delay_ms=60_000)
    assert (await door.add("send", 2, job_id="mine")).deduplicated
    assert await door.counts() == Counts(waiting=0, active=0, delayed=1, dead=0)


async def test_of_many_adds_with_one_id_at_the_same_time_exactly_one_counts(make_door):
    doors = [make_door() for _ in range(3)]
    added = await asyncio.gather(
        *(door.add("send", number, job_id="mine") for number, door in enumerate(doors * 3))
    )
    assert sorted(job.deduplicated for job in added) == [False] + [True] * 8
    assert (await doors[0].counts()).waiting == 1


async def test_the_jobs_of_a_bulk_come_back_in_order_with_their_options_kept(
    door, queue, make_worker
):
    seen = {}

    async def handler(job):
        seen.setdefault(job.name, []).append(job.attempt)
        if job.name == "thrice":
            raise ValueError

    jobs = await door.add_bulk(
        [
            {"name": "plain", "data": 0},
            {"name": "delayed", "data": 1, "delay_ms": 60_000},
            {"name": "by timedelta", "data": 2, "delay": timedelta(hours=1)},
            {"name": "thrice", "data": 3, "attempts": 3, "backoff": 1},
            {"name": "mine", "data": 4, "job_id": "m1"},
            {"name": "mine later", "data": 5, "job_id": "m2", "delay_ms": 60_000},
        ]
    )
    assert [job.data for job in jobs] == [0, 1, 2, 3, 4, 5]
    assert [job.id for job in jobs[4:]] == ["m1", "m2"]
    assert len({job.id for job in jobs}) == 6
    assert not any(job.attempt or job.deduplicated for job in jobs)
    states = [await door.get_job_state(job.id) for job in jobs]
    waiting, delayed = JobState.WAITING, JobState.DELAYED
    assert states == [waiting, delayed, delayed, waiting, waiting, delayed]

    await run_until_idle(make_worker(handler), queue)
    assert seen == {"plain": [1], "thrice": [1, 2, 3], "mine": [1]}


@pytest.mark.parametrize("size", [1, 2, 50, 1_000, 1_001])
async def test_a_bulk_of_names_and_data_is_stored_and_told_as_single_adds_are(
    door, queue_name, server, size
):
    """Up to a thousand of them take a road of their own."""
    keys, client = QueueKeys(queue_name), server.client()
    jobs = await door.add_bulk([{"name": f"n{at % 3}", "data": {"at": at}} for at in range(size)])
    assert len({job.id for job in jobs}) == size
    stored = [fields for _, fields in client.xrange(keys.stream)]
    assert [fields[b"n"].decode() for fields in stored] == [job.name for job in jobs]
    for job, fields in zip(jobs, stored, strict=True):
        found = decode(fields[b"d"])
        assert (found.id, found.created_at_ms, found.attempt) == (job.id, job.created_at_ms, 0)
        assert unpack(found.payload) == job.data
    told = [fields for _, fields in client.xrange(keys.events)]
    assert [(fields[b"e"], fields[b"id"].decode()) for fields in told] == [
        (b"waiting", job.id) for job in jobs
    ]


async def test_of_an_id_that_is_twice_in_a_bulk_the_first_counts(door):
    jobs = await door.add_bulk(
        [
            {"name": "now", "data": 1, "job_id": "a"},
            {"name": "now", "data": 2, "job_id": "a"},
            {"name": "later", "data": 3, "job_id": "b", "delay_ms": 60_000},
            {"name": "later", "data": 4, "job_id": "b", "delay_ms": 60_000},
        ]
    )
    assert [job.deduplicated for job in jobs] == [False, True, False, True]
    assert (await door.get_job("a")).data == 1
    assert (await door.get_job("b")).data == 3


async def test_a_bulk_with_one_bad_job_adds_none(door):
    with pytest.raises(ValueError, match=r"jobs\[2\]"):
        await door.add_bulk(
            [
                {"name": "fine", "data": 1},
                {"name": "fine", "data": 1, "delay_ms": 1_000, "job_id": "x"},
                {"name": "bad", "data": 1, "delay_ms": -1},
            ]
        )
    with pytest.raises(RuntimeError, match="at most 1024 are allowed"):
        await door.add("n", 1, job_id="é" * 513)
    with pytest.raises(RuntimeError, match="256-byte cap"):
        await door.add_bulk([{"name": "fine", "data": 1}, {"name": "x" * 257, "data": 1}])
    assert await door.counts() == Counts(0, 0, 0, 0)


async def test_a_large_bulk_arrives_whole(door):
    size = 1_200
    jobs = await door.add_bulk(
        [{"name": "n", "data": number, "attempts": 2} for number in range(size)]
        + [{"name": "d", "data": number, "delay_ms": 60_000} for number in range(size)]
    )
    assert len({job.id for job in jobs}) == 2 * size
    assert await door.counts() == Counts(waiting=size, active=0, delayed=size, dead=0)


def a_mixed_bulk(prefix, size):
    return [
        job
        for number in range(size)
        for job in (
            {"name": "plain", "data": number},
            {"name": "retried", "data": number, "attempts": 5, "backoff": 100},
            {"name": "delayed", "data": number, "delay_ms": 60_000},
            {"name": "unique", "data": number, "job_id": f"{prefix}-{number}"},
            {"name": "both", "data": number, "delay_ms": 1, "job_id": f"{prefix}-d-{number}"},
        )
    ]


async def test_a_bulk_with_options_is_one_pipeline_of_three_commands_whatever_its_size(
    make_door, server
):
    def counted():
        client = server.client()
        scripts = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        return client.info("stats")["total_reads_processed"], scripts

    await make_door().add_bulk(a_mixed_bulk("first", 1))  # the server now has the scripts
    door = make_door()
    await door.counts()  # and this one a connection
    for size in (1, 10):
        reads, scripts = counted()
        await door.add_bulk(a_mixed_bulk(f"size-{size}", size))
        reads_after, scripts_after = counted()
        questions_of_ours = 2
        assert reads_after - reads - questions_of_ours == 1
        assert scripts_after - scripts == 3


async def test_a_delayed_job_is_cancelled_once_and_then_not_there(door):
    for job in (
        await door.add("send", 1, delay_ms=60_000),
        await door.add("send", 2, delay_ms=60_000, job_id="mine"),
    ):
        assert await door.get_job_state(job.id) is JobState.DELAYED
        assert await door.cancel_delayed(job.id) is True
        assert await door.cancel_delayed(job.id) is False
        assert await door.get_job_state(job.id) is JobState.UNKNOWN


async def test_only_a_delayed_job_can_be_cancelled(door):
    job = await door.add("send", 1)
    assert await door.cancel_delayed(job.id) is False
    assert await door.cancel_delayed("no such job") is False
    assert (await door.counts()).waiting == 1


async def test_a_retry_that_waits_for_its_time_can_be_cancelled(door, queue, make_worker):
    async def handler(_):
        raise ValueError

    job = await door.add("send", 1, backoff=60_000)
    await run_until_idle(make_worker(handler), queue)
    assert await door.get_job_state(job.id) is JobState.DELAYED
    assert await door.cancel_delayed(job.id) is True
    assert await door.counts() == Counts(0, 0, 0, 0)


async def test_a_queue_that_tells_no_events_writes_none(make_door, server, queue_name):
    events_key = f"{{chasqui:{queue_name}}}:events"
    await make_door(events_enabled=False).add_bulk(a_mixed_bulk("x", 1))
    assert server.client().exists(events_key) == 0
    await make_door().add_bulk(a_mixed_bulk("y", 1))
    assert server.client().xlen(events_key) == 5


async def test_a_stored_job_is_found_wherever_it_is(door, queue, make_worker):
    async def handler(_):
        raise ValueError

    dead = await door.add("dead", {"k": 1}, attempts=1)
    await run_until_idle(make_worker(handler), queue)
    delayed = await door.add("delayed", {"k": 2}, delay_ms=60_000)
    waiting = await door.add("waiting", {"k": 3}, job_id="mine")
    for job, state in (
        (dataclasses.replace(dead, attempt=1), JobState.FAILED),  # the run that its letter counts
        (delayed, JobState.DELAYED),
        (waiting, JobState.WAITING),
    ):
        assert await door.get_job_state(job.id) is state
        assert await door.get_job(job.id) == job
    assert await door.get_job_state("no such job") is JobState.UNKNOWN
    assert await door.get_job("no such job") is None


@pytest.mark.parametrize("extra", [{}, {"attempts": 2}])
async def test_a_list_that_changes_while_its_jobs_are_added_changes_nothing(
    server, queue_name, extra
):
    """What callers get is what they gave; an error here would make them add the jobs again."""
    buffer = [{"name": "n", "data": n} | extra for n in range(300)]
    async with Queue(queue_name, redis_url=server.url) as queue:
        adding = asyncio.create_task(queue.add_bulk(buffer))
        await asyncio.sleep(0)
        buffer.clear()
        assert [job.data for job in await adding] == list(range(300))
        assert await queue.get_waiting_count() == 300
