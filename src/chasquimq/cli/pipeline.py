"""`chasqui pipeline`: tables of what happened, and a report on them."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from chasquimq.cli import backfill, options, triage
from chasquimq.cli.figures import show_figures
from chasquimq.cli.options import Function, Session
from chasquimq.cli.place import shared_server
from chasquimq.cli.problems import Refusal
from chasquimq.cli.render import counted, emit, remark, say
from chasquimq.cli.spark import is_missing, spark_options, started
from chasquimq.cli.unknown import refuse_unknown
from chasquimq.cli.values import spark_interval
from chasquimq.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from chasquimq.pipeline import Compacted, Done, Pipeline

# How soon a stream that was asked to end does.
_LOOK_S = 0.2

# Those of `chasquimq.pipeline.lake`, which may not be there.
FORMATS = ("parquet", "delta")

queues_argument = click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
path_option = click.option(
    "--path",
    default="chasqui-lake",
    show_default=True,
    metavar="PATH",
    help="Where the tables are: a folder, or a URL that Spark can write.",
)


def table_options(function: Function) -> Function:
    """Add what the tables are made with."""
    found = (
        click.option("--format", "file_format", default="parquet", show_default=True,
                     metavar="FORMAT", type=click.Choice(FORMATS),
                     help="That of the tables: parquet, or delta where your Spark has it."),
        click.option("--slo-ms", type=click.IntRange(min=1), default=60_000, show_default=True,
                     metavar="MS", help="A job should be done so soon after it was added,"),
        click.option("--slo-target", default=0.99, show_default=True, metavar="SHARE",
                     type=click.FloatRange(0, 1, min_open=True, max_open=True),
                     help="and this share of all jobs should."),
    )  # fmt: skip
    for option in reversed(found):
        function = option(function)
    return function


def _day(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    try:
        return text and date.fromisoformat(text).isoformat()
    except ValueError:
        msg = f"{text!r} is not a day: use one such as 2030-01-31"
        raise click.BadParameter(msg) from None


def _not_before(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    day, first = _day(context, parameter, text), context.params.get("first_day")
    if day and first and day < first:
        msg = f"{day} is before --from {first}: name a day that is not"
        raise click.BadParameter(msg)
    return day


def days_options(function: Function) -> Function:
    """Add from which day to which."""
    found = (
        click.option("--from", "first_day", metavar="DAY", callback=_day, is_eager=True,
                     help="The first day, such as 2030-01-31."),
        click.option("--to", "last_day", metavar="DAY", callback=_not_before,
                     help="The last day, itself included."),
    )  # fmt: skip
    for option in reversed(found):
        function = option(function)
    return function


def taking_options(function: Function) -> Function:
    """Add how events are taken in."""
    found = (
        click.option("--max-events", type=click.IntRange(min=1), default=200_000,
                     show_default=True, metavar="N", help="Events in one batch, at most."),
        click.option("--may-be-new", is_flag=True,
                     help="A queue that nothing is known of is one whose first job will come."),
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
    break its promises ends it with code 1 and is not written. So does a queue that neither the
    server nor the tables know, before anything is written, unless it --may-be-new.
    """
    _look_for(queues, session, given)
    with _pipeline(given) as pipeline:
        remark(f"taking in the events of {', '.join(queues)}")
        taking = _taking(session, given)
        done = pipeline.run(queues, **taking, on_batch=_tell, on_step=remark)
    if session.as_json:
        emit(_shape(done))
    else:
        told = f"{counted(done.events, 'event')} in {counted(done.batches, 'batch')}"
        say(f"{told}; the tables are in {given['path']}")
        if done.lost:
            say(f"missing, since trimmed unread: {counted(done.lost, 'event')}")


@command.command("stream", examples=["chasqui pipeline stream emails --every '1 minute'"])
@queues_argument
@path_option
@table_options
@click.option("--every", default="10 seconds", show_default=True, metavar="INTERVAL",
              callback=lambda _, __, text: spark_interval(text),
              help="Look for new events so often, such as '5 minutes' or 5m.")  # fmt: skip
@taking_options
@spark_options
@options.session
def stream(queues: tuple[str, ...], every: str, session: Session, **given: Any) -> None:  # noqa: ANN401
    """The same, until Ctrl+C. Killed at any moment, it goes on where it was."""
    _look_for(queues, session, given)
    with _pipeline(given) as pipeline:
        remark(f"taking in the events of {', '.join(queues)}, until Ctrl+C")
        first, taking = _FirstBatch(), _taking(session, given)
        streaming = pipeline.stream(
            queues, every=every, **taking, on_batch=first.done, on_step=first.step
        )
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
              type=click.Choice(FORMATS), help="That of the tables.")  # fmt: skip
