"""How jobs ended, through both doors: values, outcomes, waiting for them."""

from collections.abc import Sequence
from typing import Any

from chasquimq.answers import outcome_of, value_of
from chasquimq.arguments import checked_wait, required_job_id, required_job_ids
from chasquimq.broker.call import Steps
from chasquimq.broker.inspect import locate
from chasquimq.doors.frame import AsyncFrame, Frame, SyncFrame
from chasquimq.engine.outcomes import JobResult, OutcomeStatus, from_kept
from chasquimq.wire.codec import unpack


class _Results(Frame):
    def _to_read(self, job_ids: Sequence[str]) -> Steps[list[Any]]:
        return self._values(required_job_ids(job_ids))

    def _values(self, job_ids: Sequence[str]) -> Steps[list[Any]]:
        kept = yield from self._producing.read_results(job_ids)
        return [None if each.value is None else unpack(each.value) for each in kept]

    def _to_judge(self, job_id: str) -> Steps[JobResult]:
        return self._outcome(required_job_id(job_id))

    def _outcome(self, job_id: str) -> Steps[JobResult]:
        [kept] = yield from self._producing.read_results([job_id])
        result = from_kept(kept)
        if result.status is not OutcomeStatus.UNKNOWN:
            return result
        return outcome_of((yield from locate(self._producing.keys, self._group, job_id)))


class Results(_Results, AsyncFrame):
    """The part of `Queue` that tells how jobs ended."""

    async def get_job_result(self, job_id: str) -> Any:  # noqa: ANN401 -- the handler's value
        """The stored value, or None.

        None means one of several things and cannot tell which; `get_outcome` can.
        """
        return (await self.get_job_result_bulk([job_id]))[0]

    async def get_job_result_bulk(self, job_ids: Sequence[str]) -> list[Any]:
        """The stored values of many jobs in one round trip, None where there is none."""
        return await self._drive(self._to_read(job_ids))

    async def get_outcome(self, job_id: str) -> JobResult:
        """How a job stands: pending, ok, failed, expired or unknown."""
        return await self._drive(self._to_judge(job_id))

    async def wait_for_result(
        self,
        job_id: str,
        *,
        timeout: float = 30.0,
        poll_interval: float = 0.1,
    ) -> Any:  # noqa: ANN401 -- the handler's value
        """What the handler of a job returned, once it has; see `Job.wait_for_result`."""
        checked_wait(timeout, poll_interval)
        required_job_id(job_id)
        result = await self._sender.wait_for_result(job_id, timeout_s=timeout, poll_s=poll_interval)
        return value_of(job_id, result)


class SyncResults(_Results, SyncFrame):
    """The part of `SyncQueue` that tells how jobs ended."""

    def get_job_result(self, job_id: str) -> Any:  # noqa: ANN401 -- the handler's value
        """See `Queue.get_job_result`."""
        return self.get_job_result_bulk([job_id])[0]

    def get_job_result_bulk(self, job_ids: Sequence[str]) -> list[Any]:
        """See `Queue.get_job_result_bulk`."""
        return self._drive(self._to_read(job_ids))

    def get_outcome(self, job_id: str) -> JobResult:
        """See `Queue.get_outcome`."""
        return self._drive(self._to_judge(job_id))

    def wait_for_result(
        self, job_id: str, *, timeout: float = 30.0, poll_interval: float = 0.1
    ) -> Any:  # noqa: ANN401 -- the handler's value
        """See `Queue.wait_for_result`; a `Job` made here cannot wait by itself."""
        checked_wait(timeout, poll_interval)
        required_job_id(job_id)
        result = self._sender.wait_for_result(job_id, timeout_s=timeout, poll_s=poll_interval)
        return value_of(job_id, result)
