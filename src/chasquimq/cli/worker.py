"""`chasqui worker`: run a handler or an app, in one process or in several that are looked after."""

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

import chasquimq
from chasquimq.cli import logs, options
from chasquimq.cli.fleet import run_fleet
from chasquimq.cli.loading import LoadError
from chasquimq.cli.render import clean
from chasquimq.cli.serving import HIGHEST_PORT, Ready, Settings, Shift
from chasquimq.cli.spark import spark_options
from chasquimq.cli.supervisor import Supervisor
from chasquimq.cli.values import MOST_PROCESSES, duration, positive
from chasquimq.cli.values import processes as number_of_processes
from chasquimq.config import LEAST_LEASE_MS, RATE_LIMIT_SCOPES
from chasquimq.given import chosen
from chasquimq.loops import run_on_loop

# Those of `Worker` that have a flag, under the same name; what is not given is not passed on.
_WORKER_OPTIONS: tuple[Callable[[options.Function], options.Function], ...] = (
    click.option("--concurrency", "-c", type=positive, metavar="N",
                 help="Jobs at a time in each process and queue. [default: 100]"),
    click.option("--max-attempts", type=positive, metavar="N",
                 help="Runs of a job that brings no number of its own. [default: 25]"),
    click.option("--store-results", is_flag=True, default=None,
                 help="Keep what handlers return."),
    click.option("--result-ttl-ms", type=positive, metavar="MS",
                 help="For how long. [default: an hour]"),
    click.option("--group", metavar="NAME", help="The consumer group. [default: default]"),
    click.option("--claim-min-idle-ms", type=positive, metavar="MS",
                 help="The lease: take over jobs of a worker that is silent for so long, "
                      f"{LEAST_LEASE_MS} at least. [default: 30000]"),
    click.option("--shutdown-deadline-secs", type=float, metavar="SECS",
                 help="How long a stop waits for running jobs. [default: 30]"),
    click.option("--rate-limit-max", type=positive, metavar="N",
                 help="Take so many jobs at most in the time below. [default: no limit]"),
    click.option("--rate-limit-duration", "rate_limit_duration_ms", type=duration,
                 metavar="DURATION",
                 help="That time: 500ms, 1s, 1m; with --rate-limit-max only. [default: 1s]"),
    click.option("--rate-limit-scope", type=click.Choice(RATE_LIMIT_SCOPES),
                 help="Whose limit it is: of all workers of the queue, or of each process; "
                      "likewise. [default: queue]"),
    click.option("--metrics-port", type=click.IntRange(0, HIGHEST_PORT), metavar="PORT",
                 help="Serve /metrics, /healthz and /readyz there; each further queue and process "
                      "takes the next port, 0 is any free one. [default: not served]"),
    click.option("--metrics-host", metavar="HOST",
                 help="And on this address. [default: 127.0.0.1]"),
    click.option("--run-scheduler/--no-scheduler", default=None,
                 help="Fire recurring jobs. [default: yes]"),
    click.option("--delayed-enabled/--no-promoter", default=None,
                 help="Move delayed jobs that are due. [default: yes]"),
    click.option("--events-enabled/--no-events", default=None,
                 help="Write the events stream. [default: yes]"),
)  # fmt: skip

# Those of `SparkWorker` alone, under the same name.
_FLEET_OPTIONS: tuple[Callable[[options.Function], options.Function], ...] = (
    click.option("--slots", type=positive, metavar="N",
                 help="With --engine spark: tasks that take jobs, in each queue. [default: 2]"),
    click.option("--batch", type=click.Choice(["arrow", "pandas"]),
                 help="With --engine spark: the function gets whole batches of jobs, as a "
                      "pyarrow.Table or a pandas DataFrame. [default: job by job]"),
    click.option("--batch-size", type=positive, metavar="N",
                 help="Jobs in a batch, at most; with --batch only. [default: 1000]"),
    click.option("--schema", metavar="DDL",
                 help="Fields of the payload that are a column each, as 'id bigint, who string'; "
                      "with --batch only. [default: one column of JSON]"),
)  # fmt: skip
_FLAGS_OF_A_FLEET = {
    "slots": "--slots", "batch": "--batch", "batch_size": "--batch-size", "schema": "--schema",
}  # fmt: skip
_PARTS_OF_A_BATCH = ("batch_size", "schema")
_SPARKS = (*_FLAGS_OF_A_FLEET.values(), "--master", "--conf")

