"""Read-only lists for people: the jobs of a queue by state, page by page, and what they logged.

A page goes on at a place that means the same whatever is added and removed meanwhile: an entry id,
a member of the delayed set, a cursor of the server and what it has given of a batch. The engine
never uses this.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from chasquimq.broker import delayed, scripts
from chasquimq.broker.call import (
    Argument,
    Call,
    Reply,
    Steps,
    all_checked,
    call,
    command,
    unless_missing,
)
from chasquimq.broker.inspect import JobState, Located, dead
from chasquimq.broker.results import OUTCOME_FAILED
from chasquimq.broker.seek import KeyPages, Pace, Pages, read_row
from chasquimq.errors import DecodeError
from chasquimq.wire.codec import pack
from chasquimq.wire.entry import parse_dead_letter
from chasquimq.wire.envelope import Envelope
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import KEPT_GLOB, QueueKeys, finished_job

# How much of a delayed member tells it from all others: name and id come first in it.
_MARK_BYTES = 512
# How many times the server is asked for keys before a page that is not full is given out.
_MOST_SCANS = 100
# Enough that no two jobs of a batch look alike, and short: a place holds one for each job it skips.
_SEEN_BYTES = 6
_LEAST_SCANNED = 10
_PAGE = 1_000
_NO_LIMIT = 1 << 62
_NO_DATA = pack(None)


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs of one state, and the place where the next page begins; None if there is none."""

    found: list[Located]
    place: str | None


@dataclass(frozen=True, slots=True)
class JobLogs:
    """Lines that a job logged, and how many are kept in all."""

    lines: list[str]
    count: int


def check_place(state: JobState, place: str) -> str:
    """The same place, if it can be one; else `ValueError`."""
    try:
        if state is JobState.DELAYED:
            score, _, mark = place.partition("/")
            float(score)
            base64.b64decode(mark, altchars=b"-_", validate=True)
        elif state is JobState.COMPLETED:
            _scan_place(place)
        else:
            StreamId.parse(place)
    except (DecodeError, ValueError, binascii.Error):
        msg = f"{place[:64]!r} is no place among {state} jobs"
        raise ValueError(msg) from None
    return place


def page(
    keys: QueueKeys,
    group: str,
    state: JobState,
    place: str | None,
    limit: int,
    *,
    backwards: bool = False,
) -> Steps[Page]:
    """Up to `limit` jobs of a state beyond a place, oldest first, delayed ones by due time.

    A page may be short, even empty, although there is another. What is no job is left out.
    """
    match state:
        case JobState.WAITING:
            return _waiting(keys, place, limit, backwards=backwards)
        case JobState.ACTIVE:
            return _active(keys, group, place, limit, backwards=backwards)
        case JobState.DELAYED:
            return _delayed(keys, place, limit, backwards=backwards)
        case JobState.FAILED:
            return _failed(keys, place, limit, backwards=backwards)
        case _:
            return _completed(keys, place, limit)


def jobs(
    keys: QueueKeys, group: str, states: Sequence[JobState], start: int, end: int, *, asc: bool
) -> Steps[list[Located]]:
    """Jobs of several states, one state after the other, from position `start` to `end`; -1 = all.

    What stands before `start` is read and dropped.
    """
    found: list[Located] = []
    at = 0
    for state in states:
        place: str | None = None
        while end < 0 or at <= end:
            limit = _NO_LIMIT if end < 0 else min(_PAGE, end + 1 - at)
            got: Page = yield from page(keys, group, state, place, limit, backwards=not asc)
            found += got.found[max(0, start - at) :]
            at += len(got.found)
            place = got.place
            if place is None:
                break
    return found if end < 0 else found[: max(0, end + 1 - start)]


def count_completed(keys: QueueKeys) -> Steps[int]:
    """How many jobs are known to have completed, by walking through all keys of the server."""
    names = KeyPages(keys, KEPT_GLOB)
    count = 0
    while not names.is_over:
        count += len((yield from _completed_among(keys, (yield from names.next()))))
    return count


def progress(keys: QueueKeys, job_id: str) -> Call[int | None]:
    """How far a job says it is; None if it does not, or says no number."""
    return call("GET", keys.progress(job_id), read=_number)


