"""`chasqui jobs`: the jobs of a queue that are in one state, a page at a time."""

import click

from chasquimq.cli import options
from chasquimq.cli.options import Session
from chasquimq.cli.render import away, emit, short, show, table
from chasquimq.cli.run import opened, run
from chasquimq.cli.unknown import remark_if_unknown
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.job import Job
from chasquimq.queue import Queue

STATES = ("waiting", "active", "delayed", "completed", "failed")


@click.command(
    "jobs",
    cls=options.Command,
    examples=["chasqui jobs emails", "chasqui jobs emails --state failed --limit 100"],
)
@options.queue_argument
@click.option(
    "--state", type=click.Choice(STATES), default="waiting", show_default=True, help="Which jobs."
)
@options.limit_option(20, "Show so many at most.")
@click.option("--cursor", metavar="CURSOR", help="Go on where an earlier page ended.")
@options.group_option
@options.session
def command(
    queue: str, *, state: str, limit: int, cursor: str | None, group: str, session: Session
) -> None:
    """List the jobs that are waiting, active, delayed, completed or failed.

    Of a completed job only the id is known: `chasqui result` has what it returned. Where there are
    more, the last line says how to see them. With --json each job is a line, and a last line
    {"next_cursor": ...} follows if there are more.
    """

    async def look() -> tuple[list[Job], str | None]:
        found: list[Job] = []
        place = cursor
        async with opened(session, queue, group) as open_queue:
            while True:
                # A page may be short, even empty, although there are more.
                left = limit - len(found)
                page = await open_queue.get_jobs_page(state, cursor=place, limit=left)
                found += page.jobs
                place = page.next_cursor
                if place is None:
                    return found, None
                if len(found) >= limit:
                    has_more = await _has_more(open_queue, state, place)
                    return found, place if has_more else None

    jobs, next_cursor = run(look())
    if not jobs:
        remark_if_unknown(session, queue)
    if session.as_json:
        for job in jobs:
            emit(shape(job, state))
        if next_cursor is not None:
            emit({"next_cursor": next_cursor})
        return
    rows = [_row(job, state) for job in jobs]
    columns = [f"{state}: {queue}", "name", "attempts", "created", "data"]
    show(table(columns, rows or [["(none)"]], right=["attempts"]))
    if next_cursor is not None:
        click.echo(f"there are more: add --cursor {next_cursor}", err=True)


async def _has_more(queue: Queue, state: str, cursor: str | None) -> bool:
    """Whether a job is behind a cursor, which a full page has also where it was the last one."""
    while cursor is not None:
        page = await queue.get_jobs_page(state, cursor=cursor, limit=1)
        if page.jobs:
            return True
        cursor = page.next_cursor
    return False


def shape(job: Job, state: str) -> dict[str, object]:
    """A job for programs. Of a completed one only the id is known, and that it completed."""
    is_known = state != "completed"
    return {
        "id": job.id,
        "name": job.name if is_known else None,
        "data": job.data if is_known else None,
        "attempts": job.attempt if is_known else None,
        "created_at_ms": job.created_at_ms if is_known else None,
    }


def _row(job: Job, state: str) -> tuple[object, ...]:
    if state == "completed":
        return job.id, None, None, None, None
    created = away(job.created_at_ms, SYSTEM_CLOCK.now_ms())
    return job.id, job.name, job.attempt, created, short(job.data)
