"""`chasqui counts`: how many jobs wait, run, are delayed, are dead."""

import click

from chasquimq.cli import options
from chasquimq.cli.inspect import PAUSED
from chasquimq.cli.options import Session
from chasquimq.cli.queues import tally
from chasquimq.cli.render import emit, show, table
from chasquimq.cli.unknown import look_at, tell_if_unknown


@click.command(
    "counts",
    cls=options.Command,
    examples=["chasqui counts emails", "chasqui counts emails --json"],
)
@options.queue_argument
@options.group_option
@options.session
def command(queue: str, group: str, session: Session) -> None:
    """Count the jobs that wait, run, are delayed, are dead.

    Completed jobs are not among them: they have left the queue.
    """
    found = look_at(session, queue, group)
    counts = tally(found)
    if session.as_json:
        emit({"queue": queue, **counts, "paused": found.is_paused, "exists": found.is_known})
        return
    rows: list[tuple[str, object]] = list(counts.items())
    if found.is_paused:
        rows.append(("paused", PAUSED))
    show(table([f"queue: {queue}", "jobs"], rows, right=["jobs"]))
    tell_if_unknown(queue, found)
