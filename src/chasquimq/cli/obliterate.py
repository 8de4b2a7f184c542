"""`chasqui obliterate`: remove a queue with all that belongs to it."""

import click

from chasquimq.cli import options
from chasquimq.cli.consent import consent
from chasquimq.cli.options import Session
from chasquimq.cli.render import emit, say
from chasquimq.cli.run import opened, run


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
    """
    if not dry_run:
        consent(f"remove every key of {queue}", yes=yes)

    async def carry_out() -> int:
        async with opened(session, queue, group) as open_queue:
            return await open_queue.obliterate(force=force, dry_run=dry_run)

    count = run(carry_out())
    if session.as_json:
        emit({"queue": queue, "removed_keys": count, "dry_run": dry_run})
    else:
        say(f"{'would remove' if dry_run else 'removed'} {count} keys of {queue}")
