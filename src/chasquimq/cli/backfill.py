"""`chasqui pipeline backfill`: rows of a table or of files become jobs, each once."""

import contextlib
from typing import TYPE_CHECKING, Any

import click

from chasquimq.cli import options
from chasquimq.cli.options import Function, Session
from chasquimq.cli.place import shared_server
from chasquimq.cli.problems import NOT_DONE
from chasquimq.cli.progress import ProgressLine
from chasquimq.cli.render import counted, cut, emit, instant, remark, say, short, show, table
from chasquimq.cli.spark import is_missing, pairs, spark_options, started
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.errors import ConfigError
from chasquimq.wire.keys import QueueKeys

if TYPE_CHECKING:
    from chasquimq.pipeline import Backfill, Filled, Preview

_COLUMNS = {
    "name": "the jobs' names",
    "job_id": "the jobs' ids; one that is taken is not added",
    "delay_ms": "a delay in ms",
    "run_at": "the time a job is due, a timestamp or epoch ms",
    "attempts": "how many runs a job may have",
    "backoff": "a job's own backoff",
    "payload": "the payload; else it is a map of all that say nothing else",
}


def reading_options(function: Function) -> Function:
    """Add how the source is read."""
    found = (
        click.option("--format", "file_format", metavar="FORMAT",
                     help="csv, json, parquet, orc, any other that your Spark reads, or table. "
                          "[default: by the ending]"),
        click.option("--schema", metavar="DDL",
                     help="Columns and types, as 'id bigint, who string'. Left out, CSV is text."),
        click.option("--no-header", is_flag=True, help="The CSV has no line with names."),
        click.option("--delimiter", metavar="CHAR", help="Between the fields of CSV. [default: ,]"),
        click.option("--option", "reader", multiple=True, metavar="KEY=VALUE",
                     help="Another option of Spark's reader, as multiLine=true. May be repeated."),
    )  # fmt: skip
    for option in reversed(found):
        function = option(function)
    return function


def column_options(function: Function) -> Function:
    """Add which column says what."""
    for meaning, means in reversed(_COLUMNS.items()):
        flag = f"--{meaning.replace('_', '-')}-column"
        help_text = f"The column with {means}."
        function = click.option(flag, metavar="COLUMN", help=help_text)(function)
    return click.option(
        "--name", "job_name", metavar="NAME", help="Of all jobs, or of those whose column is null."
    )(function)


@click.command("backfill", cls=options.Command, examples=[
    "chasqui pipeline backfill orders.csv --queue orders --name import --dry-run",
    "chasqui pipeline backfill 'lake/day=*/*.parquet' --queue orders --rate 500",
    "chasqui pipeline backfill users.json --queue mail --name-column kind --job-id-column id",
])  # fmt: skip
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--queue", required=True, metavar="QUEUE", help="Where the jobs go.")
@column_options
@reading_options
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    metavar="N",
    help="Jobs in a second, of all tasks together. [default: as fast as it goes]",
)
@click.option(
    "--dry-run", is_flag=True, help="Count and check the rows, show the first; add nothing."
)
@click.option(
    "--run-id",
    metavar="ID",
    help="Under which it can be continued. [default: made of source, queue and options]",
)
@click.option("--anew", is_flag=True, help="Add all rows, whatever this run has added before.")
@click.option("--sink-option", "sink", multiple=True, metavar="KEY=VALUE",
              help="An option of the sink, as maxStreamLen=5000000. May be repeated.")  # fmt: skip
