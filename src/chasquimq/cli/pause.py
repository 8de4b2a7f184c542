"""`chasqui pause`: stop taking jobs, until it is resumed."""

from shlex import quote

import click

from chasquimq.broker.survey import depths
from chasquimq.cli import options
from chasquimq.cli.options import Session
from chasquimq.cli.render import emit, remark, say
from chasquimq.cli.run import opened, reading, run
from chasquimq.wire.keys import QueueKeys


@click.command("pause", cls=options.Command, examples=["chasqui pause emails"])
@options.queue_argument
@options.session
def command(queue: str, session: Session) -> None:
    """Let workers finish what they have and take no new jobs.

    The pause is kept in the server and holds for every worker, also those started later, until
    `chasqui resume`. Jobs can still be added.
    """
    keys = QueueKeys(queue)

    async def carry_out() -> bool:
        async with opened(session, queue, may_be_new=True) as open_queue:
            async with reading(session, keys.tag, may_be_new=True) as reader:
                found = await reader.ask(depths(keys, "default"))
            await open_queue.pause()
            return found.is_known

    if not run(carry_out()):
        resume = f"chasqui resume {quote(queue)}"
        remark(f"nothing is known of {queue} yet: its jobs will wait until  {resume}")
    if session.as_json:
        emit({"queue": queue, "paused": True})
    else:
        say(f"paused {queue}")
