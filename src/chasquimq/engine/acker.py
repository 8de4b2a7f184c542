"""Gathers acknowledgements of completed deliveries and flushes them, with results and events."""

import logging

from chasquimq.broker import stream
from chasquimq.broker.connection import Connection
from chasquimq.broker.stream import Completion, ResultKeeping, Started, Telling
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig
from chasquimq.engine.gatherer import Gatherer
from chasquimq.engine.leases import Leases
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
        self.gatherer: Gatherer[Completion] = Gatherer(
            "acker", self._flush, most=config.ack_batch, flights=_FLIGHTS
        )
        teller.gatherer.rides_with = self.gatherer

    def add(self, completion: Completion) -> None:
        """Acknowledge with the next batch."""
        self.gatherer.add(completion)

    async def _complete(self, batch: list[Completion], started: list[Started]) -> list[bool]:
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

    async def _flush(self, batch: list[Completion]) -> None:
        started = await self._teller.take_started()  # `active` comes before `completed`
        try:
            removed = await self.gatherer.insist(lambda: self._complete(batch, started))
            late = removed.count(False)
            if late:
                log.info("%d completed jobs had been settled by another worker", late,
                         extra={"queue": self._keys.name})  # fmt: skip
        except ChasquiError as error:
            log.error(  # noqa: TRY400 -- the error says it all
                "%d completed jobs could not be acknowledged and will run again: %s",
                len(batch), error, extra={"queue": self._keys.name},
            )  # fmt: skip
            for each in batch:
                self._leases.give_up(each.entry_id)
        finally:
            for each in batch:
                self._leases.drop(each.entry_id)


def result_keeping(config: ConsumerConfig) -> ResultKeeping:
    """For how long a worker keeps what handlers return."""
    if not config.store_results:
        return ResultKeeping()
    # The outcome outlives the value, so that "expired" can be told from "unknown".
    return ResultKeeping(config.result_ttl_secs, 2 * config.result_ttl_secs)
