"""`chasqui drain`: empty a queue of the jobs that have not begun."""

import click

from chasquimq.cli import options
from chasquimq.cli.consent import consent
from chasquimq.cli.options import Session
from chasquimq.cli.render import counted, emit, say
from chasquimq.cli.run import opened, run
from chasquimq.cli.unknown import remark_if_unknown


@click.command(
    "drain",
    cls=options.Command,
    examples=["chasqui drain emails --dry-run", "chasqui drain emails --keep-delayed --yes"],
)
@options.queue_argument
@click.option("--keep-delayed", is_flag=True, help="Remove waiting jobs only.")
@options.dry_run_option
@options.yes_option
@options.session
def command(queue: str, *, keep_delayed: bool, dry_run: bool, yes: bool, session: Session) -> None:
    """Remove every waiting and delayed job; those that run go on.

    Dead letters, results and recurring jobs stay.
    """
    if not dry_run:
        which = "waiting jobs" if keep_delayed else "waiting and delayed jobs"
        consent(f"remove all {which} of {queue}", yes=yes)

    async def carry_out() -> int:
        async with opened(session, queue) as open_queue:
            return await open_queue.drain(not keep_delayed, dry_run=dry_run)

    count = run(carry_out())
    if not count:
        remark_if_unknown(session, queue)
    if session.as_json:
        emit({"queue": queue, "removed": count, "dry_run": dry_run})
    else:
        say(f"{'would remove' if dry_run else 'removed'} {counted(count, 'job')} of {queue}")
