"""What a producer does with dead letters, as steps: look, find, replay, discard."""

from collections.abc import Callable

from chasquimq.broker import dlq
from chasquimq.broker.call import Steps
from chasquimq.broker.dlq import LetterPages, Revival
from chasquimq.broker.seek import find_letter, newest_entry
from chasquimq.broker.stream import Telling
from chasquimq.engine.portions import CHUNK, portions
from chasquimq.errors import DecodeError
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.envelope import decode, with_attempt
from chasquimq.wire.keys import QueueKeys

# How far a dead letter is looked for: beyond that the wait goes on until its time is over.
_MOST_LOOKED_AT = 10_000
# Our workers write a dead letter and its event at the same time, others one after the other.
_LETTER_BEFORE_EVENT_MS = 1_000


class Letters:
    """The dead letters of one queue."""

    def __init__(self, keys: QueueKeys) -> None:
        """Look at the queue of `keys`."""
        self._keys = keys

    def peek(self, limit: int) -> Steps[list[DeadLetter]]:
        """The oldest dead letters."""
        return (yield from dlq.chosen(self._keys, None, limit=limit))

    def replay(
        self, limit: int, wanted: Callable[[DeadLetter], bool], telling: Telling
    ) -> Steps[int]:
        """Send up to `limit` wanted dead letters round again, oldest first.

        Letters that hold no job are passed over and never block those behind them.
        """
        newest = yield from newest_entry(self._keys.dlq)
        if newest is None:
            return 0
        moved = 0
        # What was replayed and died again meanwhile stands behind the newest, and is left there.
        pages = LetterPages(self._keys, until=newest.decode())
        while moved < limit and not pages.is_over:
            page = filter(wanted, (yield from pages.next()))
            revivals = [each for letter in page if (each := _revival(letter))][: limit - moved]
            sizes = [len(each.envelope) for each in revivals]
            for part in portions(range(len(revivals)), CHUNK, sizes):
                some = [revivals[at] for at in part]
                count: int = yield dlq.replay(self._keys, some, telling=telling)
                moved += count
        return moved

    def retry(self, job_id: str, telling: Telling) -> Steps[bool]:
        """Send the newest dead letter of a job round again; False if it has none."""
        found = yield from find_letter(self._keys, job_id)
        if found is None:
            return False
        revival = Revival(
            found.entry_id.decode(), job_id, found.name, with_attempt(found.envelope, 0)
        )
        count: int = yield dlq.replay(self._keys, [revival], telling=telling)
        return count == 1

    def discard(self, limit: int, wanted: Callable[[DeadLetter], bool]) -> Steps[int]:
        """Delete up to `limit` wanted dead letters, oldest first."""
        newest = yield from newest_entry(self._keys.dlq)
        if newest is None:
            return 0
        removed = 0
        # What comes meanwhile was not there when it was said that these can go.
        pages = LetterPages(self._keys, until=newest.decode())
        while removed < limit and not pages.is_over:
            page = yield from pages.next()
            ids = [each.dlq_id for each in page if wanted(each)][: limit - removed]
            if ids:
                count: int = yield dlq.discard(self._keys, ids)
                removed += count
        return removed

    def find(self, job_id: str, since_ms: int) -> Steps[DeadLetter | None]:
        """The dead letter of a job that was dead-lettered no earlier than `since_ms`, about."""
        pages = LetterPages(self._keys, str(max(0, since_ms - _LETTER_BEFORE_EVENT_MS)))
        looked_at = 0
        while looked_at < _MOST_LOOKED_AT and not pages.is_over:
            page = yield from pages.next()
            looked_at += len(page)
            for letter in page:
                if _holds(letter, job_id):
                    return letter
        return None


def _holds(letter: DeadLetter, job_id: str) -> bool:
    try:
        return decode(letter.payload).id == job_id
    except DecodeError:
        return False


def _revival(letter: DeadLetter) -> Revival | None:
    try:
        envelope = decode(letter.payload)
    except DecodeError:
        return None
    return Revival(letter.dlq_id, envelope.id, letter.name, with_attempt(envelope, 0))
