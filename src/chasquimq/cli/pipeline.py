"""`chasqui pipeline`: tables of what happened, a report on them, dead letters by their cause."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chasquimq.cli import options
from chasquimq.cli.consent import consent
from chasquimq.cli.figures import show_figures
from chasquimq.cli.options import Function, Session
from chasquimq.cli.place import shared_server
from chasquimq.cli.problems import Refusal
from chasquimq.cli.render import clean, cut, emit, iso, say, show, table
from chasquimq.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from chasquimq.pipeline import Compacted, Done, Pipeline
    from chasquimq.pipeline.triage import Group

_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Batches of a queue are small for Spark: its 200 would be mostly empty.
    "spark.sql.shuffle.partitions": "8",
    # Else every column of every plan notes where in our source it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

# How soon a stream that was asked to end does.
_LOOK_S = 0.2

queues_argument = click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
path_option = click.option(
    "--path",
    default="chasqui-lake",
    show_default=True,
    metavar="PATH",
    help="Where the tables are: a folder, or a URL that Spark can write.",
)


def spark_options(function: Function) -> Function:
    """Add the options of Spark; the command gets them as one `settings` dict."""
    found = (
        click.option("--conf", multiple=True, metavar="KEY=VALUE",
                     help="A setting of Spark, such as spark.master=local[4]. May be repeated."),
        click.option("--verbose", is_flag=True, help="Let Spark say what it does."),
    )  # fmt: skip
    for option in reversed(found):
        function = option(function)
    return function


def table_options(function: Function) -> Function:
    """Add what the tables are made with."""
    found = (
        click.option("--format", "file_format", default="parquet", show_default=True,
                     metavar="FORMAT", help="Another format, where your Spark has it."),
        click.option("--slo-ms", type=click.IntRange(min=1), default=60_000, show_default=True,
                     metavar="MS", help="A job should be done so soon after it was added,"),
        click.option("--slo-target", type=float, default=0.99, show_default=True,
                     metavar="SHARE", help="and this share of all jobs should."),
    )  # fmt: skip
    for option in reversed(found):
        function = option(function)
    return function


def taking_options(function: Function) -> Function:
    """Add how events are taken in."""
    found = (
        click.option("--max-events", type=click.IntRange(min=1), default=200_000,
                     show_default=True, metavar="N", help="Events in one batch, at most."),
        click.option("--allow-data-loss", is_flag=True,
                     help="Go on where events were trimmed unread, and note the gap."),
    )  # fmt: skip
    for option in reversed(found):
        function = option(function)
    return function


@click.group("pipeline", cls=options.Group, examples=[
    "chasqui pipeline run emails",
    "chasqui pipeline report",
    "chasqui pipeline triage emails",
])  # fmt: skip
def command() -> None:
    """Tables of what happened in queues, a report, and dead letters by their cause.

    Runs on Spark: it needs the extra "spark" and Java 17 or newer.
    """


@command.command("run", examples=["chasqui pipeline run emails reports --path ./lake"])
@queues_argument
@path_option
@table_options
@taking_options
@spark_options
@options.session
def run(queues: tuple[str, ...], session: Session, **given: Any) -> None:  # noqa: ANN401
    """Take in all events there are, bring the tables up to date, and end.

    What was taken in before is not read again, so run it as often as you like. A table that would
    break its promises ends it with code 1 and is not written.
    """
    shared_server(session.redis_url)
    with _pipeline(given) as pipeline:
        done = pipeline.run(queues, **_taking(session, given), on_batch=_tell)
    if session.as_json:
        emit(_shape(done))
    else:
        say(f"{done.events} events in {done.batches} batches; the tables are in {given['path']}")
        if done.lost:
            say(f"{done.lost} events are missing: they were trimmed unread")


@command.command("stream", examples=["chasqui pipeline stream emails --every '1 minute'"])
@queues_argument
@path_option
@table_options
@click.option(
    "--every", default="10 seconds", show_default=True, help="Look for new events so often."
)
@taking_options
@spark_options
@options.session
def stream(queues: tuple[str, ...], every: str, session: Session, **given: Any) -> None:  # noqa: ANN401
    """The same, until Ctrl+C. Killed at any moment, it goes on where it was."""
    shared_server(session.redis_url)
    with _pipeline(given) as pipeline:
        streaming = pipeline.stream(queues, every=every, **_taking(session, given), on_batch=_tell)
        # Not by KeyboardInterrupt: Spark's own handler would talk to Java in the midst of a talk.
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        while streaming.is_active and not stopped.wait(_LOOK_S):
            pass
        streaming.stop()
        streaming.wait()
    if session.as_json:
        emit(_shape(streaming.total))


@command.command("report", examples=[
    "chasqui pipeline report --out report.html",
    "chasqui pipeline report emails --json",
])  # fmt: skip
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@path_option
@click.option("--out", default="report.html", show_default=True, metavar="FILE",
              type=click.Path(dir_okay=False), help="Where to write the page.")  # fmt: skip
@click.option("--format", "file_format", default="parquet", show_default=True, metavar="FORMAT",
              help="That of the tables.")  # fmt: skip
@click.option("--from", "first_day", metavar="DAY", help="The first day, such as 2030-01-31.")
@click.option("--to", "last_day", metavar="DAY", help="The last day, itself included.")
@spark_options
@options.json_option
def report(queues: tuple[str, ...], out: str, *, as_json: bool, **given: Any) -> None:  # noqa: ANN401
    """Say what happened, and write a page that shows it.

    The page loads nothing, so send it to whom you like. Of all queues and days in the tables,
    unless some are named.
    """
    with _pipeline(given) as pipeline:
        from chasquimq.pipeline.report import page  # noqa: PLC0415 -- Spark may not be installed

        found = pipeline.summary(queues, first_day=given["first_day"], last_day=given["last_day"])
    if as_json:
        emit(found.as_dict())
        return
    made = page(found, made_at_ms=SYSTEM_CLOCK.now_ms())
    Path(out).write_text(made, encoding="utf-8")
    show_figures(found)
    say(f"the report is in {Path(out).resolve()}")


@command.command("backfill", examples=[
    "chasqui pipeline backfill",
    "chasqui pipeline backfill --from 2030-01-01 --to 2030-01-31 --slo-ms 5000",
])  # fmt: skip
@path_option
@click.option("--from", "first_day", metavar="DAY", help="The first day, such as 2030-01-31.")
@click.option("--to", "last_day", metavar="DAY", help="The last day, itself included.")
@table_options
@spark_options
@options.json_option
def backfill(
    first_day: str | None,
    last_day: str | None,
    *,
    as_json: bool,
    **given: Any,  # noqa: ANN401
) -> None:
    """Make all tables anew from the events that were kept; the server is not asked.

    After an upgrade that changes them, for another SLO, or when somebody has damaged them. Without
    a range all of them, else what jobs with an event in these days are in.
    """
    with _pipeline(given) as pipeline:
        done = pipeline.backfill(first_day, last_day)
    if as_json:
        emit(_shape(done))
    else:
        say(f"the tables in {given['path']} are made anew")


@command.command("compact", examples=["chasqui pipeline compact --path ./lake"])
@path_option
@click.option("--keep", type=click.IntRange(min=0), default=3_600, show_default=True,
              metavar="SECONDS", help="Delete what was replaced at least so long ago.")  # fmt: skip
@spark_options
@options.json_option
def compact(*, keep: int, as_json: bool, **given: Any) -> None:  # noqa: ANN401
    """Gather the many small files of events into one for each day and queue.

    No row of any table changes. Readers that began before go on with what is replaced: the next
    call deletes it, when --keep has passed. Run it once a day, beside a stream or not.
    """
    with _pipeline(given | {"file_format": "parquet"}) as pipeline:
        done = pipeline.compact(keep=timedelta(seconds=keep))
    if as_json:
        emit(_shape(done))
    else:
        say(f"gathered {done.gathered} folders into {done.into}, deleted {done.deleted}")


@command.command("triage", examples=[
    "chasqui pipeline triage emails",
    "chasqui pipeline triage emails --fingerprint 4c4567394784 --replay",
    "chasqui pipeline triage emails --where \"error like 'Timeout%'\" --discard --dry-run",
])  # fmt: skip
@options.queue_argument
@click.option("--fingerprint", metavar="ID", help="Only this group.")
@click.option("--where", metavar="SQL", help="Only those that meet a condition of Spark's SQL.")
@click.option("--replay", is_flag=True, help="Send them round again.")
@click.option("--discard", is_flag=True, help="Delete them for good.")
@click.option("--dry-run", is_flag=True, help="Only say how many it would be; change nothing.")
@options.yes_option
@spark_options
@options.session
def triage(queue: str, session: Session, **given: Any) -> None:  # noqa: ANN401
    """Show dead letters in groups that have one cause; replay or discard a group.

    A group is a type of error, its message without numbers, ids and quoted text, and the innermost
    frames of the traceback. What is replayed or discarded is chosen by --fingerprint, --where or
    both; it asks first.
    """
    shared_server(session.redis_url)
    verbs = [verb for verb in ("replay", "discard") if given[verb]]
    if len(verbs) > 1:
        msg = "--replay and --discard are both given: use one of them"
        raise click.UsageError(msg)
    if verbs and given["fingerprint"] is None and given["where"] is None:
        msg = f"--{verbs[0]} needs --fingerprint or --where: see the groups without it first"
        raise click.UsageError(msg)
    with _spark(given) as spark:
        from chasquimq.pipeline import Triage  # noqa: PLC0415 -- Spark may not be installed

        letters = Triage(queue, redis_url=session.redis_url, spark=spark)
        chosen = {name: given[name] for name in ("fingerprint", "where")}
        if verbs:
            _dispose(letters, verbs[0], letters.choose(**chosen), session, given)
            return
        groups = letters.groups(given["where"])
    wanted = [each for each in groups if given["fingerprint"] in {None, each.fingerprint}]
    _show_groups(queue, wanted, session)


def _dispose(
    letters: Any,  # noqa: ANN401 -- `Triage`, which may not be there
    verb: str,
    ids: Sequence[str],
    session: Session,
    given: dict[str, Any],
) -> None:
    changed = 0
    if ids and not given["dry_run"]:
        consent(f"{verb} {len(ids)} dead letters", yes=given["yes"])
        changed = getattr(letters, verb)(ids).changed
    past = "replayed" if verb == "replay" else "discarded"
    if session.as_json:
        emit({"found": len(ids), past: changed, "dry_run": given["dry_run"]})
    elif given["dry_run"]:
        say(f"would {verb} {len(ids)} dead letters")
    else:
        say(f"{past} {changed} of {len(ids)} dead letters")


def _show_groups(queue: str, groups: Sequence["Group"], session: Session) -> None:
    if session.as_json:
        for group in groups:
            emit(_group_shape(group))
        return
    rows = [
        (group.fingerprint, group.count, group.reason, ", ".join(group.names), group.error_type,
         cut(clean(group.message)), group.frames.split(" < ")[0], _last(group))
        for group in groups
    ]  # fmt: skip
    columns = [f"triage: {queue}", "count", "reason", "names", "type", "message", "where", "last"]
    show(table(columns, rows or [["(no dead letters)"]], right=["count"]))


def _last(group: "Group") -> str | None:
    return None if group.last_ms is None else iso(group.last_ms)


def _group_shape(group: "Group") -> dict[str, Any]:
    return {name: getattr(group, name) for name in group.__slots__}


def _shape(done: "Done | Compacted") -> dict[str, int]:
    return {name: getattr(done, name) for name in done.__slots__}


def _tell(done: "Done") -> None:
    told = f"{done.events} events, {done.buckets} buckets and {done.hours} hours recomputed"
    click.echo(f"chasqui: {told}", err=True)


def _taking(session: Session, given: dict[str, Any]) -> dict[str, Any]:
    return {
        "redis_url": session.redis_url,
        "max_events": given["max_events"],
        "fail_on_data_loss": not given["allow_data_loss"],
    }


@contextlib.contextmanager
def _pipeline(given: dict[str, Any]) -> Iterator["Pipeline"]:
    with _spark(given) as spark:
        from chasquimq.pipeline import Pipeline, Slo  # noqa: PLC0415 -- Spark may not be installed

        slo = Slo(given["slo_ms"], given["slo_target"]) if "slo_ms" in given else None
        yield Pipeline(given["path"], spark=spark, file_format=given["file_format"], slo=slo)


@contextlib.contextmanager
def _spark(given: dict[str, Any]) -> Iterator[Any]:
    settings = dict(_SETTINGS)
    for each in given["conf"]:
        name, equals, value = each.partition("=")
        if not equals:
            msg = f"--conf is {each!r}: use KEY=VALUE, such as spark.master=local[4]"
            raise click.UsageError(msg)
        settings[name] = value
    try:
        from chasquimq.spark import session  # noqa: PLC0415 -- Spark may not be installed
    except ImportError as error:
        msg = f"the pipeline needs Spark ({error}): pip install 'chasquimq[spark]', and Java 17"
        raise Refusal(msg) from None
    with contextlib.nullcontext() if given["verbose"] else _muted():
        spark = session("chasqui pipeline", settings)
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Let what is started now write to nowhere: Java says much before it can be told not to."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
