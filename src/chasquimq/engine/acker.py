"""Gathers acknowledgements of completed deliveries and flushes them, with results and events."""

import logging
from collections import deque
from collections.abc import Sequence

from chasquimq.broker import stream
from chasquimq.broker.connection import Connection
from chasquimq.broker.stream import CompletionRow, ResultKeeping, StartedRow, Telling
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.gatherer import Gatherer
from chasquimq.engine.leases import Leases
from chasquimq.engine.portions import SETTLED_BYTES, portions
from chasquimq.engine.teller import Teller
from chasquimq.errors import ChasquiError
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")

# Two batches on their way keep the server busy while we build the next; more only split batches.
_FLIGHTS = 2


class Acker:
    """Ends deliveries well. One that cannot be acknowledged is let go, and will run again."""

    def __init__(
        self,
        connection: Connection,
        keys: QueueKeys,
        config: ConsumerConfig,
        *,
        leases: Leases,
        teller: Teller,
        clock: Clock,
    ) -> None:
        """Flushes begin with `gatherer.start`; `teller` writes to the same connection."""
        self._connection = connection
        self._keys = keys
        self._group = config.group
        self._leases = leases
        self._teller = teller
        self._clock = clock
        self._events_cap = config.events_max_stream_len if config.events_enabled else 0
        self._keeping = result_keeping(config)
        self.gatherer: Gatherer[CompletionRow] = Gatherer(
            "acker", self._flush, most=config.ack_batch, flights=_FLIGHTS
        )
        teller.gatherer.rides_with = self.gatherer

    async def _complete(
        self, batch: Sequence[CompletionRow], started: list[StartedRow]
    ) -> list[bool]:
        server = self._connection.server or await self._connection.ready()
        return await self._connection.run(
            stream.complete(
                self._keys,
                self._group,
                batch,
                has_xackdel=server.has_xackdel,
                keeping=self._keeping,
                telling=Telling(self._clock.now_ms(), self._events_cap),
                started=started,
            )
        )

    async def _flush(self, batch: list[CompletionRow]) -> None:
        left = deque(in_portions(batch))
        try:
            while left:
                await self._settle(left[0])
                left.popleft()
        finally:
            # Of what is cut off here nobody else knows: held on to, it would be renewed for ever.
            for portion in left:
                self._give_up(portion)

    async def _settle(self, batch: Sequence[CompletionRow]) -> None:
        try:
            started = await self._teller.take_started()  # `active` comes before `completed`
            removed = await self.gatherer.insist(lambda: self._complete(batch, started))
        except ChasquiError as error:
            self._give_up(batch)
            log.error(  # noqa: TRY400 -- the error says it all
                "%d completed jobs could not be acknowledged and will run again: %s",
                len(batch), error, extra={"queue": self._keys.name},
            )  # fmt: skip
            return
        entry_ids = [each[0] for each in batch]
        if late := removed.count(False):
            log.info("%d completed jobs had been settled by another worker", late,
                     extra={"queue": self._keys.name})  # fmt: skip
            self._leases.drop(entry_ids)
            entry_ids = [each for each, was_there in zip(entry_ids, removed, strict=True)
                         if was_there]  # fmt: skip
        self._leases.settle(entry_ids)

    def _give_up(self, batch: Sequence[CompletionRow]) -> None:
        for each in batch:
            self._leases.give_up(each[0])


def in_portions(batch: Sequence[CompletionRow]) -> list[Sequence[CompletionRow]]:
    """A batch cut where its values are large: they travel as one argument."""
    sizes = [len(each[5]) if each[5] else 0 for each in batch]
    if sum(sizes) <= SETTLED_BYTES:
        return [batch]
    parts = portions(range(len(batch)), len(batch), sizes, most_bytes=SETTLED_BYTES)
    return [[batch[at] for at in part] for part in parts]


def result_keeping(config: ConsumerConfig) -> ResultKeeping:
    """For how long a worker keeps what handlers return."""
    if not config.store_results:
        return ResultKeeping()
    # The outcome outlives the value, so that "expired" can be told from "unknown".
    return ResultKeeping(config.result_ttl_secs, 2 * config.result_ttl_secs)
