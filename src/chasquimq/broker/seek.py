"""Walks through long streams and sets in pages of bounded size, and finds a job in them.

Nothing in the server leads from a job's id to its entry in a stream, so who looks for one reads
entries until it is there. A page is a few megabytes however large the jobs are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from chasquimq.broker.call import Call, Reply, Steps, call
from chasquimq.errors import DecodeError, ReplyTooLargeError
from chasquimq.wire.entry import parse_job_fields
from chasquimq.wire.envelope import Envelope, decode
from chasquimq.wire.ids import ulid_time_ms
from chasquimq.wire.keys import QueueKeys, glob_of

T = TypeVar("T")

# The first page is small, because nobody knows yet how large the jobs are.
_FIRST_COUNT = 100
_MOST_COUNT = 1_000
_GROWTH = 5
_PAGE_BYTES = 4 << 20
# How far a producer's clock may be off before a job is searched for from the start of the stream.
_CLOCK_SKEW_MS = 5_000


def scanned(cursor: bytes | str) -> Callable[[Reply], list[Reply]]:
    """Reads what a step of a scan from `cursor` brings: where to go on, and what was found.

    A cursor that stands still is no answer: whoever follows it would never come to an end.
    """
    before = cursor.encode() if isinstance(cursor, str) else cursor

    def read(reply: Reply) -> list[Reply]:
        after, found = reply
        if after == before != b"0":
            msg = f"the cursor of a scan stands still at {before.decode()}"
            raise ValueError(msg)
        return [after, found]

    return read


class Pace:
    """How many records to ask for next, so that a page has about the same number of bytes."""

    __slots__ = ("_most", "asked", "count")

    def __init__(self, count: int = _FIRST_COUNT, most: int = _MOST_COUNT) -> None:
        """Begin small, or with as many as somebody who knows better says; never beyond `most`."""
        self._most = most
        self.count = self.asked = min(count, most)

    def page(self, ask: Callable[[int], Call[T]], most: int | None = None) -> Steps[T]:
        """What the call for that many, but at most `most`, brings; `asked` is how many those were.

        Where no reply can hold them half as many are asked for, down to one. For calls that only
        look: one that takes something has taken it, whether the reply came or not.
        """
        while True:
            self.asked = self.count if most is None else min(self.count, most)
            try:
                found: T = yield ask(self.asked)
            except ReplyTooLargeError:
                if self.asked <= 1:
                    raise
                self.count = self.asked // 2
            else:
                return found

    def heed(self, records: int, size: int) -> None:
        """Learn from a page: how many records it had, and how many bytes."""
        if records:
            fitting = _PAGE_BYTES * records // max(1, size)
            self.count = max(1, min(fitting, self._most, _GROWTH * self.count))


class Pages:
    """A stream from one id to another, a page at a time; ids are written as `XRANGE` takes them."""

    def __init__(
        self,
        key: bytes,
        first: str = "-",
        last: str = "+",
        *,
        backwards: bool = False,
        pace: Pace | None = None,
    ) -> None:
        """Stand before the first entry, or behind the last one to walk backwards."""
        self._key = key
        self._first = first
        self._last = last
        self._backwards = backwards
        self._pace = pace or Pace()
        self.is_over = False

    def next(self, most: int | None = None) -> Steps[list[Reply]]:
        """Rows of entry id and fields, at most `most`; none when it is over."""
        if self.is_over:
            return []
        bounds = ("XREVRANGE", self._key, self._last, self._first)
        if not self._backwards:
            bounds = ("XRANGE", self._key, self._first, self._last)
        page: list[Reply] = yield from self._pace.page(
            lambda count: call(*bounds, "COUNT", count, read=list), most
        )
        self.is_over = len(page) < self._pace.asked
        if page:
            beyond = f"({page[-1][0].decode()}"
            if self._backwards:
                self._last = beyond
            else:
                self._first = beyond
            self._pace.heed(len(page), sum(len(value) for row in page for value in row[1]))
        return page


class KeyPages:
    """Those keys of a queue that match a pattern after its tag, a page at a time.

    The server walks through all its keys for this, those of others too: for people, not for loops.
    A key that is there all the while is seen at least once, and may be seen twice.
    """

    def __init__(
        self, keys: QueueKeys, rest: bytes, cursor: str = "0", *, count: int = _MOST_COUNT
    ) -> None:
        """Begin, or go on at the `cursor` of an earlier walk; look at about `count` at a time."""
        self.count = count
        self._keys = keys
        self._pattern = glob_of(keys, rest)
        self._is_fresh = True
        self.cursor = cursor
        self.is_over = False

    def next(self) -> Steps[list[bytes]]:
        """Some keys, perhaps none although it is not over."""
        if self._is_fresh:
            # `SCAN` names no key, so any node of a cluster answers it: this finds the right one.
            yield call("EXISTS", self._keys.stream, read=bool)
            self._is_fresh = False
        cursor, found = yield call(
            "SCAN",
            self.cursor,
            "MATCH",
            self._pattern,
            "COUNT",
            self.count,
            read=scanned(self.cursor),
        )
        self.cursor = cursor.decode()
        self.is_over = self.cursor == "0"
        names: list[bytes] = found
        return names


@dataclass(frozen=True, slots=True)
class Found:
    """An entry of a stream that holds a job."""

    entry_id: bytes
    fields: list[bytes]
    name: str
    envelope: Envelope


def find_entry(keys: QueueKeys, job_id: str, *, after: bytes | None = None) -> Steps[Found | None]:
    """The entry of a job in the main stream, waiting or in flight.

    Reads from about the time that an id of ours was made to the end, then from the start; the whole
    stream at worst. With `after`, only what stands behind that entry.
    """
    ranges = [("-" if after is None else f"({after.decode()}", "+")]
    born_ms = ulid_time_ms(job_id)
    if after is None and born_ms is not None and born_ms > _CLOCK_SKEW_MS:
        cut_ms = born_ms - _CLOCK_SKEW_MS
        ranges = [(str(cut_ms), "+"), ("-", str(cut_ms - 1))]
    for first, last in ranges:
        pages = Pages(keys.stream, first, last)
        while not pages.is_over:
            for found in hits((yield from pages.next()), job_id):
                return found
    return None


def find_letter(keys: QueueKeys, job_id: str) -> Steps[Found | None]:
    """The newest dead letter of a job."""
    pages = Pages(keys.dlq, backwards=True)
    while not pages.is_over:
        for found in hits((yield from pages.next()), job_id):
            return found
    return None


def hits(page: list[Reply], job_id: str) -> Iterator[Found]:
    """Those rows of a page that hold this job."""
    needle = job_id.encode()
    for row in page:
        data, _ = parse_job_fields(row[1])
        # Cheap, and rules out nearly every entry before it is decoded.
        if data is not None and needle in data:
            found = read_row(row)
            if found is not None and found.envelope.id == job_id:
                yield found


def read_row(row: Reply) -> Found | None:
    """The job in a row of a page, None if it is not one."""
    entry_id, fields = row
    data, name = parse_job_fields(fields)
    try:
        return None if data is None else Found(entry_id, fields, name, decode(data))
    except DecodeError:
        return None


def newest_entry(stream: bytes) -> Steps[bytes | None]:
    """The id of the last entry of a stream, None if it has none."""
    page: list[Reply] = yield call("XREVRANGE", stream, "+", "-", "COUNT", 1, read=list)
    return page[0][0] if page else None
