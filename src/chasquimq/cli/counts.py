"""`chasqui counts`: how many jobs wait, run, are delayed, are dead."""

from dataclasses import asdict

import click

from chasquimq.broker.inspect import Counts
from chasquimq.cli import options
from chasquimq.cli.options import Session
from chasquimq.cli.render import emit, show, table
from chasquimq.cli.run import opened, run


@click.command(
    "counts",
    cls=options.Command,
    examples=["chasqui counts emails", "chasqui counts emails --json"],
)
@options.queue_argument
@options.group_option
@options.session
def command(queue: str, group: str, session: Session) -> None:
    """Count the jobs that wait, run, are delayed, are dead."""

    async def look() -> Counts:
        async with opened(session, queue, group) as open_queue:
            return await open_queue.counts()

    found = asdict(run(look()))
    if session.as_json:
        emit({"queue": queue, **found})
    else:
        show(table([f"queue: {queue}", "jobs"], found.items(), right=["jobs"]))
