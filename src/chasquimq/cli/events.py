"""`chasqui events`: what happens in a queue, a line each."""

import sys

import click

from chasquimq.cli import options, values
from chasquimq.cli.options import Session
from chasquimq.cli.place import shared_server
from chasquimq.cli.render import clean, emit, iso
from chasquimq.cli.run import run_until_stopped
from chasquimq.cli.unknown import remark_if_unknown
from chasquimq.errors import DecodeError
from chasquimq.events import QueueEvents
from chasquimq.wire.event import EventName, QueueEvent
from chasquimq.wire.ids import StreamId

_MOST_CHARS = 80


def _known(
    context: click.Context, option: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """The names, if there are such events: another would be waited for in vain."""
    del context, option
    for name in names:
        if name not in list(EventName):
            msg = f"there is no event {name!r}: choose from {', '.join(EventName)}"
            raise click.BadParameter(msg)
    return names


def _place(context: click.Context, option: click.Parameter, place: str) -> str:
    del context, option
    if place != "$":
        try:
            StreamId.parse(place)
        except DecodeError:
            msg = f"{place!r} is no place: write $, 0, or the id of an event, as 1767225600000-0"
            raise click.BadParameter(msg) from None
    return place


@click.command(
    "events",
    cls=options.Command,
    examples=[
        "chasqui events emails",
        "chasqui events emails --from 0 --event failed --event dlq",
        "chasqui events emails --job 01JH... --json",
    ],
)
@options.queue_argument
@click.option("--from", "place", default="$", show_default=True, metavar="ID", callback=_place,
              help="After this event: $ for new ones only, 0 for all that are kept.")  # fmt: skip
@click.option("--event", "names", multiple=True, metavar="NAME", callback=_known,
              help=f"Only these: {', '.join(EventName)}. May be repeated.")  # fmt: skip
@click.option("--job", "job_ids", multiple=True, metavar="ID",
              help="Only of this job. May be repeated.")  # fmt: skip
@click.option("--count", type=values.positive, metavar="N", help="End after so many.")
@options.session
def command(
    queue: str,
    *,
    place: str,
    names: tuple[str, ...],
    job_ids: tuple[str, ...],
    count: int | None,
    session: Session,
) -> None:
    """Print what happens in a queue, until Ctrl+C.

    A line is: time, id of the event, its name, job id, job name, then what else it says. It also
    ends when whoever reads its output has gone.
    """
    shared_server(session.redis_url)
    remark_if_unknown(session, queue)

    async def follow() -> None:
        left = count
        async with QueueEvents(queue, redis_url=session.redis_url, last_event_id=place) as events:
            async for event in events:
                if names and event.name not in names:
                    continue
                if job_ids and event.job_id not in job_ids:
                    continue
                _tell(session, event)
                left = None if left is None else left - 1
                if left == 0:
                    return

    run_until_stopped(follow())


def _tell(session: Session, event: QueueEvent) -> None:
    if session.as_json:
        emit(
            {
                "event_id": event.event_id,
                "event": event.name,
                "job_id": event.job_id,
                "name": event.job_name or None,
                **{key: value for key, value in event.fields.items() if key != "event"},
            }
        )
        return
    click.echo(line(event))
    sys.stdout.flush()


def line(event: QueueEvent) -> str:
    """An event on one line."""
    extras = dict(event.fields)
    told_ms = extras.pop("ts", None)
    if not isinstance(told_ms, int):
        told_ms = int(event.event_id.partition("-")[0] or 0)
    parts = [
        iso(told_ms),
        event.event_id,
        event.name or "-",
        f"id={event.job_id or '-'}",
        f"name={event.job_name or '-'}",
        *(f"{key}={_cut(str(value))}" for key, value in sorted(extras.items())),
    ]
    return " ".join(clean(part).replace("\n", "\\n").replace("\t", "\\t") for part in parts)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + "..."
