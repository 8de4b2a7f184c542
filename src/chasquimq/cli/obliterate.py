"""`chasqui obliterate`: remove a queue with all that belongs to it."""

import click

from chasquimq.broker.survey import Depths
from chasquimq.cli import options
from chasquimq.cli.consent import consent
from chasquimq.cli.options import Session
from chasquimq.cli.render import counted, emit, say
from chasquimq.cli.run import opened, run
from chasquimq.cli.unknown import look_at, tell_if_unknown


@click.command(
    "obliterate",
    cls=options.Command,
    examples=["chasqui obliterate emails --dry-run", "chasqui obliterate emails --yes"],
)
@options.queue_argument
@click.option("--force", is_flag=True, help="Even while jobs are running.")
@options.group_option
@options.dry_run_option
@options.yes_option
@options.session
def command(
    queue: str, *, force: bool, group: str, dry_run: bool, yes: bool, session: Session
) -> None:
    """Remove a queue: jobs, dead letters, results, recurring jobs, events, everything.

    Refused while jobs are running. If it is broken off, do it again: it goes on where it ended.
    What is counted is what was there a moment before.
    """

    async def carry_out() -> int:
        async with opened(session, queue, group) as open_queue:
            return await open_queue.obliterate(force=force, dry_run=dry_run)

    found = look_at(session, queue, group)
    tell_if_unknown(queue, found)
    if not dry_run:
        consent(f"remove every key of {queue}, with {_told(found)}", yes=yes)
    count = run(carry_out())
    if session.as_json:
        emit(
            {
                "queue": queue,
                "removed_keys": count,
                "jobs": _jobs(found),
                "dead_letters": found.dlq,
                "recurring_jobs": found.repeatable,
                "dry_run": dry_run,
            }
        )
        return
    did = "would remove" if dry_run else "removed"
    say(f"{did} {counted(count, 'key')} of {queue}, with {_told(found)}")


def _jobs(found: Depths) -> int:
    return found.stream + found.delayed


def _told(found: Depths) -> str:
    jobs, letters = counted(_jobs(found), "job"), counted(found.dlq, "dead letter")
    return f"{jobs}, {letters} and {counted(found.repeatable, 'recurring job')}"
