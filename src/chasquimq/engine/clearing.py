"""Removes many jobs of a queue at once, as steps: drain, clean, obliterate.

Never more than a page of jobs is held in memory, and no script works on more than that. Whoever is
killed half way leaves a smaller queue, and what was removed is whole: begin again.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from chasquimq.broker import delayed, dlq, upkeep
from chasquimq.broker.call import Reply, Steps, together
from chasquimq.broker.seek import KeyPages, Pace, Pages, newest_entry, read_row
from chasquimq.errors import QueueBusyError
from chasquimq.wire.keys import KEPT_GLOB, QueueKeys, finished_job, is_known, once_a_queue

T = TypeVar("T")

# What one script removes: some milliseconds, in which the server does nothing else.
_BATCH = 200


class Clearing:
    """The steps that remove many jobs of one queue."""

    def __init__(self, keys: QueueKeys) -> None:
        """Clear the queue of `keys`."""
        self._keys = keys

    def drain(self, *, delayed_too: bool, dry_run: bool) -> Steps[int]:
        """Remove what waits, and what is delayed; how many jobs that were.

        The delayed ones first: what is promoted meanwhile is then found in the stream.
        """
        count = 0
        if delayed_too:
            count += yield from self._drain_delayed(dry_run=dry_run)
        newest = yield from newest_entry(self._keys.stream)
        if newest is None:
            return count
        pages = Pages(self._keys.stream, last=newest.decode())
        while not pages.is_over:
            page = yield from pages.next()
            count += len((yield from self._discard_entries(page, dry_run=dry_run)))
        return count

    def _drain_delayed(self, *, dry_run: bool) -> Steps[int]:
        left: int = yield delayed.depth(self._keys)
        if dry_run:
            return left
        count = 0
        pace = Pace()
        while left > 0:
            members: list[bytes] = yield from pace.page(
                lambda most: delayed.first(self._keys, most), left
            )
            if not members:
                break
            pace.heed(len(members), sum(map(len, members)))
            left -= len(members)
            count += len((yield from self._discard_members(members, dry_run=False)))
        return count

    def clean(self, state: str, *, grace_ms: int, limit: int, dry_run: bool) -> Steps[list[str]]:
        """Remove up to `limit` jobs of one state that are older than `grace_ms`; their ids."""
        now_ms: int = yield upkeep.server_time_ms()
        before_ms = max(0, now_ms - grace_ms)
        if state == "waiting":
            return (yield from self._clean_waiting(before_ms, limit, dry_run=dry_run))
        if state == "delayed":
            return (yield from self._clean_delayed(before_ms, limit, dry_run=dry_run))
        if state == "failed":
            return (yield from self._clean_failed(before_ms, limit, dry_run=dry_run))
        done_before_ms = before_ms if grace_ms else None
        return (yield from self._clean_completed(done_before_ms, limit, dry_run=dry_run))

    def _clean_waiting(self, before_ms: int, limit: int, *, dry_run: bool) -> Steps[list[str]]:
        ids: list[str] = []
        pages = Pages(self._keys.stream, last=str(before_ms))
        while not pages.is_over and len(ids) < limit:
            page = yield from pages.next()
            while page and len(ids) < limit:
                part, page = page[: limit - len(ids)], page[limit - len(ids) :]
                ids += yield from self._discard_entries(part, dry_run=dry_run)
        return ids

    def _clean_delayed(self, before_ms: int, limit: int, *, dry_run: bool) -> Steps[list[str]]:
        """By the time they were created: what is delayed is as young as its due time is far."""
        ids: dict[str, None] = {}
        members = delayed.Members(self._keys)
        while not members.is_over and len(ids) < limit:
            old = [member for member in (yield from members.next()) if _is_old(member, before_ms)]
            part = old[: limit - len(ids)]
            ids |= dict.fromkeys((yield from self._discard_members(part, dry_run=dry_run)))
        return list(ids)

    def _clean_failed(self, before_ms: int, limit: int, *, dry_run: bool) -> Steps[list[str]]:
        ids: list[str] = []
        pages = Pages(self._keys.dlq, last=str(before_ms))
        while not pages.is_over and len(ids) < limit:
            page = (yield from pages.next())[: limit - len(ids)]
            gone: list[int] = [1] * len(page)
            if not dry_run:
                # One by one, to know which were ours if somebody else is cleaning too.
                gone = yield together([dlq.discard(self._keys, [row[0].decode()]) for row in page])
            ids += [_job_id(row) for row, is_gone in zip(page, gone, strict=True) if is_gone]
        return ids

    def _clean_completed(
        self, before_ms: int | None, limit: int, *, dry_run: bool
    ) -> Steps[list[str]]:
        ids: dict[str, None] = {}
        names = KeyPages(self._keys, KEPT_GLOB)
        while not names.is_over and len(ids) < limit:
            page: list[bytes] = yield from names.next()
            kept = [found[0] for name in page if (found := finished_job(self._keys, name))]
            left = list(dict.fromkeys(kept))
            while left and len(ids) < limit:
                part, left = left[: limit - len(ids)], left[limit - len(ids) :]
                forgotten: list[list[bool]] = yield together(
                    [
                        upkeep.forget(self._keys, few, done_before_ms=before_ms, dry_run=dry_run)
                        for few in _batches(part)
                    ]
                )
                ids |= dict.fromkeys(_chosen(part, chain.from_iterable(forgotten)))
        return list(ids)

    def obliterate(self, *, force: bool, dry_run: bool) -> Steps[int]:
        """Delete every key of the queue; how many that were. `QueueBusyError` with jobs in flight.

        Keys under its tag that no queue has are somebody else's, and stay.

        What a queue has once goes first, in one step; what it has once a job, spec or producer is
        looked for after that. Keys that running workers make anew meanwhile stay.
        """
        count: int = yield upkeep.wipe(self._keys, force=force, dry_run=dry_run)
        if count < 0:
            msg = (
                f"{-count} jobs of queue {self._keys.name!r} are in flight: stop its workers, or "
                "wait until they are done, or pass force=True to drop them"
            )
            raise QueueBusyError(msg)
        fixed = frozenset(once_a_queue(self._keys))
        names = KeyPages(self._keys, b":*")
        while not names.is_over:
            page: list[bytes] = yield from names.next()
            found = {name for name in page if is_known(self._keys, name)} - fixed
            if found and dry_run:
                count += len(found)
            elif found:
                count += yield upkeep.unlink(sorted(found))
        return count

    def _discard_entries(self, page: Sequence[Reply], *, dry_run: bool) -> Steps[list[str]]:
        """Delete those rows of a page that wait; the ids of their jobs."""
        if not page:
            return []
        ids = [_job_id(row) for row in page]
        entries = [(row[0], job_id) for row, job_id in zip(page, ids, strict=True)]
        gone: list[list[bool]] = yield together(
            [
                upkeep.discard_waiting(self._keys, part, dry_run=dry_run)
                for part in _batches(entries)
            ]
        )
        return _chosen(ids, chain.from_iterable(gone))

    def _discard_members(self, members: Sequence[bytes], *, dry_run: bool) -> Steps[list[str]]:
        if not members:
            return []
        jobs = [delayed.job_of(member) for member in members]
        ids = ["" if job is None else job[1].id for job in jobs]
        pairs = list(zip(members, ids, strict=True))
        gone: list[list[bool]] = yield together(
            [upkeep.discard_delayed(self._keys, part, dry_run=dry_run) for part in _batches(pairs)]
        )
        return _chosen(ids, chain.from_iterable(gone))


def _job_id(row: Reply) -> str:
    """The id of the job in a row; of what is no job, the id of the entry."""
    found = read_row(row)
    return row[0].decode() if found is None else found.envelope.id


def _is_old(member: bytes, before_ms: int) -> bool:
    job = delayed.job_of(member)
    return job is not None and job[1].created_at_ms <= before_ms


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[at : at + _BATCH] for at in range(0, len(items), _BATCH)]


def _chosen(ids: Sequence[str], flags: Iterable[bool]) -> list[str]:
    return [job_id for job_id, flag in zip(ids, flags, strict=True) if flag]
