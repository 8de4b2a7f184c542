"""Chapter 2: jobs for later, and changing your mind."""

from datetime import UTC, datetime, timedelta

from chasquimq.testing import run_until_idle


async def test_a_delay_is_given_in_milliseconds_as_a_timedelta_or_as_a_moment(queue, make_worker):
    seen = []

    async def handler(job):
        seen.append(job.data)

    await queue.add("remind", "third", delay_ms=datetime.now(UTC) + timedelta(milliseconds=240))
    await queue.add("remind", "second", delay=timedelta(milliseconds=120))
    await queue.add("remind", "first", delay_ms=1)
    assert (await queue.counts()).delayed == 3

    await run_until_idle(make_worker(handler), queue)
    assert seen == ["first", "second", "third"]


async def test_a_delayed_job_is_cancelled_by_its_id(queue, make_worker):
    seen = []

    async def handler(job):
        seen.append(job.data)

    job = await queue.add("remind", "never mind", delay_ms=50)
    assert await queue.cancel_delayed(job.id)
    assert not await queue.cancel_delayed(job.id), "there is nothing left to cancel"

    await run_until_idle(make_worker(handler), queue)
    assert seen == []


async def test_an_id_of_your_own_makes_a_job_unique(queue, make_worker):
    seen = []

    async def handler(job):
        seen.append(job.data)

    first = await queue.add("invoice", "the first call", job_id="invoice-2024-07")
    again = await queue.add_unique("invoice", "the second call", job_id="invoice-2024-07")
    assert (first.deduplicated, again.deduplicated) == (False, True)

    await run_until_idle(make_worker(handler), queue)
    assert seen == ["the first call"]


async def test_a_cancelled_id_can_be_used_again(queue):
    await queue.add("invoice", "too early", job_id="invoice-7", delay=timedelta(days=1))
    await queue.cancel_delayed("invoice-7")
    job = await queue.add("invoice", "better", job_id="invoice-7", delay=timedelta(days=2))
    assert not job.deduplicated
