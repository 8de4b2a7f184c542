"""One party of an interoperation test: carries out orders with the `chasquimq` it can import.

The reference engine's Python runs it and so does ours. It uses only what both packages document, so
that the two parties are the same program. Orders come as JSON lines on stdin; answers, and reports
of what handlers and events do, go as JSON lines to stdout. Users' data travels as MessagePack in
hex, as JSON lacks some of it. At the end of stdin it stops its workers and ends.

    driver.py REDIS_URL FIRST_ATTEMPT

FIRST_ATTEMPT is what `Job.attempt` is in a first run, on which the two packages differ.
"""

import asyncio
import json
import sys
import time
from datetime import datetime, timezone

import msgpack

from chasquimq import (
    BackoffSpec,
    Consumer,
    MissedFiresPolicy,
    Producer,
    Queue,
    QueueEvents,
    RepeatPattern,
    Scheduler,
    UnrecoverableError,
    Worker,
    version,
)

LINE_LIMIT = 1 << 24


def tell(**message):
    sys.stdout.write(json.dumps(message, default=bytes.hex) + "\n")
    sys.stdout.flush()


def pack(value):
    return msgpack.packb(value).hex()


def unpack(text):
    return msgpack.unpackb(bytes.fromhex(text), strict_map_key=False)


def arguments_of(job):
    """The arguments of `Queue.add` that an order's JSON stands for."""
    arguments = dict(job, data=unpack(job["data"]))
    if isinstance(arguments.get("backoff"), dict):
        arguments["backoff"] = BackoffSpec(**arguments["backoff"])
    if (at_ms := arguments.pop("at_ms", None)) is not None:
        # The reference engine's environment may have a Python that does not know `datetime.UTC`.
        arguments["delay_ms"] = datetime.fromtimestamp(at_ms / 1000, timezone.utc)  # noqa: UP017
    return arguments


def native_argument(value):
    """An argument of a native method; JSON has no bytes, so they come as `{"hex": ...}`."""
    if isinstance(value, dict):
        if value.keys() == {"hex"}:
            return bytes.fromhex(value["hex"])
        return {name: native_argument(each) for name, each in value.items()}
    if isinstance(value, list):
        return [native_argument(each) for each in value]
    return value


def native_answer(value):
    """What a native method gave; one package answers in dicts, the other in values like them."""
    if hasattr(value, "keys"):
        return {name: native_answer(value[name]) for name in value.keys()}  # noqa: SIM118
    if isinstance(value, list):
        return [native_answer(each) for each in value]
    return value


class NativeJob:
    """What a native handler is given, seen as a job with data."""

    def __init__(self, job):
        self.id, self.name = job.id, job.name
        self.attempt, self.created_at_ms = job.attempt, job.created_at_ms
        self.data = msgpack.unpackb(job.payload)


class Native:
    """A native class that runs, stopped as a worker is."""

    def __init__(self, runner):
        self.runner = runner

    async def close(self):
        self.runner.shutdown()


class Work:
    """A worker, and how its handler treats jobs, by their names."""

    def __init__(self, first_attempt, plan):
        self.first_attempt = first_attempt
        self.failures = plan.get("failures", {})
        self.hopeless = plan.get("hopeless", [])
        self.returns = {name: unpack(value) for name, value in plan.get("returns", {}).items()}
        self.held = plan.get("held", [])
        self.is_held = plan.get("is_held", False)
        self.gate = asyncio.Event()
        self.worker = None
        self.running = None

    async def handle(self, job):
        number = job.attempt - self.first_attempt + 1
        run = {
            "id": job.id,
            "name": job.name,
            "data": pack(job.data),
            "number": number,
            "created_at_ms": job.created_at_ms,
            "at_ms": int(time.time() * 1000),
        }
        tell(started=run)
        if self.is_held or job.name in self.held:
            await self.gate.wait()
        if job.name in self.hopeless:
            tell(ended=run | {"outcome": "hopeless"})
            message = f"{job.name} is hopeless"
            raise UnrecoverableError(message)
        if number <= self.failures.get(job.name, 0):
            tell(ended=run | {"outcome": "failed"})
            message = f"{job.name} failed in run {number}"
            raise RuntimeError(message)
        tell(ended=run | {"outcome": "ok"})
        return self.returns.get(job.name)


