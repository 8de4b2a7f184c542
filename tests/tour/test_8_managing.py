"""Chapter 8: what people do to a queue by hand."""

from chasquimq import JobState
from chasquimq.testing import run_until_idle


async def test_a_queue_is_paused_until_somebody_resumes_it(queue):
    await queue.pause()
    assert await queue.is_paused()

    await queue.add("welcome", "ada")  # adding goes on
    await queue.resume()
    assert not await queue.is_paused()


async def test_a_job_is_taken_out_before_it_runs(queue, make_worker):
    ran = []

    async def handler(job):
        ran.append(job.data)

    await queue.add("welcome", "ada")
    mistake = await queue.add("welcome", "nobody")

    assert await queue.remove(mistake.id)
    await run_until_idle(make_worker(handler), queue)
    assert ran == ["ada"]
    assert not await queue.remove(mistake.id)


async def test_a_delayed_job_gets_another_time_other_data_or_runs_at_once(queue, make_worker):
    ran = []

    async def handler(job):
        ran.append(job.data)

    job = await queue.add("remind", "at six", delay_ms=60_000)
    assert await queue.reschedule(job.id, delay_ms=120_000)
    assert await queue.update_job_data(job.id, "at seven")
    assert await queue.promote_job(job.id)

    await run_until_idle(make_worker(handler), queue)
    assert ran == ["at seven"]


async def test_jobs_are_looked_at_page_by_page(queue):
    await queue.add_bulk([{"name": "n", "data": number} for number in range(5)])

    first = await queue.get_jobs_page("waiting", limit=3)
    rest = await queue.get_jobs_page("waiting", limit=3, cursor=first.next_cursor)

    assert [job.data for job in first.jobs + rest.jobs] == [0, 1, 2, 3, 4]
    assert rest.next_cursor is None
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 5, "delayed": 0}


async def test_a_queue_is_emptied_and_a_dry_run_says_what_would_go(queue):
    await queue.add("now", 1, job_id="mine")
    await queue.add("later", 1, delay_ms=60_000)

    assert await queue.drain(dry_run=True) == 2
    assert await queue.drain() == 2
    assert await queue.get_job_state("mine") is JobState.UNKNOWN
    assert await queue.obliterate() > 0  # events, and what else there was
