"""`chasqui job`: one job, wherever it is."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from chasquimq.broker import dlq
from chasquimq.broker.inspect import JobState, Located, locate
from chasquimq.broker.survey import data_in, due_ms, job_in, last_failure
from chasquimq.cli import options
from chasquimq.cli.consent import consent
from chasquimq.cli.options import Session
from chasquimq.cli.problems import NOT_DONE, Refusal
from chasquimq.cli.render import clean, emit, facts, instant, panel, pretty, remark, say, show
from chasquimq.cli.run import Reader, opened, reading, run
from chasquimq.cli.unknown import refusal
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.engine.outcomes import JobResult, OutcomeStatus
from chasquimq.queue import Queue
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.envelope import Envelope
from chasquimq.wire.event import QueueEvent
from chasquimq.wire.keys import QueueKeys

_STYLES = {
    JobState.ACTIVE: "yellow",
    JobState.COMPLETED: "green",
    JobState.FAILED: "red",
}


_TRIED_AGAIN = (JobState.DELAYED, JobState.WAITING, JobState.ACTIVE)
# A job's birthday is by its producer's clock, an event's id by the server's.
_CLOCK_SKEW_MS = 60_000


@dataclass(frozen=True, slots=True)
class Found:
    """All there is to know about one job."""

    located: Located
    outcome: JobResult
    due_ms: int | None
    letter: DeadLetter | None
    progress: int | None
    log_count: int
    last_failure: QueueEvent | None = None
    """Of a job that has failed and will be tried again, or is."""


@click.group("job", cls=options.Group, examples=["chasqui job show emails 01JH..."])
def command() -> None:
    """See one job, its log lines, remove it or send it round again."""


@command.command("show", examples=["chasqui job show emails 01JH..."])
@options.queue_argument
@click.argument("job_id")
@options.group_option
@options.session
def show_job(queue: str, job_id: str, group: str, session: Session) -> None:
    """Show a job: where it is, its data, attempts, times, result, and why it failed.

    Looking for an old job without an index reads the queue, a page at a time. The last error of a
    job that will be tried again is read from the events: it is not there if they are off or gone.
    """
    found = run(_find(session, queue, job_id, group))
    if found.located.state is JobState.UNKNOWN and found.outcome.status is OutcomeStatus.UNKNOWN:
        raise _no_such_job(session, queue, job_id)
    if session.as_json:
        emit(_shape(job_id, found))
    else:
        show(panel(f"job {job_id}", _parts(queue, found)))


@command.command("logs", examples=["chasqui job logs emails 01JH..."])
@options.queue_argument
@click.argument("job_id")
@options.limit_option(100, "Show the last N lines.")
@options.session
def logs(queue: str, job_id: str, limit: int, session: Session) -> None:
    """Print the lines that a job logged, the oldest first. Exit code 1 if there is no such job."""

    async def look() -> tuple[list[str], int, bool]:
        async with opened(session, queue) as open_queue:
            found = await open_queue.get_job_logs(job_id, -limit, -1)
            is_known = bool(found.count) or (
                await open_queue.get_job_state(job_id) is not JobState.UNKNOWN
            )
            return found.lines, found.count, is_known

    lines, count, is_known = run(look())
    if not is_known:
        raise _no_such_job(session, queue, job_id)
    if session.as_json:
        emit({"id": job_id, "count": count, "lines": lines})
        return
    for line in lines:
        say(line)
    if not lines:
        click.echo(f"job {clean(job_id)} has logged nothing, or it is not kept any more", err=True)


@command.command("remove", examples=["chasqui job remove emails 01JH..."])
@options.queue_argument
@click.argument("job_id")
@options.yes_option
@options.session
def remove(queue: str, job_id: str, session: Session, *, yes: bool) -> int:
    """Take a job that is waiting or delayed out of the queue."""
    consent(f"remove job {clean(job_id)} of {queue}", yes=yes)
    why_not = "is neither waiting nor delayed: it runs, ended, or never was"
    return _act(session, queue, job_id, Queue.remove, ("removed", why_not))


@command.command("retry", examples=["chasqui job retry emails 01JH..."])
@options.queue_argument
@click.argument("job_id")
@options.needless_yes_option
@options.session
def retry(queue: str, job_id: str, session: Session) -> int:
    """Send a dead job round again, with a full budget of attempts."""
    why_not = "is not in the dead-letter queue"
    return _act(session, queue, job_id, Queue.retry_job, ("sent round again", why_not))


def _no_such_job(session: Session, queue: str, job_id: str) -> Refusal:
    msg = (
        f"there is no job {job_id!r} in {queue!r}: it never was, or it completed under a "
        "worker that stores no results"
    )
    return refusal(session, queue, msg)


def _act(
    session: Session,
    queue: str,
    job_id: str,
    act: Callable[[Queue, str], Awaitable[bool]],
    words: tuple[str, str],
) -> int:
    async def carry_out() -> bool:
        async with opened(session, queue) as open_queue:
            return await act(open_queue, job_id)

    return answer_each(session, {job_id: run(carry_out())}, *words)


def answer_each(session: Session, answers: Mapping[str, bool], done: str, why_not: str) -> int:
    """Say of each job whether it was `done`; exit code 1 if one was not."""
    for job_id, is_done in answers.items():
        if session.as_json:
            emit({"id": job_id, "done": is_done})
        elif is_done:
            say(f"{done} {job_id}")
        else:
            remark(f"job {job_id} {why_not}")
    return 0 if all(answers.values()) else NOT_DONE


async def _find(session: Session, queue: str, job_id: str, group: str) -> Found:
    keys = QueueKeys(queue)
    async with opened(session, queue, group) as open_queue, reading(session, keys.tag) as reader:
        located = await reader.walk(locate(keys, group, job_id))
        is_delayed = located.state is JobState.DELAYED
        job = located.envelope
        has_failed = job is not None and job.attempt > 0 and located.state in _TRIED_AGAIN
        return Found(
            located,
            await open_queue.get_outcome(job_id),
            await reader.walk(due_ms(keys, job_id)) if is_delayed else None,
            await _letter(reader, keys, job_id) if located.state is JobState.FAILED else None,
            await open_queue.get_job_progress(job_id),
            (await open_queue.get_job_logs(job_id, 0, 0)).count,
            await _failure(reader, keys, job) if job and has_failed else None,
        )


async def _failure(reader: Reader, keys: QueueKeys, job: Envelope) -> QueueEvent | None:
    since_ms = job.created_at_ms - _CLOCK_SKEW_MS
    return await reader.walk(last_failure(keys, job.id, since_ms=since_ms))


async def _letter(reader: Reader, keys: QueueKeys, job_id: str) -> DeadLetter | None:
    def is_of_the_job(letter: DeadLetter) -> bool:
        job = job_in(letter)
        return job is not None and job.id == job_id

    letters = await reader.walk(dlq.chosen(keys, is_of_the_job, limit=1))
    return letters[0] if letters else None


def _shape(job_id: str, found: Found) -> dict[str, Any]:
    job, letter, outcome = found.located.envelope, found.letter, found.outcome
    return {
        "id": job_id,
        "name": found.located.name or None,
        "state": found.located.state,
        "data": data_in(job),
        "attempts": _attempts(found),
        "max_attempts": job.retry.max_attempts if job and job.retry else None,
        "created_at_ms": job.created_at_ms if job else None,
        "due_ms": found.due_ms,
        "failed_at_ms": letter.failed_at if letter else None,
        "progress": found.progress,
        "log_lines": found.log_count,
        "outcome": outcome.status,
        "result": outcome.value,
        "reason": outcome.reason,
        "last_error": _last_error(found),
        "error": (letter.error if letter else None) or outcome.error,
        "traceback": letter.traceback if letter else None,
        "dlq_id": letter.dlq_id if letter else None,
    }


def _last_error(found: Found) -> str | None:
    return str(found.last_failure.fields.get("reason")) if found.last_failure else None


def _attempts(found: Found) -> int | None:
    job, letter = found.located.envelope, found.letter
    if letter is not None and letter.attempts is not None:
        return letter.attempts
    return job.attempt + found.located.deliveries if job else None


def _parts(queue: str, found: Found) -> list[RenderableType]:
    shape, now_ms = _shape("", found), SYSTEM_CLOCK.now_ms()
    state = Text(found.located.state, _STYLES.get(found.located.state, "bold"))
    most = shape["max_attempts"]
    attempts = shape["attempts"]
    parts: list[RenderableType] = [
        facts(
            [
                ("queue", queue),
                ("name", shape["name"]),
                ("state", state),
                ("attempts", attempts if most is None else f"{attempts or 0} of {most}"),
                ("progress", None if found.progress is None else f"{found.progress} %"),
                ("created", instant(shape["created_at_ms"], now_ms)),
                ("due", instant(found.due_ms, now_ms)),
                ("failed", instant(shape["failed_at_ms"], now_ms)),
                ("log lines", found.log_count or None),
                ("outcome", shape["outcome"]),
                ("reason", shape["reason"]),
                ("error", shape["error"]),
                ("last error", shape["last_error"]),
            ]
        )
    ]
    if found.located.envelope is not None:
        parts += [Text("\ndata", "dim"), Text(pretty(shape["data"]))]
    if found.outcome.status is OutcomeStatus.OK:
        parts += [Text("\nresult", "dim"), Text(pretty(found.outcome.value))]
    if shape["traceback"]:
        parts += [Text("\ntraceback", "dim"), Text(clean(shape["traceback"]).rstrip())]
    return parts