@days_options
@spark_options
@options.json_option
def report(queues: tuple[str, ...], out: str, *, as_json: bool, **given: Any) -> None:  # noqa: ANN401
    """Say what happened, and write a page that shows it.

    The page loads nothing, so send it to whom you like. Of all queues and days in the tables,
    unless some are named. If nothing happened in those no page is written, and the exit code is 1.
    """
    _look_at(given)
    if not Path(out).absolute().parent.is_dir():
        msg = f"--out is {out!r}, and there is no such folder: make it first"
        raise click.UsageError(msg)
    with _pipeline(given) as pipeline:
        from chasquimq.pipeline.report import page  # noqa: PLC0415 -- Spark may not be installed

        days = {name: given[name] for name in ("first_day", "last_day")}
        found = pipeline.summary(queues, **days, on_step=remark)
    if as_json:
        emit(found.as_dict())
        return
    if found.span is None:
        msg = (
            f"the tables in {given['path']} hold nothing of these queues and days, so no page was "
            "written: run  chasqui pipeline run QUEUE  first, or name another --path"
        )
        raise Refusal(msg)
    made = page(found, made_at_ms=SYSTEM_CLOCK.now_ms())
    Path(out).write_text(made, encoding="utf-8")
    show_figures(found)
    say(f"the report is in {Path(out).resolve()}")


@command.command("rebuild", examples=[
    "chasqui pipeline rebuild",
    "chasqui pipeline rebuild --from 2030-01-01 --to 2030-01-31 --slo-ms 5000",
])  # fmt: skip
@path_option
@days_options
@table_options
@spark_options
@options.json_option
def rebuild(
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
    _look_at(given)
    with _pipeline(given) as pipeline:
        remark("making the tables anew")
        done = pipeline.rebuild(first_day, last_day, on_step=remark)
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
    _look_at(given)
    with _pipeline(given | {"file_format": "parquet"}) as pipeline:
        done = pipeline.compact(keep=timedelta(seconds=keep), on_step=remark)
    if as_json:
        emit(_shape(done))
    else:
        gathered = f"gathered {counted(done.gathered, 'folder')} into {done.into}"
        say(f"{gathered}, deleted {done.deleted}")


command.add_command(backfill.command)
command.add_command(triage.command)


def _look_for(queues: tuple[str, ...], session: Session, given: dict[str, Any]) -> None:
    """Refuse at once, before Spark starts, if nothing is there: no server, no such queue."""
    shared_server(session.redis_url)
    for queue in queues:
        if not given["may_be_new"] and not _is_in_tables(queue, given["path"]):
            refuse_unknown(session, queue, "give --may-be-new if its first job is still to come")


def _is_in_tables(queue: str, path: str) -> bool:
    """Whether bronze has events of a queue, as far as that can be seen without Spark."""
    try:
        from chasquimq.pipeline.places import on_this_machine  # noqa: PLC0415 -- may not be there
    except ImportError:
        return True  # which is told when Spark is started
    here = on_this_machine(path)
    folders = here.glob("bronze/day=*/queue=*") if here else ()
    return any(unquote(each.name) == f"queue={queue}" for each in folders)


def _look_at(given: dict[str, Any]) -> None:
    """Refuse at once, before Spark starts, where there are no tables to work with."""
    if is_missing(given["path"], given):
        msg = (
            f"there is no folder {given['path']}, so its tables hold nothing of these queues and "
            "days: run  chasqui pipeline run QUEUE  first, or name another --path"
        )
        raise Refusal(msg)


def _shape(done: "Done | Compacted") -> dict[str, int]:
    return {name: getattr(done, name) for name in done.__slots__}


def _tell(done: "Done") -> None:
    parts = f"{counted(done.buckets, 'bucket')} and {counted(done.stretches, 'stretch')}"
    remark(f"{counted(done.events, 'event')}, {parts} recomputed")


class _FirstBatch:
    """Tells the steps of the first batch, which may be long; of the others only what they did."""

    def __init__(self) -> None:
        """It is still to come."""
        self._is_over = False

    def step(self, what: str) -> None:
        """Something begins."""
        if not self._is_over:
            remark(what)

    def done(self, done: "Done") -> None:
        """A batch is in the tables."""
        self._is_over = True
        _tell(done)


def _taking(session: Session, given: dict[str, Any]) -> dict[str, Any]:
    return {
        "redis_url": session.redis_url,
        "max_events": given["max_events"],
        "fail_on_data_loss": not given["allow_data_loss"],
    }


@contextlib.contextmanager
def _pipeline(given: dict[str, Any]) -> Iterator["Pipeline"]:
    with started(given) as spark:
        from chasquimq.pipeline import Pipeline, Slo  # noqa: PLC0415 -- Spark may not be installed

        slo = Slo(given["slo_ms"], given["slo_target"]) if "slo_ms" in given else None
        yield Pipeline(given["path"], spark=spark, file_format=given["file_format"], slo=slo)
