"""`chasqui result`: what a job returned."""

import contextlib
import warnings

import click

from chasquimq.cli import options, values
from chasquimq.cli.options import Session
from chasquimq.cli.problems import NOT_DONE, Refusal
from chasquimq.cli.render import emit, pretty
from chasquimq.cli.run import opened, run
from chasquimq.cli.unknown import refusal
from chasquimq.engine.outcomes import JobResult, OutcomeStatus
from chasquimq.errors import JobFailedError, WaitForResultTimeoutError

_WHY_NOT = {
    OutcomeStatus.PENDING: "has not ended yet",
    OutcomeStatus.EXPIRED: "completed, but its value is not kept any more",
    OutcomeStatus.UNKNOWN: "is unknown: no such id, or its worker stores no results",
}


@click.command(
    "result",
    cls=options.Command,
    examples=["chasqui result emails 01JH...", "chasqui result emails 01JH... --wait 30s"],
)
@options.queue_argument
@click.argument("job_id")
@click.option(
    "--wait",
    type=values.wait_s,
    metavar="DURATION",
    help="Wait so long for the job to end: 30s, 5m; a bare number is seconds.",
)
@options.session
def command(queue: str, job_id: str, wait: float | None, session: Session) -> int:
    """Print what the handler of a job returned.

    Exit code 0 if the job completed; 1 if it failed, has not ended, or is not known. The worker
    must have been told to keep results (store_results).
    """
    result = run(_look(session, queue, job_id, wait))
    is_ok = result.status is OutcomeStatus.OK
    if session.as_json:
        emit(
            {
                "id": job_id,
                "status": result.status,
                "value": result.value,
                "reason": result.reason,
                "error": result.error,
            }
        )
        return 0 if is_ok else NOT_DONE
    if is_ok:
        click.echo(pretty(result.value))
        return 0
    if result.status is OutcomeStatus.FAILED:
        msg = f"job {job_id} failed ({result.reason}): {result.error or 'no error is recorded'}"
        raise Refusal(msg)
    msg = f"job {job_id} {_WHY_NOT[result.status]}"
    if result.status is OutcomeStatus.PENDING:
        msg += ": wait for it with --wait 30s" if wait is None else f", after {wait:g} s"
    raise refusal(session, queue, msg)


async def _look(session: Session, queue: str, job_id: str, wait: float | None) -> JobResult:
    async with opened(session, queue) as open_queue:
        if wait is not None:
            with warnings.catch_warnings():
                # That no value is kept shows in what is printed.
                warnings.simplefilter("ignore", RuntimeWarning)
                with contextlib.suppress(JobFailedError, WaitForResultTimeoutError):
                    value = await open_queue.wait_for_result(job_id, timeout=wait)
                    return JobResult(OutcomeStatus.OK, value)
        return await open_queue.get_outcome(job_id)