# A fleet's tasks come and go: they have no port of their own, and no name to be limited by.
_NATIVE_OPTIONS = {"metrics_port", "metrics_host", "rate_limit_scope"}
_OF_PROCESSES = (
    "--processes, --max-jobs, --max-memory-mb, --reload, --uvloop, --metrics-port, --metrics-host "
    "and --rate-limit-scope are of processes of this machine: with --engine spark use --slots"
)

_PARTS_OF_A_LIMIT = {
    "rate_limit_duration_ms": "--rate-limit-duration",
    "rate_limit_scope": "--rate-limit-scope",
}


def worker_options(function: options.Function) -> options.Function:
    """Add every option of `Worker` that has a flag."""
    for option in reversed(_WORKER_OPTIONS):
        function = option(function)
    return function


def fleet_options(function: options.Function) -> options.Function:
    """Add the options of `SparkWorker` that `Worker` does not have."""
    for option in reversed(_FLEET_OPTIONS):
        function = option(function)
    return function


# The shortest app there is, for `--help`.
_APP = """
A tasks.py for `chasqui worker tasks:app`, whose jobs wait in the queue named default:
  from chasquimq import Chasqui
  app = Chasqui()

  @app.task
  async def welcome(to): print(f"welcome, {to}")

Data is an object of arguments by name: chasqui add default welcome '{"to": "ada"}'
"""


@click.command(
    "worker",
    cls=options.Command,
    preface=_APP,
    examples=[
        "chasqui worker tasks:app              # the app in tasks.py, all its queues",
        "chasqui worker tasks:handle emails    # a function of one Job, for one queue",
        "chasqui worker tasks:app --reload     # while you write it",
        "chasqui worker tasks:app --burst      # until there is nothing left to do",
        "chasqui worker tasks:app --processes 4 --concurrency 50 --max-jobs 10000",
        "chasqui worker tasks:handle emails --engine spark --slots 8 --master spark://host:7077",
        "chasqui worker tasks:handle emails --engine spark --conf spark.executor.memory=2g",
        "chasqui worker tasks:score orders --engine spark --batch arrow --schema 'total double'",
    ],
)
@click.argument("target", metavar="MODULE:NAME")
@click.argument("queue", required=False)
@click.option(
    "--queue",
    "-q",
    "more_queues",
    multiple=True,
    metavar="QUEUE",
    help="Work on this queue; may be repeated. [default: the queues of the app]",
)
@click.option(
    "--engine",
    type=click.Choice(["native", "spark"]),
    default="native",
    show_default=True,
    help="Where handlers run: in processes of this machine, or on Spark's executors.",
)
@fleet_options
@click.option(
    "--master",
    metavar="URL",
    help="With --engine spark: where Spark runs. [default: local[*], or $MASTER]",
)
@functools.partial(spark_options, only="With --engine spark")
@click.option(
    "--processes",
    "-p",
    type=number_of_processes,
    default=1,
    show_default=True,
    metavar="N",
    help=f"Run so many, {MOST_PROCESSES} at most; one that dies is replaced.",
)
@click.option(
    "--max-jobs",
    type=positive,
    metavar="N",
    help="Replace a process after so many jobs; those begun by then are finished.",
)
@click.option(
    "--max-memory-mb",
    type=positive,
    metavar="MB",
    help="Replace a process that has grown beyond this; looked at once a second.",
)
@click.option(
    "--reload",
    "is_reloading",
    is_flag=True,
    help="Start anew when a source file below --app-dir changes.",
)
@click.option(
    "--burst",
    "is_burst",
    is_flag=True,
    help="End once nothing waits, nothing is in flight and nothing delayed is due.",
)
@click.option(
    "--app-dir",
    default=".",
    metavar="DIR",
    show_default="the current one",
    type=click.Path(exists=True, file_okay=False),
    help="Where MODULE is looked for first.",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    show_default=True,
    help="From info on each job is a line.",
)
@click.option(
    "--uvloop/--no-uvloop",
    "use_uvloop",
    default=None,
    help="Use that event loop. [default: if it is installed]",
)
@worker_options
@click.option("--json", "as_json", is_flag=True, help="Write the log as JSON, an object a line.")
@options.redis_url_option
def command(  # noqa: PLR0913 -- the documented options
    *,
    target: str,
    queue: str | None,
    more_queues: tuple[str, ...],
    engine: str,
    master: str | None,
    conf: dict[str, str],
    verbose: bool,
    processes: int,
    max_jobs: int | None,
    max_memory_mb: int | None,
    is_reloading: bool,
    is_burst: bool,
    app_dir: str,
    log_level: str,
    use_uvloop: bool | None,
    redis_url: str | None,
    as_json: bool,
    **given: Any,  # noqa: ANN401 -- the options of `Worker`, by name
) -> int:
    """Run the jobs of a queue with a function or an app of yours.

    MODULE:NAME is a function of one Job, plain or async, or a Chasqui app, whose tasks are chosen
    by the name of the job. SIGTERM or Ctrl+C stops gracefully: running jobs are finished, those not
    begun are handed back. The second time stops at once.
    """
    fleet = chosen(**{name: given.pop(name) for name in _FLAGS_OF_A_FLEET})
    settings = Settings(
        target=target,
        app_dir=app_dir,
        queues=[*([queue] if queue else []), *more_queues],
        redis_url=redis_url or click.get_current_context().find_root().params.get("redis_url"),
        options=chosen(**given),
        is_burst=is_burst,
        max_jobs=max_jobs,
        max_memory_mb=max_memory_mb,
        log_level=log_level,
        as_json=as_json,
        use_uvloop=use_uvloop,
    )
    logs.set_up(log_level, as_json=as_json)
    greet = _greet_in_json if as_json else _greet
    is_looked_after = processes > 1 or is_reloading or max_jobs or max_memory_mb
    is_native = is_looked_after or use_uvloop is not None
    if engine == "spark" and (is_native or settings.options.keys() & _NATIVE_OPTIONS):
        raise click.UsageError(_OF_PROCESSES)
    _require_whole_limit(settings.options)
    if engine == "spark":
        _require_batches(fleet)
        return run_fleet(
            settings,
            fleet,
            conf=_with_master(conf, master),
            is_verbose=verbose,
            greet=lambda ready: greet(ready, None),
        )
    if fleet or master is not None or conf or verbose:
        msg = f"{', '.join(_SPARKS)} and --verbose are Spark's: add --engine spark"
        raise click.UsageError(msg)
    if "metrics_port" in settings.options:
        _require_metrics()
    if not is_looked_after:
        return _alone(settings, greet)

    async def supervise() -> int:
        return await Supervisor(
            settings,
            processes=processes,
            is_reloading=is_reloading,
            on_ready=lambda ready: greet(ready, processes),
        ).run()

    return run_on_loop(supervise(), use_uvloop=False)