@spark_options
@options.session
def command(source: tuple[str, ...], session: Session, **given: Any) -> int:  # noqa: ANN401
    """Make a job of each row of a table or of files, once.

    All rows are looked at first; if one cannot be a job nothing is added. Killed at any moment, run
    the same command again: it adds what is left. A run that is done adds nothing. SOURCE is files,
    folders, globs, URLs that Spark can read, or the name of a table.
    """
    shared_server(session.redis_url, may_be_new=True)
    QueueKeys(given["queue"])  # which refuses a name that none can have
    found = {
        "file_format": given["file_format"],
        "options": _reader(given),
        "schema": given["schema"],
        "sink": pairs(given["sink"], "--sink-option", "maxStreamLen=5000000"),
    }
    _look_at(source, given, found["sink"])
    with started(given) as spark:
        from chasquimq.pipeline import Backfill, Columns  # noqa: PLC0415 -- Spark may not be there

        columns = Columns(**{name: given[f"{name}_column"] for name in _COLUMNS})
        backfill = Backfill(
            source, given["queue"], redis_url=session.redis_url, spark=spark, columns=columns,
            name=given["job_name"], run_id=given["run_id"], rate=given["rate"], **found,
        )  # fmt: skip
        if given["dry_run"]:
            return _tell_preview(backfill.preview(on_step=remark), given["queue"], session)
        _tell_filled(_run(backfill, anew=given["anew"]), given["queue"], session)
    return 0


def _look_at(source: tuple[str, ...], given: dict[str, Any], sink: dict[str, str]) -> None:
    """Refuse at once what is wrong before Spark starts, which takes long."""
    with contextlib.suppress(ImportError):  # which is told when Spark is started
        from chasquimq.pipeline.backfill import check_sink_options  # noqa: PLC0415 -- an extra
        from chasquimq.pipeline.sources import must_be_there  # noqa: PLC0415

        check_sink_options(given["queue"], sink)
        for each in source:
            if must_be_there(each, given["file_format"]) and is_missing(each, given):
                msg = f"{each} cannot be read: there is no such file or folder"
                raise ConfigError(msg)


def _reader(given: dict[str, Any]) -> dict[str, str]:
    found = pairs(given["reader"], "--option", "multiLine=true")
    if given["no_header"]:
        found["header"] = "false"
    if given["delimiter"] is not None:
        found["sep"] = given["delimiter"]
    return found


def _run(backfill: "Backfill", *, anew: bool) -> "Filled":
    line = ProgressLine()
    try:
        return backfill.run(anew=anew, on_progress=line.tell, on_step=remark)
    finally:
        line.end()


def _tell_preview(found: "Preview", queue: str, session: Session) -> int:
    if session.as_json:
        jobs = [{name: getattr(job, name) for name in job.__slots__} for job in found.jobs]
        emit({"run_id": found.run_id, "rows": found.rows, "unfit": found.unfit,
              "problems": found.problems, "jobs": jobs})  # fmt: skip
        return NOT_DONE if found.unfit else 0
    now_ms = SYSTEM_CLOCK.now_ms()
    rows = [
        (job.name or None, job.job_id, _due(job, now_ms), job.attempts, short(job.data))
        for job in found.jobs
    ]
    columns = ["name", "id", "due", "attempts", "data"]
    show(table(columns, rows or [["(no rows)", None, None, None, None]], right=["attempts"]))
    for problem in found.problems:
        say(f"cannot be a job: {cut(problem, 400)}")
    if found.unfit:
        say(f"{found.unfit} of {counted(found.rows, 'row')} cannot be jobs: nothing would be added")
        return NOT_DONE
    say(f"{counted(found.rows, 'row')} would become jobs of queue {queue}, as run {found.run_id}")
    return 0


def _due(job: Any, now_ms: int) -> str | None:  # noqa: ANN401 -- `Planned`, which may not be there
    if job.run_at_ms is None and not job.delay_ms:
        return None
    return instant(now_ms + job.delay_ms if job.run_at_ms is None else job.run_at_ms, now_ms)


def _tell_filled(done: "Filled", queue: str, session: Session) -> None:
    if session.as_json:
        emit({name: getattr(done, name) for name in done.__slots__})
        return
    say(f"{counted(done.added, 'job')} added to queue {queue} of {counted(done.rows, 'row')}, "
        f"in {done.seconds:.1f} s, as run {done.run_id}")  # fmt: skip
    if done.before:
        say(f"{done.before} were added before; --anew adds them again")
    if done.taken:
        say(f"{done.taken} were not added: their ids are taken")
