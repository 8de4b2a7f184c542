"""Metrics: a worker that serves them, is scraped, and says whether it is ready.

    pip install 'chasquimq[embedded,metrics]'
    python examples/metrics.py

In production `metrics_port` is a number and `metrics_host` an address that Prometheus reaches. A
sink of your own is told the same reports, inside the process.
"""

import asyncio
import os
import urllib.request

from chasquimq import Job, Queue, Worker
from chasquimq.metrics import JobOutcome, NoopSink
from chasquimq.testing import running, until_idle

URL = os.environ.get("CHASQUI_REDIS_URL", "embedded://")


class Slowest(NoopSink):
    """Remembers the longest run."""

    us = 0

    def job_outcome(self, outcome: JobOutcome) -> None:
        """Called after every run, on the event loop: note and return."""
        self.us = max(self.us, outcome.handler_duration_us)


async def work(job: Job) -> None:
    """Take as long as the job says."""
    await asyncio.sleep(job.data)


async def fetch(worker: Worker, path: str) -> str:
    """What the worker answers."""
    host, port = worker.metrics_address or ("", 0)
    url = f"http://{host}:{port}{path}"
    with await asyncio.to_thread(urllib.request.urlopen, url) as reply:  # noqa: S310 -- our own
        return str(reply.read().decode())


async def main() -> None:
    """Run some jobs, then look."""
    slowest = Slowest()
    worker = Worker("metrics", work, redis_url=URL, metrics=slowest, metrics_port=0)
    async with Queue("metrics", redis_url=URL) as queue, running(worker):
        await queue.add_bulk([{"name": "nap", "data": n / 100} for n in range(10)])
        await until_idle(queue)
        for line in (await fetch(worker, "/metrics")).splitlines():
            if line.startswith(("chasquimq_jobs_completed_total", "chasquimq_queue_depth")):
                print(line)
        print(await fetch(worker, "/readyz"))
    print(f"the slowest took {slowest.us / 1_000:.0f} ms")


asyncio.run(main())
