"""What a producer does with dead letters, as steps: look, find, replay, discard."""

from collections.abc import Callable

from chasquimq.broker import dlq
from chasquimq.broker.call import Steps
from chasquimq.broker.dlq import Revival
from chasquimq.broker.seek import find_letter
from chasquimq.broker.stream import Telling
from chasquimq.errors import DecodeError
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.envelope import decode, with_attempt
from chasquimq.wire.keys import QueueKeys

_PAGE = 500
# How far a dead letter is looked for: beyond that the wait goes on until its time is over.
_MOST_PAGES = 20
# Our workers write a dead letter and its event at the same time, others one after the other.
_LETTER_BEFORE_EVENT_MS = 1_000


class Letters:
    """The dead letters of one queue."""

    def __init__(self, keys: QueueKeys) -> None:
        """Look at the queue of `keys`."""
        self._keys = keys

    def peek(self, limit: int) -> Steps[list[DeadLetter]]:
        """The oldest dead letters."""
        letters: list[DeadLetter] = yield dlq.peek(self._keys, limit=limit)
        return letters

    def replay(
        self, limit: int, wanted: Callable[[DeadLetter], bool], telling: Telling
    ) -> Steps[int]:
        """Send up to `limit` wanted dead letters round again, oldest first.

        Letters that hold no job are passed over and never block those behind them.
        """
        moved = 0
        chosen: list[DeadLetter] = yield from self._choose_letters(
            limit, lambda letter: wanted(letter) and _revival(letter) is not None
        )
        revivals = [revival for letter in chosen if (revival := _revival(letter))]
        for at in range(0, len(revivals), _PAGE):
            page = revivals[at : at + _PAGE]
            count: int = yield dlq.replay(self._keys, page, telling=telling)
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
        removed = 0
        chosen: list[DeadLetter] = yield from self._choose_letters(limit, wanted)
        for at in range(0, len(chosen), _PAGE):
            ids = [letter.dlq_id for letter in chosen[at : at + _PAGE]]
            count: int = yield dlq.discard(self._keys, ids)
            removed += count
        return removed

    def find(self, job_id: str, since_ms: int) -> Steps[DeadLetter | None]:
        """The dead letter of a job that was dead-lettered no earlier than `since_ms`, about."""
        after = str(max(0, since_ms - _LETTER_BEFORE_EVENT_MS))
        for _ in range(_MOST_PAGES):
            page: list[DeadLetter] = yield dlq.peek(self._keys, limit=_PAGE, after=after)
            for letter in page:
                if _holds(letter, job_id):
                    return letter
            if len(page) < _PAGE:
                break
            after = f"({page[-1].dlq_id}"
        return None

    def _choose_letters(
        self, limit: int, wanted: Callable[[DeadLetter], bool]
    ) -> Steps[list[DeadLetter]]:
        chosen: list[DeadLetter] = []
        after = "-"
        while len(chosen) < limit:
            page: list[DeadLetter] = yield dlq.peek(self._keys, limit=_PAGE, after=after)
            chosen += [letter for letter in page if wanted(letter)]
            if len(page) < _PAGE:
                break
            after = f"({page[-1].dlq_id}"
        return chosen[:limit]


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
