"""A producer process: adds what `workload` wants, and writes down each answer."""

import asyncio
import random
import signal
from collections import deque
from itertools import islice
from typing import Any

from chaos.clocks import now_ms, now_us
from chaos.history import (
    Added,
    Asked,
    Burst,
    Refused,
    Revived,
    Reviving,
    Withdrawing,
    Withdrawn,
)
from chaos.plainly import THREADS, Plainly
from chaos.process import Life, Orders
from chaos.workload import DOOMED, Wanted, wanted
from chasquimq import BackoffSpec, ChasquiError, Job, Queue, QueueFullError
from chasquimq.errors import ServerReplyError

# Calls that wait for an answer at the same time, at most, besides those of one burst: a server that
# is away must not make the producer's memory grow.
_PATIENCE = 64
_BULK = 12
# Of bursts: how many are not joined, since each call leaves before the next is asked for.
_APART = 0.7
# How often a producer sends some of its dead letters round again, how many at once, and how many of
# its jobs it remembers for that.
_REVIVES = 0.004
_REVIVED = 4
_REMEMBERED = 300
_BACKOFF = BackoffSpec.exponential(20, max_ms=400, jitter_ms=10)


class Producer:
    """Adds jobs until it is told to stop: one by one, in bulks, and now and then many at once.

    A plain one has a `SyncQueue`, and a thread for each call: as many at once as it has threads.
    What a burst was more than its share comes off the others, so that the rate is what it should
    be, but for bursts that are ordered too often.
    """

    def __init__(self, orders: Orders) -> None:
        """Nothing is added before `run`."""
        self._who = orders.who
        self._life = Life(orders)
        self._life.begin()
        self._ordered: deque[int] = deque()
        self._life.obey(self._obey)
        settings = dict(orders.settings or {})
        self._rate: float = settings.pop("rate")
        self._kinds: list[str] = settings.pop("kinds", [])
        is_plain = settings.pop("plain", False)
        self._queue = (Plainly if is_plain else Queue)(
            orders.queue, redis_url=orders.url, **settings
        )
        self._most_at_once = THREADS if is_plain else None
        self._doomed: deque[str] = deque(maxlen=_REMEMBERED)
        self._chance = random.Random(orders.seed)
        self._stop = asyncio.Event()
        self._room = asyncio.Semaphore(_PATIENCE)
        self._calls = 0
        self._unanswered = 0
        self._owed = 0
        self._burst: asyncio.Task[None] | None = None

    def _obey(self, order: str) -> None:
        verb, _, size = order.partition(" ")
        if verb == "burst":
            self._ordered.append(int(size))
        elif verb == "live":  # nobody waits for it any more
            self._ordered.clear()

    async def run(self) -> None:
        """Add until SIGTERM, and then wait for the answers that are due."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
        asking = wanted(self._chance, self._kinds)
        async with asyncio.TaskGroup() as tasks:
            while not self._stop.is_set():
                await self._room.acquire()
                wish = next(asking)
                is_free = self._burst is None or self._burst.done()
                size = self._ordered.popleft() if is_free and self._ordered else wish.burst
                if size and is_free:
                    some = [*islice(asking, size)][: self._most_at_once]
                    self._owed += len(some)
                    self._burst = tasks.create_task(self._add_at_once(some))
                if self._doomed and self._chance.random() < _REVIVES:
                    tasks.create_task(self._revive())
                if wish.is_bulk:
                    tasks.create_task(self._add_many([wish, *islice(asking, _BULK)]))
                else:
                    tasks.create_task(self._add_one(wish, self._room))
                await self._pause()
        await self._queue.close()

    async def _pause(self) -> None:
        seconds = self._chance.expovariate(self._rate)
        if self._owed > 0:
            self._owed -= 1
            seconds *= 2
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _add_at_once(self, wishes: list[Wanted]) -> None:
        """As many calls as wishes, and all of them under way unless the server is faster."""
        is_apart = self._chance.random() < _APART
        async with asyncio.TaskGroup() as calls:
            for wish in wishes:
                calls.create_task(self._add_one(wish))
                if is_apart:
                    await asyncio.sleep(0)  # it has begun
                    await asyncio.sleep(0)  # and was sent
            if not is_apart:
                await asyncio.sleep(0)
            under_way = min(self._unanswered, self._most_at_once or self._unanswered)
            self._life.scroll.write(Burst(now_us(), self._who, under_way))

    async def _add_one(self, wish: Wanted, room: asyncio.Semaphore | None = None) -> None:
        [(call, arguments)] = self._asked([wish])
        self._unanswered += 1
        try:
            job = await self._queue.add(**arguments)
        except ChasquiError as error:
            is_full = isinstance(error, QueueFullError)
            self._life.scroll.write(Refused(now_us(), call, repr(error)[:200], is_full))
            return
        finally:
            self._unanswered -= 1
            if room is not None:
                room.release()
        self._added(call, job, wish)
        if wish.withdraw_after_ms is not None:
            await self._withdraw(job.id, wish.withdraw_after_ms)

    async def _add_many(self, wishes: list[Wanted]) -> None:
        try:
            asked = self._asked(wishes)
            try:
                jobs = await self._queue.add_bulk([arguments for _, arguments in asked])
            except ChasquiError as error:
                for call, _ in asked:
                    self._life.scroll.write(Refused(now_us(), call, repr(error)[:200]))
                return
            for (call, _), job, wish in zip(asked, jobs, wishes, strict=True):
                self._added(call, job, wish)
        finally:
            self._room.release()

    def _asked(self, wishes: list[Wanted]) -> list[tuple[str, dict[str, Any]]]:
        """Write down what is about to be asked for, and return the arguments of each call."""
        asked = []
        for wish in wishes:
            self._calls += 1
            call = f"{self._who}/{self._calls}"
            self._life.scroll.write(
                Asked(now_us(), now_ms(), call, wish.kind, wish.budget, wish.delay_ms, wish.job_id)
            )
            arguments: dict[str, Any] = {"name": wish.kind, "data": {**wish.data, "call": call}}
            arguments |= {"attempts": wish.budget, "backoff": _BACKOFF}
            if wish.delay_ms:
                arguments["delay_ms"] = wish.delay_ms
            if wish.job_id:
                arguments["job_id"] = wish.job_id
            asked.append((call, arguments))
        return asked

    def _added(self, call: str, job: Job, wish: Wanted) -> None:
        self._life.scroll.write(Added(now_us(), call, job.id, job.deduplicated))
        if wish.kind in DOOMED:
            self._doomed.append(job.id)

    async def _revive(self) -> None:
        """Send some round again that are dead letters, or will be: one, or some in one call."""
        known = sorted({*self._doomed})
        some = min(self._chance.choice((1, 1, 1, _REVIVED)), len(known))
        ids = self._chance.sample(known, some)
        began = now_us()
        for job_id in ids:
            self._life.scroll.write(Reviving(began, job_id))
        is_done: bool | None = None
        try:
            if some == 1:
                is_done = await self._queue.retry_job(ids[0])
            elif await self._queue.replay_dlq(some, ids=ids) == some:
                is_done = True
        except ChasquiError:
            is_done = None  # it may be done or not
        for job_id in ids:
            self._life.scroll.write(Revived(now_us(), began, job_id, is_done))

    async def _withdraw(self, job_id: str, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1_000)
        withdraw = self._chance.choice((self._queue.cancel_delayed, self._queue.remove))
        is_gone: bool | None
        self._life.scroll.write(Withdrawing(now_us(), job_id))
        try:
            is_gone = await withdraw(job_id)
        except ServerReplyError as error:
            # Where something else stands at a key nothing is done: the job may not be gone.
            is_gone = False if error.kind == "WRONGTYPE" else None
        except ChasquiError:
            is_gone = None
        self._life.scroll.write(Withdrawn(now_us(), job_id, is_gone))


if __name__ == "__main__":
    asyncio.run(Producer(Orders.given()).run())
