"""Plays the demo: jobs now, later, failing at first, failing for good, replayed, with results."""

import asyncio
from collections import Counter
from typing import Any

from chasquimq import BackoffSpec, Job, Queue, UnrecoverableError
from demo_parts.ledger import Ledger

WORK_S = {"email": 0.09, "reminder": 0.03, "payment": 0.05, "import": 0.06, "report": 0.1}
"""Every kind of job in the story, and how long its handler takes."""

_BURSTS, _BURST = 9, 40
_REMINDERS = 60
_PAYMENTS = 30
_IMPORTS = 12
_REPORTS = 16


class Story:
    """The handler of the demo's worker, and the acts in which jobs are added."""

    def __init__(self, queue: Queue, ledger: Ledger) -> None:
        """Nothing is added before `play`."""
        self._queue = queue
        self._ledger = ledger
        self._is_fixed = False
        self.act = "starting"
        self.added: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.replayed = 0
        self.wrong_results: list[str] = []

    async def handle(self, job: Job) -> Any:  # noqa: ANN401 -- what a handler returns is its own
        """Run one job. Counts by itself, so that the books can be checked against it."""
        self.runs[job.name] += 1
        await asyncio.sleep(WORK_S[job.name])
        if job.name == "payment" and job.attempt <= job.data["failures"]:
            message = "the card network does not answer"
            raise ConnectionError(message)
        if job.name == "import" and not self._is_fixed:
            if job.data["n"] % 2:
                message = "no parser for this kind of file"
                raise UnrecoverableError(message)
            message = "the header has 7 columns instead of 8"
            raise ValueError(message)
        return sum(job.data["numbers"]) if job.name == "report" else None

    async def play(self) -> None:
        """Add everything, one act after the other, and return when every job has completed."""
        emails = asyncio.create_task(self._emails())
        await asyncio.sleep(1.6)
        await self._add_later()
        await self._fail_at_first()
        await self._fail_for_good()
        await emails
        self.act = "the bug is fixed: replaying the dead letters"
        await self._replay()
        await self._read_results()
        self.act = "waiting for the last job"
        await self._ledger.until(self._ledger.has_ended)

    async def _emails(self) -> None:
        self.act = "emails, in bursts: jobs that run now"
        for _ in range(_BURSTS):
            await self._add([{"name": "email", "data": {"n": n}} for n in range(_BURST)])
            await asyncio.sleep(0.75)

    async def _add_later(self) -> None:
        self.act = "reminders: jobs that run later"
        step_ms = 4_000 // _REMINDERS
        await self._add(
            [
                {"name": "reminder", "data": {"n": n}, "delay_ms": 800 + n * step_ms}
                for n in range(_REMINDERS)
            ]
        )
        await asyncio.sleep(1.5)

    async def _fail_at_first(self) -> None:
        self.act = "payments: jobs that fail once or twice and are retried"
        backoff = BackoffSpec.exponential(400, jitter_ms=150)
        await self._add(
            [
                {"name": "payment", "data": {"failures": n % 3}, "attempts": 4, "backoff": backoff}
                for n in range(_PAYMENTS)
            ]
        )
        await asyncio.sleep(1.2)

    async def _fail_for_good(self) -> None:
        self.act = "imports: jobs that cannot work yet and become dead letters"
        await self._add(
            [
                {"name": "import", "data": {"n": n}, "attempts": 2, "backoff": 300}
                for n in range(_IMPORTS)
            ]
        )
        await self._ledger.until(lambda: self._ledger.counts()["dead"] == _IMPORTS)
        await asyncio.sleep(1.0)

    async def _replay(self) -> None:
        self._is_fixed = True
        self.replayed = await self._queue.replay_dlq(name="import")
        await asyncio.sleep(1.0)

    async def _read_results(self) -> None:
        self.act = "reports: jobs whose results are waited for"
        wanted = [[n, n * n, n**3] for n in range(_REPORTS)]
        jobs = await self._add([{"name": "report", "data": {"numbers": each}} for each in wanted])
        got = await asyncio.gather(*(job.wait_for_result(timeout=10) for job in jobs))
        self.wrong_results = [
            f"report of {numbers} gave {value}"
            for numbers, value in zip(wanted, got, strict=True)
            if value != sum(numbers)
        ]

    async def _add(self, jobs: list[dict[str, Any]]) -> list[Job]:
        added = await self._queue.add_bulk(jobs)
        self.added.update(job.name for job in added)
        return added
