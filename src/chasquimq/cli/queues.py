"""`chasqui queues`: which queues a server has."""

from collections.abc import Mapping

import click

from chasquimq.broker.survey import Depths, FoundQueues, depths, queues
from chasquimq.cli import options, values
from chasquimq.cli.options import Session
from chasquimq.cli.render import emit, show, table
from chasquimq.cli.run import reading, run
from chasquimq.errors import ServerReplyError
from chasquimq.wire.keys import QueueKeys

_NUMBERS = ("waiting", "active", "delayed", "dead")


@click.command("queues", cls=options.Command, examples=["chasqui queues"])
@options.limit_option(100, "Show so many queues at most.")
@click.option(
    "--scan",
    type=values.positive,
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Look at so many keys of the server at most.",
)
@options.group_option
@options.session
def command(limit: int, scan: int, group: str, session: Session) -> None:
    """List the queues of a server, and how full they are.

    The keys of the server are walked with SCAN, which does not hold it up. In a cluster only one
    node is looked at.
    """
    found, standing = run(_look(session, scan, limit, group))
    if session.as_json:
        for name, depth in standing.items():
            emit({"queue": name, **_shape(depth), **_state(depth)})
        return
    problems = any(isinstance(depth, ServerReplyError) for depth in standing.values())
    columns = ["queue", *_NUMBERS, "paused", *(["problem"] if problems else [])]
    rows = [_row(name, depth)[: len(columns)] for name, depth in standing.items()]
    show(table(columns, rows or [["(none)"]], right=_NUMBERS))
    if len(found.names) > limit:
        click.echo(f"{len(found.names) - limit} more: raise --limit", err=True)
    if not found.is_complete:
        click.echo(f"looked at {scan} keys only: raise --scan to see the rest", err=True)


async def _look(
    session: Session, scan: int, limit: int, group: str
) -> tuple[FoundQueues, dict[str, Depths | ServerReplyError]]:
    async with reading(session) as reader:
        found = await reader.walk(queues(most_keys=scan))
    standing: dict[str, Depths | ServerReplyError] = {}
    for name in found.names[:limit]:
        # A connection each: in a cluster every queue has a place of its own.
        keys = QueueKeys(name)
        async with reading(session, keys.tag) as reader:
            try:
                seen = await reader.ask(depths(keys, group))
            except ServerReplyError as refusal:
                standing[name] = refusal  # of this queue alone: the others are shown
            else:
                standing[name] = seen
    return found, standing


def tally(depth: Depths) -> dict[str, int]:
    """How many jobs of a queue wait, run, are delayed, are dead."""
    active = depth.pending or 0
    numbers = (max(0, depth.stream - active), active, depth.delayed, depth.dlq)
    return dict(zip(_NUMBERS, numbers, strict=True))


def _shape(depth: Depths | ServerReplyError) -> Mapping[str, int | None]:
    return dict.fromkeys(_NUMBERS) if isinstance(depth, ServerReplyError) else tally(depth)


def _state(depth: Depths | ServerReplyError) -> dict[str, bool | str | None]:
    if isinstance(depth, ServerReplyError):
        return {"paused": None, "problem": depth.message}
    return {"paused": depth.is_paused, "problem": None}


def _row(name: str, depth: Depths | ServerReplyError) -> list[int | str | None]:
    state = _state(depth)
    return [name, *_shape(depth).values(), "yes" if state["paused"] else "", state["problem"]]
