"""`chasqui inspect`: how deep a queue is, and how late."""

import click

from chasquimq.broker.survey import Depths
from chasquimq.cli import options
from chasquimq.cli.options import Session
from chasquimq.cli.render import emit, show, table
from chasquimq.cli.unknown import look_at, tell_if_unknown
from chasquimq.clock import SYSTEM_CLOCK

PAUSED = "yes: workers take no new jobs"


@click.command("inspect", cls=options.Command, examples=["chasqui inspect emails"])
@options.queue_argument
@options.group_option
@options.session
def command(queue: str, group: str, session: Session) -> None:
    """Show how deep a queue is, and how late.

    The oldest delayed lag is how long ago the first delayed job was due: more than a second or so
    means that no worker promotes them.
    """
    found = look_at(session, queue, group)
    now_ms = SYSTEM_CLOCK.now_ms()
    if session.as_json:
        emit({"queue": queue, "group": group, **shape(found, now_ms)})
        return
    show(table([f"queue: {queue}", f"group: {group}"], rows(found, now_ms)))
    tell_if_unknown(queue, found)


def rows(found: Depths, now_ms: int) -> list[tuple[str, str]]:
    """The lines of the table: what is counted, and how many."""
    lag_ms = found.lag_ms(now_ms)
    named = [
        ("stream depth", str(found.stream)),
        ("pending", "0 (group not created)" if found.pending is None else str(found.pending)),
        ("DLQ depth", str(found.dlq)),
        ("delayed depth", str(found.delayed)),
        ("oldest delayed lag (ms)", "-" if lag_ms is None else str(lag_ms)),
        ("repeatable count", str(found.repeatable)),
    ]
    return [*named, ("paused", PAUSED)] if found.is_paused else named


def shape(found: Depths, now_ms: int) -> dict[str, object]:
    """The same for programs."""
    return {
        "stream": found.stream,
        "pending": found.pending or 0,
        "group_exists": found.pending is not None,
        "dlq": found.dlq,
        "delayed": found.delayed,
        "oldest_delayed_lag_ms": found.lag_ms(now_ms),
        "repeatable": found.repeatable,
        "paused": found.is_paused,
        "exists": found.is_known,
    }
