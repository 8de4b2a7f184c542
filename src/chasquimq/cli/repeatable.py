"""`chasqui repeatable`: recurring jobs."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, tzinfo
from shlex import quote
from typing import Any

import click

from chasquimq.broker.repeats import StoredSpec
from chasquimq.broker.survey import spec as one_spec
from chasquimq.broker.survey import specs
from chasquimq.cli import options, values
from chasquimq.cli.options import Session
from chasquimq.cli.problems import Refusal
from chasquimq.cli.render import away, emit, facts, instant, iso, listing, panel, say, show
from chasquimq.cli.run import opened, reading, run
from chasquimq.cli.unknown import refusal, remark_if_unknown
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.queue import Queue
from chasquimq.recurring import describe, describe_stored, next_fires, pattern_of, zone_of
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import SHORTEST_INTERVAL_MS, RepeatPattern

_PREVIEWED = 3

key_argument = click.argument("key")


@click.group(
    "repeatable",
    cls=options.Group,
    examples=[
        "chasqui repeatable add reports digest --cron '0 8 * * MON' --tz Europe/Berlin",
        "chasqui repeatable ls reports",
    ],
)
def command() -> None:
    """See, add, pause, resume, run or remove recurring jobs."""


@command.command("ls", examples=["chasqui repeatable ls reports"])
@options.queue_argument
@options.limit_option(100, "Show so many at most.")
@options.session
def ls(queue: str, limit: int, session: Session) -> None:
    """List recurring jobs, the one that fires next on top."""
    keys = QueueKeys(queue)

    async def look() -> list[StoredSpec]:
        async with reading(session, keys.tag) as reader:
            return await reader.walk(specs(keys, limit=limit))

    found = run(look())
    if not found:
        remark_if_unknown(session, queue)
    if session.as_json:
        for stored in found:
            emit(_shape(stored))
        return
    now_ms = SYSTEM_CLOCK.now_ms()
    columns = [f"repeatable: {queue}", "job_name", "pattern", "tz", "next fire (ms)", "limit"]
    rows = [_row(stored, now_ms) for stored in found]
    show(listing(columns, rows or [["(none)"]], whole=columns[:1]))


@command.command(
    "add",
    examples=[
        "chasqui repeatable add reports digest --cron '0 8 * * MON' --tz Europe/Berlin",
        "chasqui repeatable add health ping --every 30s --limit 100",
        "chasqui repeatable add reports digest --cron '@daily' --dry-run",
    ],
)
@options.queue_argument
@click.argument("name")
@click.argument("data", required=False)
@click.option("--cron", metavar="EXPR", help="When: 5 fields, 6 with seconds in front, 7 with "
              "a year at the end; or @hourly, @daily, ...")  # fmt: skip
@click.option(
    "--every",
    type=values.duration,
    metavar="DURATION",
    help="How often, instead of --cron: 30s, 5m, 2h.",
)
@click.option("--tz", metavar="ZONE", help="Zone of --cron: Europe/Berlin, +05:30.  [default: UTC]")
@click.option("--limit", type=values.positive, metavar="N", help="Fire so often at most.")
@click.option(
    "--start",
    type=values.local_time,
    metavar="INSTANT",
    help="Not before, e.g. 2030-01-31T08:00, in the zone of --tz, or with an offset; --every is "
    "counted from it.",
)
@click.option("--end", type=values.local_time, metavar="INSTANT", help="Not after, likewise.")
@click.option(
    "--attempts",
    type=values.positive,
    metavar="N",
    help="Run each so often at most, the first run included.",
)
@click.option(
    "--backoff",
    type=values.backoff,
    metavar="BACKOFF",
    help="Wait between runs, as for `add`: 5s, exponential:1s:5m, or JSON.",
)
@click.option("--job-id", metavar="ID", help="First part of the ids of fired jobs, for the key.")
@click.option(
    "--missed-fires",
    metavar="POLICY",
    default="skip",
    show_default=True,
    help="After an outage: skip, fire-once, or fire-all:N (N at most).",
)
@click.option("--dry-run", is_flag=True, help="Only say when it would fire; store nothing.")
@options.session
def add(  # noqa: PLR0913 -- one parameter an option
    queue: str,
    name: str,
    data: str | None,
    *,
    cron: str | None,
    every: int | None,
    tz: str | None,
    limit: int | None,
    start: datetime | None,
    end: datetime | None,
    missed_fires: str,
    dry_run: bool,
    session: Session,
    **retry: Any,  # noqa: ANN401 -- as `upsert_repeatable_job` takes it
) -> None:
    """Store a recurring job; one of the same name and pattern is replaced.

    DATA is JSON, @FILE with JSON, or - for JSON on stdin; left out it is null.
    """
    pattern = _pattern(cron, every, tz)
    zone = zone_of(pattern)
    start, end = (each and values.in_zone(each, zone) for each in (start, end))
    policy = values.missed_fires(missed_fires)
    key, value = None, values.job_data(data)

    async def store() -> str:
        async with opened(session, queue, may_be_new=True) as open_queue:
            job = await open_queue.upsert_repeatable_job(
                name,
                value,
                repeat=pattern,
                limit=limit,
                start_after_ms=values.epoch_ms(start),
                end_before_ms=values.epoch_ms(end),
                missed_fires=policy,
                **retry,
            )
            return job.id

    fires = _fires(pattern, limit, start, end)
    if not dry_run:
        key = run(store())
        stored = _stored(session, queue, key)
        if stored is not None:  # else it has fired for the last time already
            fires = _upcoming(stored, pattern, len(fires))
    _tell_fires(session, key, pattern, fires)
    values.remark_if_cut(retry["backoff"])


@command.command("next", examples=["chasqui repeatable next reports KEY --count 10"])
@options.queue_argument
@key_argument
@click.option("--count", type=click.IntRange(min=1, max=1_000), default=5, show_default=True,
              metavar="N", help="So many.")  # fmt: skip
@options.session
def next_(queue: str, key: str, count: int, session: Session) -> None:
    """Show when a recurring job fires next."""
    stored = _stored(session, queue, key)
    if stored is None:
        raise _no_such_key(session, queue, key)
    if stored.spec is None:
        msg = f"the recurring job {key!r} cannot be read: {stored.problem}"
        raise Refusal(msg)
    pattern = stored.spec.pattern
    fires = _upcoming(stored, pattern, count)
    _tell_fires(session, key, pattern, fires, is_paused=stored.is_paused)


@command.command("pause", examples=["chasqui repeatable pause reports KEY"])
@options.queue_argument
@key_argument
@options.session
def pause(queue: str, key: str, session: Session) -> None:
    """Let the windows of a recurring job pass without firing."""
    _switch(session, queue, key, "paused", Queue.pause_repeatable)


@command.command("resume", examples=["chasqui repeatable resume reports KEY"])
@options.queue_argument
@key_argument
@options.session
def resume(queue: str, key: str, session: Session) -> None:
    """Fire a paused recurring job again, from its next window on."""
    _switch(session, queue, key, "resumed", Queue.resume_repeatable)


@command.command("run", examples=["chasqui repeatable run reports KEY"])
@options.queue_argument
@key_argument
@options.session
def run_now(queue: str, key: str, session: Session) -> None:
    """Fire a recurring job once, now, besides its windows."""

    async def fire() -> str | None:
        async with opened(session, queue) as open_queue:
            return await open_queue.run_repeatable_now(key)

    job_id = run(fire())
    if job_id is None:
        raise _no_such_key(session, queue, key)
    if session.as_json:
        emit({"key": key, "id": job_id})
    else:
        say(f"added {job_id}")


@command.command("rm", examples=["chasqui repeatable rm reports KEY"])
@options.queue_argument
@key_argument
@options.needless_yes_option
@options.session
def rm(queue: str, key: str, session: Session) -> None:
    """Forget a recurring job; jobs it has fired stay. Done twice, the second says `not found`.

    Exit code 0 both times: it is gone, which is what was asked for.
    """

    async def forget() -> bool:
        async with opened(session, queue) as open_queue:
            return await open_queue.remove_repeatable_by_key(key)

    removed = run(forget())
    if not removed:
        remark_if_unknown(session, queue)
    if session.as_json:
        emit({"key": key, "removed": removed})
    else:
        say("removed" if removed else "not found")


# The names of the reference command line.
command.add_command(ls, "list")
command.add_command(rm, "remove")


def _switch(
    session: Session,
    queue: str,
    key: str,
    done: str,
    act: Callable[[Queue, str], Awaitable[bool]],
) -> None:
    async def carry_out() -> bool:
        async with opened(session, queue) as open_queue:
            return await act(open_queue, key)

    if not run(carry_out()):
        raise _no_such_key(session, queue, key)
    if session.as_json:
        emit({"key": key, "paused": done == "paused"})
    else:
        say(f"{done} {key}")


def _no_such_key(session: Session, queue: str, key: str) -> Refusal:
    msg = (
        f"there is no recurring job {key!r} in {queue!r}: see  chasqui repeatable ls {quote(queue)}"
    )
    return refusal(session, queue, msg)


def _pattern(cron: str | None, every: int | None, tz: str | None) -> RepeatPattern:
    if (cron is None) == (every is None):
        msg = "say how it recurs, in one way: --cron EXPR or --every DURATION"
        raise click.UsageError(msg)
    if cron is not None:
        return pattern_of(RepeatPattern.cron(cron, tz=tz))
    if tz is not None:
        msg = "--tz goes with --cron: an interval is the same in every zone"
        raise click.UsageError(msg)
    if not every or every < SHORTEST_INTERVAL_MS:
        msg = f"--every is {every} ms: the shortest interval is {SHORTEST_INTERVAL_MS} ms"
        raise click.UsageError(msg)
    return pattern_of(RepeatPattern.every(every))


def _fires(
    pattern: RepeatPattern, limit: int | None, start: datetime | None, end: datetime | None
) -> list[datetime]:
    """The first times it fires; none before --start or after --end, and no more than --limit."""
    now = datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1_000, UTC)
    fires = next_fires(
        pattern, min(_PREVIEWED, limit or _PREVIEWED), after=max(now, start) if start else now
    )
    kept = [fire for fire in fires if end is None or fire <= end]
    if fires and not kept:
        first = iso(values.epoch_ms(fires[0]) or 0)
        msg = f"--end is before the first fire, {first}: move the end, or leave it out"
        raise click.UsageError(msg)
    return kept


def _stored(session: Session, queue: str, key: str) -> StoredSpec | None:
    keys = QueueKeys(queue)

    async def look() -> StoredSpec | None:
        async with reading(session, keys.tag) as reader:
            return await reader.walk(one_spec(keys, key))

    return run(look())


def _upcoming(stored: StoredSpec, pattern: RepeatPattern, count: int) -> list[datetime]:
    first = datetime.fromtimestamp(stored.due_ms / 1_000, UTC)
    return [first, *next_fires(pattern, count - 1, after=first)]


def _tell_fires(
    session: Session,
    key: str | None,
    pattern: RepeatPattern,
    fires: list[datetime],
    *,
    is_paused: bool = False,
) -> None:
    times = [values.epoch_ms(fire) or 0 for fire in fires]
    if session.as_json:
        emit(
            {
                "key": key,
                "pattern": pattern.to_dict(),
                "description": describe(pattern),
                "next_fires_ms": times,
                "paused": is_paused,
            }
        )
        return
    now_ms = SYSTEM_CLOCK.now_ms()
    zone = zone_of(pattern)
    shown = [_both(fire, zone) + (instant(values.epoch_ms(fire), now_ms) or "") for fire in fires]
    title = "dry run: nothing is stored" if key is None else key
    told: list[tuple[str, object]] = [("fires", describe(pattern))]
    told += zip(["next", *[""] * len(shown)], shown, strict=False)
    if is_paused:
        told.append(("state", "paused: its windows pass without firing"))
    show(panel(title, [facts(told)]))


def _both(fire: datetime, zone: tzinfo) -> str:
    """What goes before a time in UTC: the same on the clocks of the pattern's zone, if others."""
    local = fire.astimezone(zone)
    return f"{local.isoformat(timespec='seconds')} = " if local.utcoffset() else ""


