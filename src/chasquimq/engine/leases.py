"""Keeps the leases of deliveries that are in flight, from a thread of its own.

A thread, because a handler that blocks the event loop must not lose its job to another worker.
Renewal is owner-checked (`renew.lua`): a delivery that another worker has taken over is never
stolen back. Only deliveries older than a third of the lease are renewed, so fast jobs cost nothing
but an entry in a dict.
"""

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from chasquimq.broker import stream
from chasquimq.broker.stream import Delivery
from chasquimq.clock import Clock
from chasquimq.errors import ChasquiError

if TYPE_CHECKING:
    from chasquimq.broker.blocking import BlockingConnection
    from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.engine")

# What could not be settled, remembered at most.
_MOST_GIVEN_UP = 100_000
_OURS, _LOST = 1, 0


class Leases:
    """The entries this consumer holds, each with the instant its lease was last fresh."""

    def __init__(
        self,
        connection: "BlockingConnection",
        keys: "QueueKeys",
        *,
        group: str,
        consumer: str,
        lease_ms: int,
        clock: Clock,
    ) -> None:
        """The thread begins with `start`."""
        self._connection = connection
        self._keys = keys
        self._group = group
        self._consumer = consumer
        self.interval_us = lease_ms * 1_000 // 3
        """Deliveries that were not renewed for this long are."""
        # A reply may have been under way for an interval before what it held was taken.
        self._sure_us = lease_ms * 1_000 - self.interval_us
        self._clock = clock
        # Shared between the event loop and the thread; single operations on a dict are atomic. A
        # cell holds the instant of the last renewal and whether the lease is ours. The thread
        # changes cells and never inserts, so that an entry which is dropped while it is being
        # renewed stays dropped.
        self._held: dict[bytes, list[int]] = {}
        # Of the event loop alone.
        self._given_up: set[bytes] = set()
        self._settled: set[bytes] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.renewals = 0
        self.lost = 0

    def __repr__(self) -> str:
        """Show how many are held."""
        return f"<Leases {self._consumer}, {len(self._held)} held>"

    def __contains__(self, entry_id: bytes) -> bool:
        """Whether this consumer has the entry in hand."""
        return entry_id in self._held

    def __len__(self) -> int:
        """How many deliveries are in flight."""
        return len(self._held)

    def take(self, entry_id: bytes, at_us: int | None = None) -> None:
        """A delivery is ours, or was then; one that is in hand already is ours (again)."""
        self._given_up.discard(entry_id)
        self._held[entry_id] = [self._clock.monotonic_us() if at_us is None else at_us, _OURS]

    def take_all(self, deliveries: Sequence[Delivery], at_us: int) -> list[Delivery]:
        """What a read brought is ours; return those of it that are to begin.

        Not those in hand: our own lease ran out, or came back to us from a worker that died, while
        the job still runs here, and it is not run beside itself. Nor those that ended here since
        the read was sent. After a time without the server a read may be given what our lease has
        run out on, right before the server hears how it ended; and its reply may be looked at after
        that answer.
        """
        held, settled, given_up = self._held, self._settled, self._given_up
        fresh = []
        for delivery in deliveries:
            entry_id = delivery.entry_id
            if settled and entry_id in settled:
                continue
            if entry_id not in held:
                fresh.append(delivery)
            held[entry_id] = [at_us, _OURS]
            if given_up:
                given_up.discard(entry_id)
        return fresh

    def claim_on(self, entry_id: bytes) -> object:
        """What stands for the delivery while it is in hand: another, once it was taken again."""
        return self._held.get(entry_id)

    def is_sure(self, entry_id: bytes, now_us: int) -> bool:
        """Whether nobody else can have the entry now, by our own clock and what we were told."""
        cell = self._held.get(entry_id)
        return cell is not None and cell[1] == _OURS and now_us - cell[0] < self._sure_us

    def drop(self, entry_ids: Iterable[bytes]) -> None:
        """Deliveries were handed back, or settled by another: let their leases run out."""
        pop = self._held.pop
        for entry_id in entry_ids:
            pop(entry_id, None)

    def settle(self, entry_ids: Collection[bytes]) -> None:
        """Deliveries were settled by us, and their entries are gone."""
        self.drop(entry_ids)
        self._settled.update(entry_ids)

    def forget_settled(self) -> None:
        """A read is about to be sent: what is gone before cannot be in its reply."""
        self._settled.clear()

    def give_up(self, entry_id: bytes) -> None:
        """A delivery whose run is over could not be settled: it comes back when its lease is out.

        Until then it is pending under our name and not in hand, as what a lost reply held is; but
        it has had its run.
        """
        self.drop((entry_id,))
        if len(self._given_up) >= _MOST_GIVEN_UP:
            self._given_up.pop()  # a run that is not counted, at worst
        self._given_up.add(entry_id)

    def forget_given_up(self, *, but: Collection[bytes]) -> None:
        """Forget what was given up and is no longer ours by the server's book."""
        self._given_up.intersection_update(but)

    def had_its_run(self, entry_id: bytes) -> bool:
        """Whether it was given up; asked about what the server says is ours."""
        return entry_id in self._given_up

    @property
    def reconnects(self) -> int:
        """How often the thread's connection came back after a break."""
        return self._connection.reconnects

    def held(self) -> set[bytes]:
        """The entries in hand."""
        return set(self._held)

    def start(self) -> None:
        """Begin to renew."""
        self._thread = threading.Thread(
            target=self._run, name=f"chasquimq-leases-{self._consumer}", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Stop renewing; returns when the thread is gone."""
        self._stop.set()
        self._connection.close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def step(self) -> int:
        """Renew every lease that is older than a third of its time; returns how many were tried."""
        now = self._clock.monotonic_us()
        old = [(each, cell) for each, cell in list(self._held.items()) if self._is_old(cell, now)]
        for at in range(0, len(old), stream.MOST_RENEWED):
            chunk = old[at : at + stream.MOST_RENEWED]
            entry_ids = [entry_id for entry_id, _ in chunk]
            call = stream.renew(self._keys, self._group, self._consumer, entry_ids)
            gone = self._connection.run(call)
            lost = set(gone)
            for entry_id, cell in chunk:
                if entry_id not in lost:
                    cell[0] = now
                elif entry_id in self._held:
                    # It stays in hand: its handler runs, and if that other worker dies and the
                    # entry comes back to this one, it must not be started beside itself.
                    cell[1] = _LOST
                    self.lost += 1
                    log.warning("the lease of entry %s was lost to another worker",
                                entry_id.decode(), extra={"queue": self._keys.name})  # fmt: skip
            self.renewals += len(chunk) - len(lost)
        return len(old)

    def _is_old(self, cell: list[int], now: int) -> bool:
        return cell[1] == _OURS and now - cell[0] >= self.interval_us

    def _run(self) -> None:
        # Looking twice per interval keeps every lease younger than half of its time.
        pause_s = self.interval_us / 2_000_000
        while not self._stop.wait(pause_s):
            try:
                self.step()
            except ChasquiError as error:
                if not self._stop.is_set():
                    log.warning("leases could not be renewed: %s", error,
                                extra={"queue": self._keys.name})  # fmt: skip
            except BaseException:
                # Nobody would see the thread end, and every job that takes longer than its lease
                # would be run once more, by another worker, while it runs here.
                log.exception("leases could not be renewed; trying again",
                              extra={"queue": self._keys.name})  # fmt: skip
