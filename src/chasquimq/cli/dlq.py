"""`chasqui dlq`: dead letters, seen, sent round again, discarded or written to a file."""

from collections import Counter
from collections.abc import Callable
from shlex import quote
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from chasquimq.arguments import letter_filter
from chasquimq.broker import dlq
from chasquimq.broker.survey import data_in, job_in
from chasquimq.cli import options, values
from chasquimq.cli.consent import consent
from chasquimq.cli.options import Function, Session
from chasquimq.cli.problems import NOT_DONE
from chasquimq.cli.render import (
    NONE,
    clean,
    console,
    counted,
    emit,
    facts,
    fitted,
    instant,
    is_wide,
    listing,
    panel,
    pretty,
    remark,
    say,
    show,
    table,
)
from chasquimq.cli.run import opened, reading, run
from chasquimq.cli.unknown import refusal, remark_if_unknown
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.errors import DlqReason
from chasquimq.wire.entry import DeadLetter
from chasquimq.wire.keys import QueueKeys

_EXPORT_PAGE = 500


def which_options(function: Function) -> Function:
    """Add the options that choose dead letters; the command gets them as one `wanted` dict."""
    options_of_choice = (
        click.option("--id", "ids", multiple=True, metavar="ID",
                     help="Only this one: the id of a dead letter or of a job. May be repeated."),
        click.option("--name", metavar="NAME", help="Only jobs of this name."),
        click.option("--reason", type=click.Choice([str(each) for each in DlqReason]),
                     help="Only of this reason; stalled is the reference engine's."),
    )  # fmt: skip
    for option in reversed(options_of_choice):
        function = option(function)
    return function


@click.group(
    "dlq",
    cls=options.Group,
    examples=["chasqui dlq peek emails", "chasqui dlq replay emails --name welcome"],
)
def command() -> None:
    """See dead letters, replay them, discard them or export them."""


@command.command("peek", examples=["chasqui dlq peek emails --reason retries_exhausted"])
@options.queue_argument
@options.limit_option(20, "Show so many at most.")
@which_options
@options.session
def peek(queue: str, limit: int, session: Session, **which: Any) -> None:  # noqa: ANN401
    """Show the oldest dead letters, without touching them.

    The second table counts those shown by their reason. On a terminal long errors are cut; a narrow
    one leaves source_id out, and has the id of the job below that of the letter. `dlq show` and
    --json have it all.
    """
    letters = _letters(session, queue, limit, which)
    if not letters:
        remark_if_unknown(session, queue)
    if session.as_json:
        for letter in letters:
            emit(shape(letter))
        return
    rows = [_row(letter) for letter in letters]
    columns = [f"dlq peek: {queue}", "source_id", "name", "reason", "detail", "error",
               "payload bytes", "job id"]  # fmt: skip
    if not is_wide(console()):
        # The two tell of different failures: a letter has a detail or an error.
        columns = [f"{columns[0]}\njob id", "name", "reason", "detail / error", "bytes"]
        rows = [(f"{row[0]}\n{row[7]}", row[2], row[3], row[4] or row[5], row[6]) for row in rows]
    numbers = ["payload bytes", "bytes"]
    show(listing(columns, rows or [["(empty)"]], right=numbers, whole=columns[:1]))
    reasons = sorted(Counter(letter.reason for letter in letters).items())
    show(table(["reason", "count"], reasons or [("(no entries)", 0)], right=["count"]))


@command.command("show", examples=["chasqui dlq show emails 1767225600000-0"])
@options.queue_argument
@click.argument("letter_id", metavar="ID")
@options.session
def show_letter(queue: str, letter_id: str, session: Session) -> None:
    """Show one dead letter with its traceback; ID is its own id or that of its job."""
    letters = _letters(session, queue, 1, {"ids": (letter_id,)})
    if not letters:
        peek = f"chasqui dlq peek {quote(queue)}"
        msg = f"there is no dead letter {letter_id!r} in {queue!r}: see  {peek}"
        raise refusal(session, queue, msg)
    if session.as_json:
        emit(shape(letters[0]))
    else:
        show(panel(f"dead letter {letters[0].dlq_id}", _parts(queue, letters[0])))


@command.command(
    "replay",
    examples=[
        "chasqui dlq replay emails",
        "chasqui dlq replay emails --name welcome --limit 10000 --yes",
        "chasqui dlq replay emails --id 1767225600000-0",
    ],
)
@options.queue_argument
@options.limit_option(100, "Replay so many at most.")
@which_options
@options.yes_option
@options.session
def replay(queue: str, limit: int, *, yes: bool, session: Session, **which: Any) -> int:  # noqa: ANN401
    """Send dead letters round again, with a full budget of attempts.

    Any payload is sent as it is; those that hold no job stay where they are. Exit code 1 if one
    that --id names was not replayed.
    """
    return _dispose(session, queue, limit, which, yes=yes, verb=("replay", "replayed"))


@command.command("discard", examples=["chasqui dlq discard emails --reason malformed --yes"])
@options.queue_argument
@options.limit_option(100, "Discard so many at most.")
@which_options
@options.yes_option
@options.session
def discard(queue: str, limit: int, *, yes: bool, session: Session, **which: Any) -> int:  # noqa: ANN401
    """Delete dead letters for good. Exit code 1 if one that --id names was not there."""
    return _dispose(session, queue, limit, which, yes=yes, verb=("discard", "discarded"))