def _require_whole_limit(given: dict[str, Any]) -> None:
    """A time or a scope without a number limits nothing, which nobody means who writes it."""
    if "rate_limit_max" in given:
        return
    for option, flag in _PARTS_OF_A_LIMIT.items():
        if option in given:
            msg = f"{flag} limits nothing without a number of jobs: add --rate-limit-max N"
            raise click.UsageError(msg)


def _require_batches(fleet: dict[str, Any]) -> None:
    """What is said of batches means nothing to a function that gets job by job."""
    for option in _PARTS_OF_A_BATCH:
        if option in fleet and "batch" not in fleet:
            flag = _FLAGS_OF_A_FLEET[option]
            msg = f"{flag} is for whole batches: add --batch arrow or --batch pandas"
            raise click.UsageError(msg)


def _require_metrics() -> None:
    """Say in a line, before a process is started, that the extra is missing."""
    try:
        import chasquimq.prometheus  # noqa: F401, PLC0415 -- an extra
    except ModuleNotFoundError as error:
        raise click.UsageError(str(error)) from None


def _with_master(conf: dict[str, str], master: str | None) -> dict[str, str]:
    if master is None:
        return conf
    if conf.get("spark.master", master) != master:
        msg = f"--master is {master}, --conf says spark.master={conf['spark.master']}: give one"
        raise click.UsageError(msg)
    return {**conf, "spark.master": master}


def _alone(settings: Settings, greet: Callable[[Ready, int | None], None]) -> int:
    async def work() -> None:
        shift = Shift(settings)
        greet(await shift.check(), 1)
        await shift.run()

    try:
        run_on_loop(work(), use_uvloop=settings.use_uvloop)
    except LoadError as error:
        sys.stderr.write(error.details)
        raise
    return 0


def _greet(ready: Ready, processes: int | None) -> None:
    """Say what runs; Spark, not we, knows how many processes that takes."""
    lines = [
        f"chasqui worker {chasquimq.version()}",
        f"  handler    {ready.handler}",
        f"  queue      {', '.join(ready.queues)}",
        f"  server     {ready.server}",
        f"  processes  {processes}" if processes is not None else "  engine     spark",
        "Ctrl+C to stop, twice to stop at once",
    ]
    click.echo(clean("\n".join(lines)), err=True)


def _greet_in_json(ready: Ready, processes: int | None) -> None:
    known = {"version": chasquimq.version(), "processes": processes, **asdict(ready)}
    click.echo(json.dumps(known), err=True)
