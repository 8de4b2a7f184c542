"""Adds and runs inside the spans of a tracer, joined by what jobs carry from one to the other."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from chasquimq.broker import traces
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import Target
from chasquimq.config import ConsumerConfig
from chasquimq.engine.admission import Run, budget
from chasquimq.engine.executor import Handler
from chasquimq.engine.gatherer import Gatherer
from chasquimq.engine.orders import Order
from chasquimq.errors import ChasquiError
from chasquimq.tracing import AddSpan, RunSpan, Tracer, quietly
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.tracing")

# A trace is not worth a late job: what cannot be fetched in this time is done without.
_FETCH_S = 0.5
_FAREWELL_S = 1.0
_MOST_AT_ONCE = 512


@contextmanager
def traced_add(tracer: Tracer, queue: str, orders: Sequence[Order]) -> Iterator[Sequence[Order]]:
    """The orders as they should be sent: each with what it carries, if the tracer gives that."""
    span = AddSpan(queue, tuple(each.id for each in orders), tuple(each.name for each in orders))
    with quietly(lambda: tracer.adding(span)) as carried:
        yield orders if carried is None else [each._replace(trace=carried) for each in orders]


class Traces:
    """Runs a worker's handlers inside spans.

    What jobs carry is fetched over a connection of its own, for all jobs that start in the same
    turn together, and dropped in batches once they have succeeded; after a failure it stays, for
    retries and for a replay, until it expires. So does what a `kill -9` leaves behind.
    """

    def __init__(
        self, tracer: Tracer, config: ConsumerConfig, target: Target, options: ConnectionOptions
    ) -> None:
        """Nothing is connected before the first job."""
        self._tracer = tracer
        self._config = config
        self._keys = QueueKeys(config.queue_name)
        self._connection = Connection(target, options, slot_key=self._keys.tag)
        self._wanted: Gatherer[tuple[str, asyncio.Future[bytes | None]]] = Gatherer(
            "traces", self._fetch, most=_MOST_AT_ONCE, flights=2
        )
        self._done: Gatherer[str] = Gatherer(
            "traces-done", self._forget, most=_MOST_AT_ONCE, flights=1
        )
        self._is_silent = False

    def __repr__(self) -> str:
        """Show what waits."""
        return f"<Traces {self._keys.name}, {len(self._wanted)} wanted, {len(self._done)} done>"

    def around(self, handler: Handler) -> Handler:
        """The handler inside a span, and what the job carried forgotten once it has succeeded."""

        async def traced(run: Run) -> bytes | None:
            job_id = run.envelope.id
            carried = await self._carried_by(job_id)
            span = self._span(run)
            with quietly(lambda: self._tracer.running(span, carried)):
                value = await handler(run)
            if carried is not None:
                self._done.add(job_id)
            return value

        return traced

    def start(self) -> None:
        """Begin to fetch and forget."""
        self._wanted.start()
        self._done.start()

    async def end(self) -> None:
        """Forget what is left to forget, if the server lets us soon, and disconnect."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await self._wanted.end()
                await self._done.end()
        self._wanted.cut()
        self._done.cut()
        await self._connection.close()

    def _span(self, run: Run) -> RunSpan:
        config, envelope = self._config, run.envelope
        return RunSpan(
            queue=config.queue_name,
            group=config.group,
            consumer_id=config.consumer_id,
            job_id=envelope.id,
            name=run.name,
            attempt=run.attempt,
            is_last=run.attempt >= budget(run.retry, config.max_attempts),
            size=len(envelope.packed_data),
            is_discarded=lambda: run.is_discarded,
        )

    async def _carried_by(self, job_id: str) -> bytes | None:
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._wanted.add((job_id, answer))
        try:
            async with asyncio.timeout(_FETCH_S):
                return await answer
        except TimeoutError:
            self._complain("the server does not answer")
            return None

    async def _fetch(self, batch: list[tuple[str, "asyncio.Future[bytes | None]"]]) -> None:
        found: list[bytes | None] = [None] * len(batch)
        try:
            call = traces.carried_by(self._keys, [job_id for job_id, _ in batch])
            found = await self._connection.run(call)
            self._is_silent = False
        except ChasquiError as error:
            self._complain(str(error))
        for (_, answer), value in zip(batch, found, strict=True):
            if not answer.done():
                answer.set_result(value)

    async def _forget(self, batch: list[str]) -> None:
        try:
            await self._connection.run(traces.forget(self._keys, batch))
        except ChasquiError as error:
            log.debug("what %d jobs carried stays until it expires: %s", len(batch), error)

    def _complain(self, problem: str) -> None:
        """Say once per outage that spans are not joined."""
        level = logging.DEBUG if self._is_silent else logging.WARNING
        self._is_silent = True
        log.log(level, "runs are not joined to their adds: %s", problem,
                extra={"queue": self._keys.name})  # fmt: skip
