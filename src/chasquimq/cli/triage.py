"""`chasqui pipeline triage`: dead letters by their cause, exported, replayed or discarded."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chasquimq.cli import options
from chasquimq.cli.consent import consent, require_terminal
from chasquimq.cli.options import Session
from chasquimq.cli.place import shared_server
from chasquimq.cli.progress import ProgressLine
from chasquimq.cli.render import clean, cut, emit, iso, remark, say, show, table
from chasquimq.cli.spark import spark_options, started
from chasquimq.cli.unknown import look_at, tell_if_unknown

if TYPE_CHECKING:
    from chasquimq.pipeline.triage import Group, Triage


@click.command("triage", cls=options.Command, examples=[
    "chasqui pipeline triage emails",
    "chasqui pipeline triage emails --fingerprint 4c4567394784 --replay",
    "chasqui pipeline triage emails --where \"error like 'Timeout%'\" --discard --dry-run",
    "chasqui pipeline triage emails --where \"name = 'welcome'\" --export welcome.csv",
])  # fmt: skip
@options.queue_argument
@click.option("--fingerprint", metavar="ID", help="Only this group.")
@click.option("--where", metavar="SQL", help="Only those that meet a condition of Spark's SQL.")
@click.option("--export", metavar="FILE",
              help="Write them to a file: .parquet, .csv or .json, an object a line.")  # fmt: skip
@click.option("--replay", is_flag=True, help="Send them round again.")
@click.option("--discard", is_flag=True, help="Delete them for good.")
@click.option("--dry-run", is_flag=True, help="Only say how many it would be; change nothing.")
@options.yes_option
@spark_options
@options.session
def command(queue: str, session: Session, **given: Any) -> None:  # noqa: ANN401
    """Show dead letters in groups that have one cause; export, replay or discard a group.

    A group is a type of error, its message without numbers, ids and quoted text, and the innermost
    frames of the traceback. What is replayed or discarded is chosen by --fingerprint, --where or
    both; it asks first. --export without either writes all; with --replay or --discard it writes
    them before that, the very same. Killed midway, run it again: the rest is done, nothing twice.
    """
    shared_server(session.redis_url)
    verbs = [verb for verb in ("replay", "discard") if given[verb]]
    if len(verbs) > 1:
        msg = "--replay and --discard are both given: use one of them"
        raise click.UsageError(msg)
    if verbs and given["fingerprint"] is None and given["where"] is None:
        msg = f"--{verbs[0]} needs --fingerprint or --where: see the groups without it first"
        raise click.UsageError(msg)
    if given["export"]:
        with contextlib.suppress(ImportError):  # which is told when Spark is started
            from chasquimq.pipeline.export import writer_for  # noqa: PLC0415 -- an extra

            writer_for(given["export"])
    found = look_at(session, queue)
    tell_if_unknown(queue, found)
    if not found.is_known and not given["export"]:  # which makes a file, if an empty one
        if verbs:
            _tell([], 0, verbs[0], session, given)
        else:
            _show_groups(queue, [], session)
        return
    if verbs and not given["yes"] and not given["dry_run"]:
        require_terminal(f"{verbs[0]} dead letters")
    with started(given) as spark:
        from chasquimq.pipeline import Triage  # noqa: PLC0415 -- Spark may not be installed

        letters = Triage(queue, redis_url=session.redis_url, spark=spark)
        chosen = {name: given[name] for name in ("fingerprint", "where")}
        if verbs or given["export"]:
            _dispose(letters, verbs[0] if verbs else None, chosen, session, given)
            return
        groups = letters.groups(given["where"], on_step=remark)
    wanted = [each for each in groups if given["fingerprint"] in {None, each.fingerprint}]
    _show_groups(queue, wanted, session)


def _dispose(
    letters: "Triage",
    verb: str | None,
    chosen: dict[str, str | None],
    session: Session,
    given: dict[str, Any],
) -> None:
    """Export, then replay or discard, as far as it was asked for."""
    is_dry, path, changed = given["dry_run"], given["export"], 0
    if path and not is_dry:
        ids = letters.export(path, **chosen, on_step=remark)
    else:
        wanted = chosen if any(chosen.values()) else {"where": "true"}
        ids = letters.choose(**wanted, on_step=remark)
    if verb and ids and not is_dry:
        consent(f"{verb} {len(ids)} dead letters", yes=given["yes"])
        changed = _change(letters, verb, ids)
    _tell(ids, changed, verb, session, given)


def _tell(
    ids: Sequence[str], changed: int, verb: str | None, session: Session, given: dict[str, Any]
) -> None:
    """Say what was, or would be, done."""
    is_dry, path, said = given["dry_run"], given["export"], []
    shape: dict[str, object] = {"found": len(ids), "dry_run": is_dry}
    if path:
        shape["exported"] = 0 if is_dry else len(ids)
        said.append(f"exported {len(ids)} dead letters to {Path(path).resolve()}")
    if verb:
        past = "replayed" if verb == "replay" else "discarded"
        shape[past] = changed
        told = f"{past} {changed} of {len(ids)} dead letters"
        said.append(told if ids else f"no dead letter is one of those, so none was {past}")
    if session.as_json:
        emit(shape)
    elif is_dry:
        verbs = [*(["export"] if path else []), *([verb] if verb else [])]
        say(f"would {' and '.join(verbs)} {len(ids)} dead letters")
    else:
        for line in said:
            say(line)


def _change(letters: "Triage", verb: str, ids: Sequence[str]) -> int:
    """Replay or discard; how many it were."""
    line = ProgressLine("dead letters")
    change = letters.replay if verb == "replay" else letters.discard
    try:
        return change(ids, on_progress=line.tell).changed
    finally:
        line.end()


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
