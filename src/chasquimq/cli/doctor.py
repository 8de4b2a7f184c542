"""`chasqui doctor`: examine a server and its queues, and say what to do."""

from collections.abc import Callable, Sequence

import click
from rich.text import Text

from chasquimq.broker.checkup import QueueFacts, queue_facts, server_facts
from chasquimq.broker.connection import Connection
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.survey import queues
from chasquimq.cli import options
from chasquimq.cli.options import Session
from chasquimq.cli.place import shared_server
from chasquimq.cli.render import clean, emit, show
from chasquimq.cli.run import Reader, run
from chasquimq.cli.values import positive
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.diagnosis import (
    GONE_MS,
    LEASE_MS,
    Finding,
    Reach,
    Severity,
    examine_queue,
    examine_server,
)
from chasquimq.wire.keys import QueueKeys

# The walk through the keyspace is bounded; what was not seen is said.
_MOST_KEYS = 1_000_000
_MOST_QUEUES = 50

_EXIT_CODES = {Severity.OK: 0, Severity.WARNING: 1, Severity.PROBLEM: 4}
_MARKS = {
    Severity.OK: ("ok      ", "green"),
    Severity.WARNING: ("warning ", "yellow"),
    Severity.PROBLEM: ("PROBLEM ", "bold red"),
}
_WIDTH = 16


@click.command(
    "doctor",
    cls=options.Command,
    examples=["chasqui doctor", "chasqui doctor emails", "chasqui doctor emails --json"],
)
@click.argument("queue", required=False)
@options.group_option
@click.option(
    "--lease-ms",
    type=positive,
    default=LEASE_MS,
    show_default=True,
    metavar="MS",
    help="claim_min_idle_ms of the workers: what is silent for longer is stuck.",
)
@click.option(
    "--gone-ms",
    type=positive,
    default=GONE_MS,
    show_default=True,
    metavar="MS",
    help="A worker that has not asked for jobs for so long is gone.",
)
@options.session
def command(queue: str | None, group: str, lease_ms: int, gone_ms: int, session: Session) -> int:
    """Examine a server and its queues, and say what to do.

    Without a queue all of them are examined. Nothing is changed. Exit code: 0 all is well, 1 there
    are warnings, 4 there are problems, 3 the server cannot be reached.
    """

    def examine(facts: QueueFacts) -> list[Finding]:
        return list(examine_queue(facts, group, lease_ms=lease_ms, gone_ms=gone_ms))

    findings = run(_findings(queue, group, lease_ms, session, examine))
    worst = max(
        (each.severity for part in findings.values() for each in part), key=list(Severity).index
    )
    if session.as_json:
        emit({"severity": worst, "findings": [
            {"queue": name or None, "check": each.check, "severity": each.severity,
             "message": each.message, "remedy": each.remedy or None}
            for name, part in findings.items() for each in part
        ]})  # fmt: skip
    else:
        for name, part in findings.items():
            show(Text(f"queue {clean(name)}" if name else "server", style="bold"))
            show(*(_line(each) for each in part))
    return _EXIT_CODES[worst]


async def _findings(
    queue: str | None,
    group: str,
    lease_ms: int,
    session: Session,
    examine: Callable[[QueueFacts], list[Finding]],
) -> dict[str, Sequence[Finding]]:
    target = shared_server(session.redis_url)
    slot_key = QueueKeys(queue).tag if queue is not None else b""
    connection = Connection(target, ConnectionOptions(), slot_key=slot_key)
    reader = Reader(connection)
    try:
        info = await connection.ready()
        # The second of two: the first may have waited for the connection.
        began_us, began_ms = SYSTEM_CLOCK.monotonic_us(), SYSTEM_CLOCK.now_ms()
        facts = await reader.ask(server_facts())
        took_ms = (SYSTEM_CLOCK.monotonic_us() - began_us) / 1_000
        reach = Reach(target, took_ms, facts.now_ms - began_ms - round(took_ms / 2))
        findings: dict[str, Sequence[Finding]] = {
            "": list(examine_server(reach, info, facts)),
        }
        if queue is None:
            found = await reader.walk(queues(most_keys=_MOST_KEYS))
            names: Sequence[str] = found.names[:_MOST_QUEUES]
        else:
            names = [queue]
        for name in names:
            steps = queue_facts(QueueKeys(name), group, lease_ms=lease_ms, most_keys=_MOST_KEYS)
            findings[name] = examine(await reader.walk(steps))
        return findings
    finally:
        await connection.close()


def _line(finding: Finding) -> Text:
    mark, style = _MARKS[finding.severity]
    line = Text.assemble(
        ("  " + mark, style), (f"{finding.check:<{_WIDTH}}", "dim"), clean(finding.message)
    )
    if finding.remedy:
        line.append(f"\n{'':<{2 + len(mark) + _WIDTH}}-> {clean(finding.remedy)}", "italic")
    return line
