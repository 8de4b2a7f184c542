"""`Pulse`: tells the sink, about once a second, how a worker stands.

What changes with every job is counted where it happens and looked at here, so that a report costs
a worker one call a second and a job nothing. A worker without a sink has no pulse.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from chasquimq.clock import Clock
from chasquimq.metrics import (
    LeasesRenewed,
    MetricsSink,
    Reconnected,
    WorkerPulse,
    report_if_taken,
)

log = logging.getLogger("chasquimq.engine")

# Finer than any scrape, and too rare to be felt.
_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a worker stands at one moment; the counts are of its whole life."""

    is_connected: bool
    """The connections that read and write are up."""
    is_full: bool
    """No slot is free, so nothing is read on purpose."""
    last_read_age_ms: int | None
    """How long ago the server last answered a read; None if it never did."""
    in_flight: int
    running: int
    leases_renewed: int
    leases_lost: int
    reconnects: int

    def pulse(self, consumer_id: str, now_ms: int) -> WorkerPulse:
        """The part of it that is reported as it is."""
        age_ms = self.last_read_age_ms
        last_read_ms = None if age_ms is None else now_ms - age_ms
        return WorkerPulse(consumer_id, self.in_flight, self.running, last_read_ms)


class Pulse:
    """Looks at one worker and reports what it sees, and what has changed since it last looked."""

    def __init__(
        self, sink: MetricsSink, look: Callable[[], Vitals], *, consumer_id: str, clock: Clock
    ) -> None:
        """Nothing is reported before `start`."""
        self._sink = sink
        self._look = look
        self._consumer_id = consumer_id
        self._clock = clock
        self._renewed = self._lost = self._reconnects = 0
        self._beating: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        """Show whether it beats."""
        return f"<Pulse {self._consumer_id} {'beating' if self._beating else 'still'}>"

    def start(self) -> None:
        """Begin to report."""
        self._beating = asyncio.get_running_loop().create_task(self._run(), name="pulse")

    def step(self) -> None:
        """Report once."""
        vitals = self._look()
        pulse = vitals.pulse(self._consumer_id, self._clock.now_ms())
        report_if_taken(self._sink, "worker_pulse", pulse)
        self._report_changes(vitals)

    async def end(self) -> None:
        """Stop, and say that nothing is in flight here any more. Harmless if it never began."""
        if self._beating is None:
            return
        self._beating.cancel()
        await asyncio.wait([self._beating])
        self._beating = None
        self._report_changes(self._look())
        report_if_taken(self._sink, "worker_pulse", WorkerPulse(self._consumer_id, 0, 0, None))

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                self.step()
                failures = 0
            except Exception:
                # A worker that works must not look like one that stands still.
                failures += 1
                if failures == 1:
                    log.exception("the worker's pulse was not reported; trying again")
            await asyncio.sleep(_EVERY_S)

    def _report_changes(self, vitals: Vitals) -> None:
        renewed, lost = vitals.leases_renewed - self._renewed, vitals.leases_lost - self._lost
        if renewed or lost:
            self._renewed, self._lost = vitals.leases_renewed, vitals.leases_lost
            report_if_taken(self._sink, "leases_renewed", LeasesRenewed(renewed, lost))
        count = vitals.reconnects - self._reconnects
        if count:
            self._reconnects = vitals.reconnects
            report_if_taken(self._sink, "reconnected", Reconnected(count))