def logs(keys: QueueKeys, job_id: str, start: int, end: int, *, asc: bool) -> Steps[JobLogs]:
    """Lines `start` to `end` of what a job logged; below 0 counts from the end, -1 is the last."""
    key = keys.log(job_id)
    count: int = yield call("XLEN", key, read=int)
    first = max(0, start + count if start < 0 else start)
    last = min(count - 1, end + count if end < 0 else end)
    if last < first:
        return JobLogs([], count)
    bounds = ("XRANGE", key, "-", "+") if asc else ("XREVRANGE", key, "+", "-")
    rows = yield call(*bounds, "COUNT", last + 1, read=list)
    lines = [dict(zip(row[1][::2], row[1][1::2], strict=False)) for row in rows[first:]]
    return JobLogs([line.get(b"line", b"").decode("utf-8", "replace") for line in lines], count)


def _waiting(keys: QueueKeys, place: str | None, limit: int, *, backwards: bool) -> Steps[Page]:
    found: list[Located] = []
    pace = Pace()
    while len(found) < limit:
        first, last = _beyond(place, backwards=backwards)
        bounds: dict[str, Argument] = {"backwards": int(backwards), "first": first, "last": last}
        looked_at, last_id, *rows = yield from pace.page(
            partial(_browse, scripts.BROWSE_WAITING.call, {"stream": keys.stream}, bounds),
            limit - len(found),
        )
        pace.heed(len(rows), sum(len(value) for row in rows for value in row[1]))
        found += _located(rows, JobState.WAITING)
        if looked_at < pace.asked:
            return Page(found, None)
        place = last_id.decode()
    return Page(found, place)


def _active(
    keys: QueueKeys, group: str, place: str | None, limit: int, *, backwards: bool
) -> Steps[Page]:
    limit = min(limit, _PAGE)
    held: list[Reply] = []
    after = place if not backwards else None
    while backwards or len(held) < limit:
        first, _ = _beyond(after, backwards=False)
        count = _PAGE if backwards else limit - len(held)
        rows = yield Call((command("XPENDING", keys.stream, group, first, "+", count),), _held_rows)
        held += rows
        if len(rows) < count:
            break
        after = rows[-1][0].decode()
    if backwards:
        # The server lists them in one direction only; they are few, as many as workers hold.
        before = StreamId.MAX if place is None else StreamId.parse(place)
        held = [row for row in reversed(held) if StreamId.parse(row[0]) < before]
    is_full = len(held) >= limit
    held = held[:limit]
    found = yield from _held_jobs(keys, held)
    return Page(found, held[-1][0].decode() if is_full and held else None)


def _held_jobs(keys: QueueKeys, held: Sequence[Reply]) -> Steps[list[Located]]:
    if not held:
        return []
    requests = [command("XRANGE", keys.stream, row[0], row[0]) for row in held]
    replies: list[Reply] = yield Call(requests, all_checked)
    found = []
    for row, reply in zip(held, replies, strict=True):
        job = read_row(reply[0]) if reply else None
        if job is not None:
            found.append(Located(JobState.ACTIVE, job.name, job.envelope, row[3]))
    return found


def _delayed(keys: QueueKeys, place: str | None, limit: int, *, backwards: bool) -> Steps[Page]:
    found: list[Located] = []
    pace = Pace()
    while len(found) < limit:
        score, _, mark = (place or "").partition("/")
        bounds: dict[str, Argument] = {
            "backwards": int(backwards),
            "score": score,
            "mark": base64.urlsafe_b64decode(mark),
        }
        flat = yield from pace.page(
            partial(_browse, scripts.BROWSE_DELAYED.call, {"delayed": keys.delayed}, bounds),
            limit - len(found),
        )
        members = list(zip(flat[::2], flat[1::2], strict=True))
        if backwards:
            members.reverse()
        pace.heed(len(members), sum(len(member) for member, _ in members))
        jobs_here = [delayed.job_of(member) for member, _ in members]
        found += [Located(JobState.DELAYED, *job) for job in jobs_here if job is not None]
        if len(members) < pace.asked:
            return Page(found, None)
        last, its_score = members[-1]
        mark = base64.urlsafe_b64encode(last[:_MARK_BYTES]).decode()
        place = f"{its_score.decode()}/{mark}"
    return Page(found, place)


def _failed(keys: QueueKeys, place: str | None, limit: int, *, backwards: bool) -> Steps[Page]:
    found: list[Located] = []
    pages = Pages(keys.dlq, *_beyond(place, backwards=backwards), backwards=backwards)
    while len(found) < limit:
        rows = yield from pages.next(limit - len(found))
        found += _located(rows, JobState.FAILED)
        if pages.is_over:
            return Page(found, None)
        place = rows[-1][0].decode()
    return Page(found, place)


