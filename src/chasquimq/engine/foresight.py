"""How far beyond its free slots a reader reads, from how fast jobs finish. Pure.

About what the slots would finish in 50 ms, up to `batch`, or in 10 ms, up to eight times that. So a
worker with slow handlers hoards nothing that another could be running, and one with fast handlers
hardly waits for the server: it asks for half of these, and has the other half in hand meanwhile.
Handlers that were fast and turn slow leave more in hand than that; it is told when it has to go.
"""

AHEAD_S = 0.05
# What is gone in 10 ms is no hoard, and larger reads are fewer requests for each job.
_QUICK_S = 0.01
_MOST_BATCHES = 8

STALE_S = 1.0
"""Entries read ahead that found no slot for this long go back to the group."""


class Foresight:
    """What one reader may have in hand beyond what runs."""

    def __init__(self, batch: int, now_us: int) -> None:
        """Nothing is read ahead before it is known how fast jobs finish."""
        self._batch = batch
        self._mark = (0, now_us)
        # Since when more waits than is worth it; None while there is no more.
        self._crowded_us: int | None = None
        self.ahead = 0

    def __repr__(self) -> str:
        """Show how far."""
        return f"<Foresight {self.ahead} ahead>"

    def look(self, finished: int, now_us: int) -> None:
        """Note how many jobs have finished in all; ask often, it looks every 50 ms."""
        before, since = self._mark
        if now_us - since < AHEAD_S * 1_000_000:
            return
        rate = (finished - before) / (now_us - since) * 1_000_000
        self._mark = (finished, now_us)
        usual, quick = min(self._batch, int(rate * AHEAD_S)), int(rate * _QUICK_S)
        self.ahead = min(max(quick, usual), _MOST_BATCHES * self._batch)

    def portion(self, free: int) -> int:
        """How many to ask for, with so many free slots (fewer than none if runs wait); 0 to wait.

        Not all that there is room for at once: what is read next comes while this is run.
        """
        room, half = free + self.ahead, self.ahead // 2
        if room < max(1, half):
            return 0
        self._crowded_us = None
        return min(room, max(0, free) + max(self._batch, half))

    def has_lingered(self, free: int, now_us: int) -> bool:
        """Whether handlers got slower, and what was read for fast ones waited too long for a slot.

        Runs that end now and then do not change that: another worker could have begun the rest.
        """
        if free + self.ahead >= 0:
            self._crowded_us = None
        elif self._crowded_us is None:
            self._crowded_us = now_us
        return self._crowded_us is not None and now_us - self._crowded_us >= STALE_S * 1_000_000

    def forget(self) -> None:
        """All that waited went back: read for free slots only, until jobs finish."""
        self.ahead, self._crowded_us = 0, None
