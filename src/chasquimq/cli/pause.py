"""`chasqui pause`: stop taking jobs, until it is resumed."""

import click

from chasquimq.cli import options
from chasquimq.cli.options import Session
from chasquimq.cli.render import emit, say
from chasquimq.cli.run import opened, run


@click.command("pause", cls=options.Command, examples=["chasqui pause emails"])
@options.queue_argument
@options.session
def command(queue: str, session: Session) -> None:
    """Let workers finish what they have and take no new jobs.

    The pause is kept in the server and holds for every worker, also those started later, until
    `chasqui resume`. Jobs can still be added.
    """

    async def carry_out() -> None:
        async with opened(session, queue) as open_queue:
            await open_queue.pause()

    run(carry_out())
    if session.as_json:
        emit({"queue": queue, "paused": True})
    else:
        say(f"paused {queue}")
