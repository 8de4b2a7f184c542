"""The dead-letter stream: dead-letter a delivery, look, replay, discard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chasquimq.broker import scripts
from chasquimq.broker.call import Call, Reply, Steps, call
from chasquimq.broker.seek import Pace
from chasquimq.broker.stream import Telling
from chasquimq.wire.entry import DeadLetter, dead_letter_fields, parse_dead_letter
from chasquimq.wire.keys import QueueKeys

# What one script moves or one command deletes: the server does nothing else meanwhile.
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Burial:
    """A delivery on its way to the dead-letter stream."""

    entry_id: bytes
    job_id: str
    attempt: int
    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class Revival:
    """A dead letter on its way back: its envelope is already written anew, with attempt 0."""

    dlq_id: str
    job_id: str
    name: str
    envelope: bytes


def dead_letter(  # noqa: PLR0913 -- the script's signature
    keys: QueueKeys,
    group: str,
    consumer: str,
    burial: Burial,
    *,
    cap: int,
    outcome: tuple[int, bytes],
    telling: Telling,
) -> Call[bool]:
    """Move a delivery to the dead-letter stream; False if it was not ours any more.

    `outcome` is how long, in seconds, and as what it is kept for those who wait for the job; 0
    keeps none.
    """
    letter = burial.letter
    ttl_s, text = outcome
    return scripts.DEAD_LETTER.call(
        {
            "stream": keys.stream,
            "dlq": keys.dlq,
            "outcome": keys.outcome(burial.job_id),
            "result": keys.result(burial.job_id),
            "events": keys.events,
        },
        {
            "group": group,
            "consumer": consumer,
            "entry_id": burial.entry_id,
            "dlq_cap": cap,
            "outcome_ttl_s": ttl_s if burial.job_id else 0,
            "outcome_text": text,
            "ts_ms": telling.ts_ms,
            "events_cap": telling.cap,
            "job_id": burial.job_id,
            "name": letter.name,
            "attempt": burial.attempt,
            "reason": str(letter.reason),
        },
        read=bool,
        repeatable=True,
        more_arguments=dead_letter_fields(letter),
    )


def peek(
    keys: QueueKeys, *, limit: int, after: str = "-", until: str = "+"
) -> Call[list[DeadLetter]]:
    """Up to `limit` dead letters, oldest first, from `after` on (an id, or `(id` to exclude it)."""
    return call("XRANGE", keys.dlq, after, until, "COUNT", limit, read=_read_letters)


class LetterPages:
    """Dead letters between two ids, oldest first, a page at a time."""

    def __init__(self, keys: QueueKeys, after: str = "-", until: str = "+") -> None:
        """Stand before the first one."""
        self._keys = keys
        self._after = after
        self._until = until
        self._pace = Pace()
        self.is_over = False

    def next(self, most: int = _PAGE) -> Steps[list[DeadLetter]]:
        """Some of them, `most` and a page's at the most; none when it is over."""
        if self.is_over:
            return []
        page: list[DeadLetter] = yield from self._pace.page(
            lambda count: peek(self._keys, limit=count, after=self._after, until=self._until),
            min(most, _PAGE),
        )
        self.is_over = len(page) < self._pace.asked
        if page:
            self._after = f"({page[-1].dlq_id}"
            self._pace.heed(len(page), sum(map(_size, page)))
        return page


def chosen(
    keys: QueueKeys,
    wanted: Callable[[DeadLetter], bool] | None,
    *,
    limit: int,
    after: str = "-",
) -> Steps[list[DeadLetter]]:
    """Up to `limit` dead letters, oldest first, from `after` on (`(id` excludes it); None: any."""
    found: list[DeadLetter] = []
    pages = LetterPages(keys, after)
    while len(found) < limit and not pages.is_over:
        # Of any no more than are missing: they may be large, and nobody needs the others.
        page = yield from pages.next(limit - len(found) if wanted is None else _PAGE)
        found += page if wanted is None else filter(wanted, page)
    return found[:limit]


def replay(keys: QueueKeys, revivals: Sequence[Revival], *, telling: Telling) -> Call[int]:
    """Move dead letters back to the stream; counts those that were still there."""
    more: list[bytes] = []
    for each in revivals:
        more += (each.dlq_id.encode(), each.envelope, each.name.encode(), each.job_id.encode())
    return scripts.REPLAY.call(
        {"dlq": keys.dlq, "stream": keys.stream, "events": keys.events},
        {"ts_ms": telling.ts_ms, "events_cap": telling.cap},
        read=int,
        repeatable=False,
        more_keys=[keys.outcome(each.job_id) for each in revivals],
        more_arguments=more,
    )


def discard(keys: QueueKeys, dlq_ids: Sequence[str]) -> Call[int]:
    """Delete dead letters for good; counts those that were still there."""
    return call("XDEL", keys.dlq, *dlq_ids, read=int, repeatable=False)


def _read_letters(reply: Reply) -> list[DeadLetter]:
    return [parse_dead_letter(entry_id, fields) for entry_id, fields in reply]


def _size(letter: DeadLetter) -> int:
    return len(letter.payload) + len(letter.error or "") + len(letter.traceback or "")