def _shape(stored: StoredSpec) -> dict[str, Any]:
    spec = stored.spec
    policy = spec.missed_fires if spec else None
    retry = spec.retry if spec else None
    # One that can never fire must not hide the others.
    words, problem = describe_stored(spec.pattern) if spec else (None, stored.problem)
    return {
        "key": stored.key,
        "job_name": spec.job_name if spec else None,
        "pattern": spec.pattern.to_dict() if spec else None,
        "description": words,
        "next_fire_ms": stored.due_ms,
        "limit": spec.limit if spec else None,
        "fired": stored.fired,
        "paused": stored.is_paused,
        "start_after_ms": spec.start_after_ms if spec else None,
        "end_before_ms": spec.end_before_ms if spec else None,
        "missed_fires": policy.to_dict() if policy else None,
        "attempts": retry.max_attempts if retry else None,
        "backoff": retry.backoff.to_dict() if retry and retry.backoff else None,
        "job_id": stored.job_id,
        "problem": problem or None,
    }


def _row(stored: StoredSpec, now_ms: int) -> tuple[object, ...]:
    when = f"{stored.due_ms}\n{'paused' if stored.is_paused else away(stored.due_ms, now_ms)}"
    if stored.spec is None:
        return stored.key, "(unreadable)", stored.problem, "-", when, "-"
    pattern, limit = stored.spec.pattern, stored.spec.limit
    shown = f"{stored.fired} of {limit}" if limit else "-"
    if pattern.kind == "cron":
        text, zone = pattern.expression, pattern.tz or "UTC"
    else:
        text, zone = f"every {pattern.interval_ms}ms", "-"
    return stored.key, stored.spec.job_name, text, zone, when, shown