def _completed(keys: QueueKeys, place: str | None, limit: int) -> Steps[Page]:
    """Of these only the ids are known. The server decides how many it finds at a time.

    A batch that does not fit is asked for again, half as large. What does not fit even so shares a
    bucket of the server's table; of that the page takes what it can, and its place names the jobs
    it took. Not how many: jobs that come and go meanwhile would make others be skipped.
    """
    cursor, seen = _scan_place(place or "0")
    found: dict[str, Located] = {}
    names = KeyPages(keys, KEPT_GLOB, count=min(_PAGE, max(_LEAST_SCANNED, limit)))
    for _ in range(_MOST_SCANS):
        names.cursor = cursor
        ids = yield from _completed_among(keys, (yield from names.next()))
        batch = [
            each for each in dict.fromkeys(ids) if each not in found and _mark(each) not in seen
        ]
        room = limit - len(found)
        if len(batch) > room and names.count > 1:
            names.count //= 2
            continue
        for job_id in batch[:room]:
            found[job_id] = Located(JobState.COMPLETED, "", Envelope(job_id, _NO_DATA, 0))
        if len(batch) > room:
            seen.update(map(_mark, batch[:room]))
            break
        if names.is_over:
            return Page(list(found.values()), None)
        cursor, seen = names.cursor, set()
        names.count = min(_PAGE, 2 * names.count)
        if len(found) == limit:
            break
    return Page(list(found.values()), _place_within(cursor, seen))


def _mark(job_id: str) -> bytes:
    return hashlib.blake2b(job_id.encode(), digest_size=_SEEN_BYTES).digest()


def _place_within(cursor: str, seen: set[bytes]) -> str:
    marks = base64.urlsafe_b64encode(b"".join(sorted(seen))).decode()
    return f"{cursor}/{marks}" if marks else cursor


def _scan_place(place: str) -> tuple[str, set[bytes]]:
    """The cursor of a scan, and the marks of those jobs of its batch that were given already."""
    cursor, _, marks = place.partition("/")
    raw = base64.b64decode(marks, altchars=b"-_", validate=True)
    return str(int(cursor)), {raw[at : at + _SEEN_BYTES] for at in range(0, len(raw), _SEEN_BYTES)}


def _completed_among(keys: QueueKeys, names: Sequence[bytes]) -> Steps[list[str]]:
    """The jobs that some keys say have completed, each named by one of its keys only."""
    ends = [end for name in names if (end := finished_job(keys, name))]
    if not ends:
        return []
    requests = [command("GET", keys.outcome(job_id)) for job_id, _ in ends]
    outcomes: list[Reply] = yield Call(requests, all_checked)
    completed = []
    for (job_id, is_outcome), outcome in zip(ends, outcomes, strict=True):
        # A result without an outcome is what a worker of the reference engine leaves.
        has_outcome = outcome is not None
        if is_outcome == has_outcome and not (outcome or b"").startswith(OUTCOME_FAILED):
            completed.append(job_id)
    return completed


def _browse(
    ask: Callable[..., Call[list[Reply]]],
    keys: Mapping[str, bytes],
    bounds: Mapping[str, Argument],
    count: int,
) -> Call[list[Reply]]:
    return ask(keys, {**bounds, "count": count}, read=list, repeatable=True)


def _located(rows: Sequence[Reply], state: JobState) -> list[Located]:
    found = []
    for row in rows:
        job = read_row(row)
        if job is not None and state is JobState.FAILED:
            found.append(dead(job, parse_dead_letter(row[0], row[1])))
        elif job is not None:
            found.append(Located(state, job.name, job.envelope))
    return found


def _beyond(place: str | None, *, backwards: bool) -> tuple[str, str]:
    """The bounds of what lies beyond an entry."""
    if place is None:
        return "-", "+"
    return ("-", f"({place}") if backwards else (f"({place}", "+")


def _held_rows(replies: list[Reply]) -> list[Reply]:
    # Without a group, no worker has ever started.
    rows: list[Reply] = unless_missing(replies[0]) or []
    return rows


def _number(reply: Reply) -> int | None:
    try:
        return None if reply is None else int(reply)
    except ValueError:
        return None
