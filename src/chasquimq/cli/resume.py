"""`chasqui resume`: take jobs again."""

import click

from chasquimq.cli import options
from chasquimq.cli.options import Session
from chasquimq.cli.render import emit, say
from chasquimq.cli.run import opened, run
from chasquimq.cli.unknown import remark_if_unknown


@click.command("resume", cls=options.Command, examples=["chasqui resume emails"])
@options.queue_argument
@options.session
def command(queue: str, session: Session) -> None:
    """Let workers take jobs again."""

    async def carry_out() -> None:
        async with opened(session, queue) as open_queue:
            await open_queue.resume()

    remark_if_unknown(session, queue)
    run(carry_out())
    if session.as_json:
        emit({"queue": queue, "paused": False})
    else:
        say(f"resumed {queue}")
