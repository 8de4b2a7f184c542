"""`chasqui clean`: remove old jobs of one state."""

import click

from chasquimq.cli import options, values
from chasquimq.cli.consent import consent
from chasquimq.cli.options import Session
from chasquimq.cli.render import counted, emit, say
from chasquimq.cli.run import opened, run
from chasquimq.cli.unknown import remark_if_unknown

STATES = ("completed", "failed", "waiting", "delayed")


@click.command(
    "clean",
    cls=options.Command,
    examples=[
        "chasqui clean emails --state failed --grace 7d --dry-run",
        "chasqui clean emails --state failed --grace 7d --limit 10000 --yes",
    ],
)
@options.queue_argument
@click.option(
    "--state",
    type=click.Choice(STATES),
    default="completed",
    show_default=True,
    help="completed: stored results; failed: dead letters.",
)
@click.option(
    "--grace",
    type=values.duration,
    default="0",
    show_default=True,
    metavar="DURATION",
    help="Leave what is younger: 30s, 5m, 7d.",
)
@click.option("--grace-ms", type=click.IntRange(min=0), metavar="MS", help="The same in ms.")
@options.limit_option(1_000, "Remove so many at most.")
@options.group_option
@options.dry_run_option
@options.yes_option
@options.session
def command(  # noqa: PLR0913 -- one parameter an option
    queue: str,
    *,
    state: str,
    grace: int,
    grace_ms: int | None,
    limit: int,
    group: str,
    dry_run: bool,
    yes: bool,
    session: Session,
) -> None:
    """Remove old jobs that are completed, failed, waiting or delayed. Running jobs stay."""
    if not dry_run:
        consent(f"remove up to {counted(limit, f'{state} job')} of {queue}", yes=yes)

    async def carry_out() -> list[str]:
        async with opened(session, queue, group) as open_queue:
            age_ms = grace if grace_ms is None else grace_ms
            return await open_queue.clean(age_ms, limit, state, dry_run=dry_run)

    ids = run(carry_out())
    if not ids:
        remark_if_unknown(session, queue)
    if session.as_json:
        emit({"queue": queue, "state": state, "removed": ids, "dry_run": dry_run})
        return
    if dry_run:
        for job_id in ids:
            say(job_id)
    told = counted(len(ids), f"{state} job")
    say(f"{'would remove' if dry_run else 'removed'} {told} of {queue}")
