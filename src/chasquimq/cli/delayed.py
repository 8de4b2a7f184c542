"""`chasqui delayed`: jobs that wait for their time."""

from collections.abc import Awaitable, Callable
from datetime import datetime

import click

from chasquimq.broker.survey import Due, data_in, delayed_jobs
from chasquimq.cli import options, values
from chasquimq.cli.consent import consent
from chasquimq.cli.job import answer_each
from chasquimq.cli.options import Session
from chasquimq.cli.render import counted, emit, instant, short, show, table
from chasquimq.cli.run import opened, reading, run
from chasquimq.cli.unknown import remark_if_unknown
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.queue import Queue
from chasquimq.wire.keys import QueueKeys

ids_argument = click.argument("job_ids", nargs=-1, required=True, metavar="JOB_ID...")


@click.group("delayed", cls=options.Group, examples=["chasqui delayed ls emails"])
def command() -> None:
    """See, cancel, promote or move jobs that wait for their time."""


@command.command("ls", examples=["chasqui delayed ls emails --limit 50"])
@options.queue_argument
@options.limit_option(20, "Show so many at most.")
@options.session
def ls(queue: str, limit: int, session: Session) -> None:
    """List delayed jobs and retries, the one that is due first on top."""
    keys = QueueKeys(queue)

    async def look() -> list[Due]:
        async with reading(session, keys.tag) as reader:
            return await reader.ask(delayed_jobs(keys, limit=limit))

    found = run(look())
    if not found:
        remark_if_unknown(session, queue)
    if session.as_json:
        for due in found:
            emit(_shape(due))
        return
    now_ms = SYSTEM_CLOCK.now_ms()
    rows = [
        (job["id"] or "(unreadable)", job["name"], instant(due.due_ms, now_ms), job["attempts"],
         short(job["data"]))
        for due, job in ((due, _shape(due)) for due in found)
    ]  # fmt: skip
    columns = [f"delayed: {queue}", "name", "due", "attempts", "data"]
    show(table(columns, rows or [["(none)"]], right=["attempts"]))


@command.command("cancel", examples=["chasqui delayed cancel emails 01JH..."])
@options.queue_argument
@ids_argument
@options.yes_option
@options.session
def cancel(queue: str, job_ids: tuple[str, ...], session: Session, *, yes: bool) -> int:
    """Take delayed jobs out of the queue: they will not run."""
    consent(f"cancel {counted(len(job_ids), 'job')} of {queue}", yes=yes)
    return _each(session, queue, job_ids, "cancelled", Queue.cancel_delayed)


@command.command("promote", examples=["chasqui delayed promote emails 01JH..."])
@options.queue_argument
@ids_argument
@options.session
def promote(queue: str, job_ids: tuple[str, ...], session: Session) -> int:
    """Let delayed jobs run now."""
    return _each(session, queue, job_ids, "promoted", Queue.promote_job)


@command.command(
    "reschedule",
    examples=[
        "chasqui delayed reschedule emails 01JH... --delay 10m",
    ],
)
@options.queue_argument
@ids_argument
@click.option(
    "--delay", type=values.duration, metavar="DURATION", help="So much from now, e.g. 30s, 5m, 2h."
)
@click.option(
    "--at",
    type=values.instant,
    metavar="INSTANT",
    help="Then, at most 30 days from now; written like 2030-01-31T08:00:00Z.",
)
@options.session
def reschedule(
    queue: str,
    job_ids: tuple[str, ...],
    *,
    delay: int | None,
    at: datetime | None,
    session: Session,
) -> int:
    """Give delayed jobs another time."""
    if (delay is None) == (at is None):
        msg = "say when, in one way: --delay or --at"
        raise click.UsageError(msg)

    async def move(queue: Queue, job_id: str) -> bool:
        return await queue.reschedule(job_id, delay_ms=delay if at is None else at)

    return _each(session, queue, job_ids, "rescheduled", move)


def _each(
    session: Session,
    queue: str,
    job_ids: tuple[str, ...],
    done: str,
    act: Callable[[Queue, str], Awaitable[bool]],
) -> int:
    async def carry_out() -> dict[str, bool]:
        async with opened(session, queue) as open_queue:
            return {job_id: await act(open_queue, job_id) for job_id in job_ids}

    found = run(carry_out())
    if not any(found.values()):
        remark_if_unknown(session, queue)
    return answer_each(session, found, done, "is not delayed: it runs, ended, or never was")


def _shape(due: Due) -> dict[str, object]:
    job = due.envelope
    return {
        "id": job.id if job else None,
        "name": due.name,
        "due_ms": due.due_ms,
        "attempts": job.attempt if job else None,
        "created_at_ms": job.created_at_ms if job else None,
        "data": data_in(job),
    }
