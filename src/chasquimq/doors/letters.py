"""Dead letters, through both doors: look, send round again, discard."""

from collections.abc import Collection
from typing import Any

from chasquimq.arguments import checked_limit, letter_filter, required_job_id
from chasquimq.broker.call import Steps
from chasquimq.doors.frame import AsyncFrame, Frame, SyncFrame


class _Letters(Frame):
    def _to_peek(self, limit: int) -> Steps[list[dict[str, Any]]]:
        letters = yield from self._producing.letters.peek(limit)
        return [letter.to_dict() for letter in letters]

    def _to_replay(
        self, limit: int, ids: Collection[str] | None, name: str | None, reason: str | None
    ) -> Steps[int]:
        return self._producing.replay_dlq(checked_limit(limit), letter_filter(ids, name, reason))

    def _to_discard(
        self, limit: int, ids: Collection[str] | None, name: str | None, reason: str | None
    ) -> Steps[int]:
        wanted = letter_filter(ids, name, reason)
        return self._producing.letters.discard(checked_limit(limit), wanted)

    def _to_retry(self, job_id: str) -> Steps[bool]:
        return self._producing.retry_job(required_job_id(job_id))


class Letters(_Letters, AsyncFrame):
    """The part of `Queue` that sees to dead letters."""

    async def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """The oldest dead letters, as dicts, without touching them.

        `source_id` is the entry that the job was; `job_id` is its id, None if it cannot be read.
        """
        return await self._drive(self._to_peek(limit)) if checked_limit(limit) else []

    async def replay_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Send up to `limit` dead letters round again, with a full budget of attempts.

        All, or those that match: `ids` (of dead letters or of jobs), job `name`, dead-letter
        `reason`. Returns how many were moved; two replays at once never move the same one.
        """
        return await self._drive(self._to_replay(limit, ids, name, reason))

    async def discard_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Delete up to `limit` dead letters for good, chosen as in `replay_dlq`."""
        return await self._drive(self._to_discard(limit, ids, name, reason))

    async def retry_job(self, job_id: str) -> bool:
        """Send the dead letter of one job round again, as `replay_dlq` does.

        True if it had one; then it waits, at the tail, with a full budget of attempts. Dead letters
        are read newest first until it is found, all of them if there is none.
        """
        return await self._drive(self._to_retry(job_id))


class SyncLetters(_Letters, SyncFrame):
    """The part of `SyncQueue` that sees to dead letters."""

    def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """See `Queue.peek_dlq`."""
        return self._drive(self._to_peek(limit)) if checked_limit(limit) else []

    def replay_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> int:
        """See `Queue.replay_dlq`."""
        return self._drive(self._to_replay(limit, ids, name, reason))

    def discard_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        name: str | None = None,
        reason: str | None = None,
    ) -> int:
        """See `Queue.discard_dlq`."""
        return self._drive(self._to_discard(limit, ids, name, reason))

    def retry_job(self, job_id: str) -> bool:
        """See `Queue.retry_job`."""
        return self._drive(self._to_retry(job_id))
