"""A worker without a loop: it takes, settles, hands back and dies when it is told to.

Decisions are the engine's own (`admission.py`, `disposition.py`, `settlement.py`), calls the
broker's; only the waiting and the tasks of a real worker are missing. It takes in the two ways in
which `intake.py` does, depending on what the server can.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from chasquimq.broker import returns, stream
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.steps import drive_blocking
from chasquimq.broker.stream import Completion, Delivery, Telling
from chasquimq.clock import Clock
from chasquimq.config import ConsumerConfig, RetryConfig
from chasquimq.engine.acker import result_keeping
from chasquimq.engine.admission import NO_NAMES, Run, Unfit, admit
from chasquimq.engine.disposition import Outcome
from chasquimq.engine.intake import gated
from chasquimq.engine.reader import IDLE_FOR_ALL_MS
from chasquimq.engine.relocator import Move, carried
from chasquimq.engine.settlement import Settlement
from chasquimq.errors import RedisError, ServerReplyError
from chasquimq.wire.keys import QueueKeys
from tests.model.values import LEASE, LONGEST_BACKOFF, MAX_ATTEMPTS, RESULT_TTL, UNIT_MS

T = TypeVar("T")

MAX_PAYLOAD = 2_000


@dataclass
class _Written:
    """Takes what a settlement decided, for the hand to carry out."""

    items: list[Completion | Move] = field(default_factory=list)

    def add(self, item: Completion | Move) -> None:
        self.items.append(item)

    def failed(self, run: Run, reason: str, duration_us: int) -> None:
        """Events of failures are not part of the model."""


class Hand:
    """One consumer, and what it has in hand."""

    def __init__(
        self, connection: BlockingConnection, keys: QueueKeys, consumer: str, clock: Clock
    ) -> None:
        """It joins the group with its first take."""
        self.consumer = consumer
        self.runs: dict[bytes, Run] = {}
        self._connection = connection
        self._keys = keys
        self._clock = clock
        self._config = ConsumerConfig(
            queue_name=keys.name,
            consumer_id=consumer,
            claim_min_idle_ms=LEASE * UNIT_MS,
            max_attempts=MAX_ATTEMPTS,
            max_payload_bytes=MAX_PAYLOAD,
            store_results=True,
            result_ttl_secs=RESULT_TTL * UNIT_MS // 1_000,
            retry=RetryConfig(
                initial_backoff_ms=UNIT_MS, max_backoff_ms=LONGEST_BACKOFF * UNIT_MS, jitter_ms=0
            ),
        )
        self._written = _Written()
        self._settlement = Settlement(
            keys,
            self._config,
            acker=self._written,
            relocator=self._written,
            teller=self._written,
            clock=clock,
            chance=random.Random(0),  # noqa: S311 -- jitter is off
        )

    def take(
        self, count: int, *, was_blocked: bool = False
    ) -> tuple[list[Delivery], bool, list[Unfit]]:
        """Deliveries, whether the queue was paused, and those that no handler may see.

        One that was blocked in its read has looked for expired leases before, if it must look.
        What comes during a pause is put back at once; the unfit are dead-lettered at once.
        """
        self._connection.run(stream.join(self._keys, self._config.group))
        deliveries, is_paused = self._read(count, was_blocked=was_blocked)
        unfit: list[Unfit] = []
        if is_paused:
            if deliveries:
                self._connection.run(
                    returns.put_back(
                        self._keys, self._config.group, self.consumer, deliveries,
                        idle_ms=IDLE_FOR_ALL_MS,
                    )
                )  # fmt: skip
            return deliveries, True, []
        for delivery in deliveries:
            if delivery.entry_id in self.runs:
                continue
            fit = admit(
                delivery,
                max_payload_bytes=self._config.max_payload_bytes,
                max_attempts=self._config.max_attempts,
                retry_by_name=NO_NAMES,
            )
            if isinstance(fit, Run):
                self.runs[delivery.entry_id] = fit
            else:
                unfit.append(fit)
                self._settlement.set_aside(fit)
                self._write()
        return deliveries, False, unfit

    def settle(self, entry_id: bytes, outcome: Outcome) -> bool:
        """End a run; whether that counted."""
        self._settlement.settle(self.runs.pop(entry_id), outcome, 250)
        return self._write()

    def hand_back(self) -> None:
        """Stop without having begun anything."""
        unstarted = [run.delivery for run in self.runs.values()]
        self.runs.clear()
        if not unstarted:
            return
        call = returns.hand_back(
            self._keys, self._config.group, self.consumer, unstarted, idle_ms=IDLE_FOR_ALL_MS
        )
        _unless_lost(lambda: self._connection.run(call), default=0)

    def leave(self) -> bool:
        """Stop in good order; whether nothing is left of it."""
        self.hand_back()
        depart = returns.depart(
            self._keys, self._config.group, self.consumer, idle_ms=IDLE_FOR_ALL_MS
        )
        return _unless_lost(lambda: drive_blocking(self._connection, depart), default=True)

    def renew(self) -> list[bytes]:
        """Renew all leases; those that are lost."""
        ids = list(self.runs)
        if not ids:
            return []
        renew = stream.renew(self._keys, self._config.group, self.consumer, ids)
        return _unless_lost(lambda: self._connection.run(renew), default=ids)

    def _read(self, count: int, *, was_blocked: bool) -> tuple[list[Delivery], bool]:
        config = self._config
        server = self._connection.ready()
        if not server.has_claim and not was_blocked:
            claim = stream.claim(
                self._keys, config.group, self.consumer,
                min_idle_ms=config.claim_min_idle_ms, count=count,
            )  # fmt: skip
            claimed, is_paused = self._connection.run(gated(self._keys, claim))
            if claimed or is_paused:
                return claimed, is_paused
        read = stream.read(
            self._keys, config.group, self.consumer, count=count, block_ms=0,
            claim_min_idle_ms=config.claim_min_idle_ms if server.has_claim else None,
        )  # fmt: skip
        return self._connection.run(gated(self._keys, read))

    def _write(self) -> bool:
        [item] = self._written.items
        self._written.items.clear()
        if isinstance(item, Move):
            return _unless_lost(lambda: self._moved(item), default=False)
        [was_there] = self._connection.run(
            stream.complete(
                self._keys,
                self._config.group,
                [item],
                has_xackdel=self._connection.ready().has_xackdel,
                keeping=result_keeping(self._config),
                telling=Telling(self._clock.now_ms(), self._config.events_max_stream_len),
            )
        )
        return was_there

    def _moved(self, move: Move) -> bool:
        [answer] = self._connection.run(carried([move]))
        if isinstance(answer, RedisError):
            raise answer
        return answer


def _unless_lost(ask: Callable[[], T], default: T) -> T:
    """The answer; where somebody has taken the group away, what that comes to."""
    try:
        return ask()
    except ServerReplyError as error:
        if error.kind != "NOGROUP" and "no such key" not in str(error):
            raise
        return default