@command.command(
    "export",
    examples=[
        "chasqui dlq export emails > dead.jsonl",
        "chasqui dlq export emails --name welcome --limit 1000",
    ],
)
@options.queue_argument
@click.option("--limit", type=values.positive, metavar="N", help="So many at most.  [default: all]")
@which_options
@options.session
def export(queue: str, limit: int | None, session: Session, **which: Any) -> None:  # noqa: ANN401
    """Write dead letters to stdout, a line of JSON each, oldest first.

    The shape is that of `dlq peek --json`; the envelope itself is in `payload`, as base64. With or
    without --json the output is the same. Letters that arrive meanwhile are part of it.
    """
    wanted, keys = _filter(which), QueueKeys(queue)

    async def write() -> bool:
        after, left, has_any = "-", limit, False
        async with reading(session, keys.tag) as reader:
            while left is None or left > 0:
                most = _EXPORT_PAGE if left is None else min(left, _EXPORT_PAGE)
                page = await reader.walk(dlq.chosen(keys, wanted, limit=most, after=after))
                has_any = has_any or bool(page)
                for letter in page:
                    emit({**shape(letter), "payload": letter.payload})
                if len(page) < most:
                    break
                after = f"({page[-1].dlq_id}"
                left = None if left is None else left - len(page)
        return has_any

    if not run(write()):
        remark_if_unknown(session, queue)


def shape(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter for programs."""
    job = job_in(letter)
    return {
        "dlq_id": letter.dlq_id,
        "source_id": letter.source_id,
        "job_id": job.id if job else None,
        "name": letter.name,
        "reason": letter.reason,
        "detail": letter.detail,
        "error": letter.error,
        "traceback": letter.traceback,
        "attempts": letter.attempts,
        "failed_at_ms": letter.failed_at,
        "created_at_ms": job.created_at_ms if job else None,
        "consumer": letter.consumer,
        "payload_bytes": len(letter.payload),
        "data": data_in(job),
    }


def _filter(which: dict[str, Any]) -> Callable[[DeadLetter], bool]:
    return letter_filter(which["ids"] or None, which.get("name"), which.get("reason"))


def _letters(session: Session, queue: str, limit: int, which: dict[str, Any]) -> list[DeadLetter]:
    keys, wanted = QueueKeys(queue), _filter(which)

    async def look() -> list[DeadLetter]:
        async with reading(session, keys.tag) as reader:
            return await reader.walk(dlq.chosen(keys, wanted, limit=limit))

    return run(look())


def _dispose(
    session: Session,
    queue: str,
    limit: int,
    which: dict[str, Any],
    *,
    yes: bool,
    verb: tuple[str, str],
) -> int:
    letters = _letters(session, queue, limit, which)
    found = len(letters)
    if not found and not which["ids"]:  # of those that are named it is said below
        remark_if_unknown(session, queue)
    if found:
        consent(f"{verb[0]} {counted(found, 'dead letter')} of {queue}", yes=yes)

    async def carry_out() -> int:
        async with opened(session, queue) as open_queue:
            act = open_queue.replay_dlq if verb[0] == "replay" else open_queue.discard_dlq
            ids = list(which["ids"]) or None
            return await act(limit, ids=ids, name=which["name"], reason=which["reason"])

    done = run(carry_out()) if found else 0
    if session.as_json:
        emit({verb[1]: done, "found": found})
    else:
        say(f"{verb[1]} {done} of {found} entries")
    missing = _missing(letters, which["ids"])
    for letter_id in missing:
        remark(f"there is no such dead letter {letter_id}")
    return NOT_DONE if which["ids"] and (missing or done < found) else 0


def _missing(letters: list[DeadLetter], ids: tuple[str, ...]) -> list[str]:
    """Which of the ids that were asked for, of letters or jobs, nothing was found of."""
    found = {letter.dlq_id for letter in letters}
    found |= {job.id for letter in letters if (job := job_in(letter)) is not None}
    return [each for each in ids if each not in found]


def _row(letter: DeadLetter) -> tuple[object, ...]:
    job = job_in(letter)
    return (
        letter.dlq_id,
        letter.source_id,
        letter.name or "-",
        letter.reason,
        fitted(letter.detail or ""),
        fitted(letter.error or ""),
        len(letter.payload),
        job.id if job else NONE,
    )


def _parts(queue: str, letter: DeadLetter) -> list[RenderableType]:
    found, now_ms = shape(letter), SYSTEM_CLOCK.now_ms()
    parts: list[RenderableType] = [
        facts(
            [
                ("queue", queue),
                ("job", found["job_id"]),
                ("name", letter.name or None),
                ("reason", letter.reason),
                ("detail", letter.detail),
                ("error", letter.error),
                ("attempts", letter.attempts),
                ("failed", instant(letter.failed_at, now_ms)),
                ("created", instant(found["created_at_ms"], now_ms)),
                ("consumer", letter.consumer),
                ("source_id", letter.source_id),
                ("payload", f"{len(letter.payload)} bytes"),
            ]
        )
    ]
    if found["job_id"] is not None:
        parts += [Text("\ndata", "dim"), Text(pretty(found["data"]))]
    if letter.traceback:
        parts += [Text("\ntraceback", "dim"), Text(clean(letter.traceback).rstrip())]
    return parts