class Party:
    """The orders; each method is one."""

    def __init__(self, redis_url, first_attempt):
        self.redis_url = redis_url
        self.first_attempt = first_attempt
        self.forget()

    def forget(self):
        self.queues = {}
        self.producers = {}
        self.jobs = {}
        self.works = []
        self.watches = []

    def producer(self, queue):
        if queue not in self.producers:
            self.producers[queue] = Producer(self.redis_url, queue)
        return self.producers[queue]

    def queue(self, name):
        if name not in self.queues:
            self.queues[name] = Queue(name, redis_url=self.redis_url)
        return self.queues[name]

    async def version(self):
        return version()

    async def add(self, queue, job):
        added = await self.queue(queue).add(**arguments_of(job))
        self.jobs[added.id] = added
        return {"id": added.id, "is_duplicate": getattr(added, "deduplicated", None)}

    async def add_bulk(self, queue, jobs):
        added = await self.queue(queue).add_bulk([arguments_of(job) for job in jobs])
        return [job.id for job in added]

    async def upsert(self, queue, name, data, repeat, options):
        pattern = RepeatPattern(**repeat)
        if (most := options.pop("fire_all", None)) is not None:
            options["missed_fires"] = MissedFiresPolicy.fire_all(most)
        stored = await self.queue(queue).upsert_repeatable_job(
            name, unpack(data), repeat=pattern, **options
        )
        return stored.id

    async def recurring(self, queue):
        found = await self.queue(queue).get_repeatable_jobs(100)
        return [[meta.key, meta.job_name, meta.pattern.to_dict(), meta.limit] for meta in found]

    async def remove_recurring(self, queue, key):
        return await self.queue(queue).remove_repeatable_by_key(key)

    async def cancel(self, queue, job_id):
        return await self.queue(queue).cancel_delayed(job_id)

    async def peek(self, queue):
        return await self.queue(queue).peek_dlq(1000)

    async def replay(self, queue, limit=1000):
        return await self.queue(queue).replay_dlq(limit)

    async def results(self, queue, job_ids):
        found = await self.queue(queue).get_job_result_bulk(job_ids)
        assert found == [await self.queue(queue).get_job_result(job_id) for job_id in job_ids]
        return [pack(value) for value in found]

    async def wait(self, job_id, timeout):
        return pack(await self.jobs[job_id].wait_for_result(timeout=timeout, poll_interval=0.01))

    async def work(self, queue, plan, options):
        work = Work(self.first_attempt, plan)
        work.worker = Worker(queue, work.handle, redis_url=self.redis_url, **options)
        work.running = asyncio.ensure_future(work.worker.run())
        self.works.append(work)

    async def native(self, queue, method, arguments):
        """Call a method of a native producer, by position."""
        called = getattr(self.producer(queue), method)
        given = [native_argument(each) for each in arguments]
        if method == "add_bulk_named":
            given = [[tuple(pair) for pair in given[0]]]
        answer = called(*given)
        return native_answer(answer if isinstance(answer, str) else await answer)

    async def consume(self, queue, plan, options):
        """Start a native consumer; what its handler returns is packed here."""
        work = Work(self.first_attempt, plan)

        async def handle(job):
            value = await work.handle(NativeJob(job))
            return None if value is None else msgpack.packb(value)

        consumer = Consumer(self.redis_url, queue, **options)
        work.worker = Native(consumer)
        work.running = asyncio.ensure_future(consumer.run(handle))
        self.works.append(work)

    async def schedule(self, queue, options):
        """Start a native scheduler."""
        work = Work(self.first_attempt, {})
        scheduler = Scheduler(self.redis_url, queue, **options)
        work.worker = Native(scheduler)
        work.running = asyncio.ensure_future(scheduler.run())
        self.works.append(work)

    async def release(self):
        for work in self.works:
            work.gate.set()

    async def stop(self):
        """Answers when the workers have drained."""
        works = list(self.works)
        for work in works:
            await work.worker.close()
        for work in works:
            await work.running
        self.works = [work for work in self.works if work not in works]

    async def watch(self, queue):
        events = QueueEvents(queue, redis_url=self.redis_url, last_event_id="0")

        async def report():
            async for event in events:
                tell(
                    event={
                        "name": event.name,
                        "job_id": event.job_id,
                        "job_name": event.job_name,
                        "fields": event.fields,
                    }
                )

        self.watches.append((events, asyncio.ensure_future(report())))

    async def reset(self):
        """Be as if just started; also the way to end."""
        await self.release()
        await self.stop()
        for events, reporting in self.watches:
            reporting.cancel()
            await asyncio.wait([reporting])
            await events.close()
        for queue in self.queues.values():
            await queue.close()
        for producer in self.producers.values():
            await producer.shutdown()
        self.forget()

    async def carry_out(self, number, order, arguments):
        try:
            answer = await getattr(self, order)(**arguments)
        except Exception as error:  # noqa: BLE001 -- the other side judges it
            tell(answers=number, error=f"{type(error).__name__}: {error}")
        else:
            tell(answers=number, value=answer)


async def main():
    redis_url, first_attempt = sys.argv[1:]
    party = Party(redis_url, int(first_attempt))
    orders = asyncio.StreamReader(LINE_LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    under_way = set()
    while line := await orders.readline():
        task = asyncio.ensure_future(party.carry_out(**json.loads(line)))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await party.reset()


asyncio.run(main())
