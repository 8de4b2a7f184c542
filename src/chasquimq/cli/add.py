"""`chasqui add`: put jobs into a queue."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import click

from chasquimq.cli import options, values
from chasquimq.cli.options import Session
from chasquimq.cli.render import counted, emit, say
from chasquimq.cli.run import opened, run
from chasquimq.given import chosen
from chasquimq.job import Job
from chasquimq.queue import Queue

# So many jobs travel in one pipeline; a mistake in a later line leaves the earlier thousands in.
_BATCH = 1_000
_POSITION = re.compile(r"jobs\[(\d+)\]")


@click.command(
    "add",
    cls=options.Command,
    examples=[
        'chasqui add emails welcome \'{"to": "ada@example.com"}\'',
        "chasqui add emails welcome @letter.json --delay 5m --attempts 3",
        "echo '[1, 2]' | chasqui add sums sum -",
        "chasqui add emails welcome --bulk people.jsonl",
        "chasqui add emails --bulk jobs.jsonl",
    ],
)
@options.queue_argument
@click.argument("name", required=False)
@click.argument("data", required=False)
@click.option(
    "--delay",
    type=values.duration,
    metavar="DURATION",
    help="Run it so much later, e.g. 30s, 5m, 2h; at most 30d.",
)
@click.option(
    "--at",
    type=values.instant,
    metavar="INSTANT",
    help="Run it then, at most 30 days from now; written like 2030-01-31T08:00:00Z.",
)
@click.option(
    "--attempts",
    type=values.positive,
    metavar="N",
    help="Run it so often at most, the first run included.",
)
@click.option(
    "--backoff",
    type=values.backoff,
    metavar="BACKOFF",
    help="Wait between runs: 5s, exponential:1s, exponential:1s:5m with a cap, or a JSON object. "
    "Without a cap workers wait 30s at most, unless told otherwise.",
)
@click.option("--job-id", metavar="ID", help="An id of your own: the job is added only once.")
@click.option("--bulk", metavar="FILE", help="A job for each line of JSON in FILE (- is stdin).")
@options.session
def command(  # noqa: PLR0913 -- one parameter an option
    queue: str,
    name: str | None,
    data: str | None,
    *,
    delay: int | None,
    at: datetime | None,
    attempts: int | None,
    backoff: Any,  # noqa: ANN401 -- as `Queue.add` takes it
    job_id: str | None,
    bulk: str | None,
    session: Session,
) -> None:
    """Add a job, now or later.

    DATA is JSON, @FILE with JSON, or - for JSON on stdin; left out it is null. With --bulk and a
    NAME each line is the data of one job; without a NAME each line is an object with the arguments
    of Queue.add: {"name": ..., "data": ..., "delay_ms": ..., "attempts": ..., "job_id": ...}.
    """
    if delay is not None and at is not None:
        msg = "--delay and --at are two ways to say the same: use one"
        raise click.UsageError(msg)
    asked = chosen(delay_ms=at or delay, attempts=attempts, backoff=backoff, job_id=job_id)
    if bulk is None:
        _add_one(session, queue, {"name": name, "data": data, **asked})
    elif data is not None or job_id is not None:
        msg = "--bulk takes data and ids from its lines: leave DATA and --job-id out"
        raise click.UsageError(msg)
    else:
        run(_add_lines(session, queue, bulk, name, asked))
    values.remark_if_cut(backoff)


def _add_one(session: Session, queue: str, entry: dict[str, Any]) -> None:
    if entry["name"] is None:
        msg = "a NAME is missing: chasqui add QUEUE NAME [DATA]"
        raise click.UsageError(msg)
    entry["data"] = values.job_data(entry["data"])

    async def add() -> Job:
        async with opened(session, queue, may_be_new=True) as open_queue:
            return await open_queue.add(**entry)

    _tell(session, run(add()))


async def _add_lines(
    session: Session, queue: str, source: str, name: str | None, asked: dict[str, Any]
) -> None:
    lines = values.json_lines(source)
    added = taken = 0
    async with opened(session, queue, may_be_new=True) as open_queue:
        while batch := list(islice(lines, _BATCH)):
            jobs = await _add_batch(open_queue, batch, _entries(batch, name, asked), added)
            added += len(jobs)
            taken += sum(job.deduplicated for job in jobs)
            if session.as_json:
                for job in jobs:
                    _tell(session, job)
    if not session.as_json:
        told = f", {taken} {'was' if taken == 1 else 'were'} there already" if taken else ""
        say(f"added {counted(added - taken, 'job')}{told}")


def _entries(
    batch: list[tuple[int, Any]], name: str | None, asked: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    for number, value in batch:
        if name is not None:
            yield {"name": name, "data": value, **asked}
        elif isinstance(value, dict):
            yield {"data": None, **asked, **value}
        else:
            msg = f'line {number} is no object: write {{"name": ...}}, or give a NAME for all'
            raise click.UsageError(msg)


async def _add_batch(
    queue: Queue, batch: list[tuple[int, Any]], entries: Iterator[dict[str, Any]], before: int
) -> list[Job]:
    try:
        return await queue.add_bulk(list(entries))
    except (ValueError, TypeError, click.UsageError) as error:
        told = error.message if isinstance(error, click.UsageError) else str(error)
        told = _POSITION.sub(lambda found: f"line {batch[int(found[1])][0]}", told)
        were = "was" if before == 1 else "were"
        msg = f"{told} ({counted(before, 'job')} of earlier lines {were} added)"
        raise click.UsageError(msg) from error


def _tell(session: Session, job: Job) -> None:
    if session.as_json:
        emit({"id": job.id, "name": job.name, "deduplicated": job.deduplicated})
    else:
        say(f"{job.id} was there already" if job.deduplicated else f"added {job.id}")
