"""`chasqui server`: an embedded server in the background, for development and small use."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import click

from chasquimq.broker import embedded_hold
from chasquimq.broker.checkup import ServerFacts, server_facts
from chasquimq.broker.embedded_hold import Held
from chasquimq.broker.url import URL_VARIABLE, TargetKind, parse_url
from chasquimq.cli import options
from chasquimq.cli.options import Function, Session
from chasquimq.cli.problems import NOT_DONE, Refusal
from chasquimq.cli.render import duration, emit, facts, remark, say, show
from chasquimq.cli.run import reading, run


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a server, and the URL by which programs name it."""

    directory: str

    @property
    def url(self) -> str:
        """For `--redis-url` and `CHASQUI_REDIS_URL`."""
        return f"embedded://{quote(self.directory)}"


def data_dir_option(function: Function) -> Function:
    """Add `--data-dir`."""
    return click.option(
        "--data-dir",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help=f"Where its data are. [default: that of an embedded:// in ${URL_VARIABLE}, else "
        "chasqui in your folder for data]",
    )(function)


@click.group("server", cls=options.Group, examples=[
    "chasqui server start",
    "chasqui server status",
    "chasqui server stop",
])  # fmt: skip
def command() -> None:
    """A server without installing one, for development and small use.

    It is a Valkey that comes with the extra "embedded", listens on a socket that only you can open,
    and keeps jobs in an append-only file. It ends when it is stopped, or with the machine.
    """


@command.command("start", examples=["chasqui server start --data-dir ./jobs"])
@data_dir_option
@options.json_option
def start(data_dir: str | None, *, as_json: bool) -> None:
    """Start it in the background, and print the URL to use."""
    place = _place(data_dir)
    is_new = embedded_hold.start(place.directory)
    if as_json:
        emit({"started": is_new, "url": place.url, "directory": place.directory})
        return
    say("started" if is_new else "it runs already")
    say(f"  export {URL_VARIABLE}={place.url}")


@command.command("stop", examples=["chasqui server stop"])
@data_dir_option
@click.option(
    "--force", is_flag=True, help="Shut it down though programs use it; they may start it again."
)
@options.json_option
def stop(data_dir: str | None, *, force: bool, as_json: bool) -> int:
    """Shut it down, its data written out.

    While workers or other programs use it, it goes on until the last of them has ended. With
    --force it does not, but those that go on start it again: end them first. Exit code 1 if it
    still runs.
    """
    place = _place(data_dir)
    before = embedded_hold.look(place.directory)
    if before.running is None and not before.is_held:
        msg = f"no server of {place.directory} is running"
        raise Refusal(msg)
    after = embedded_hold.stop(place.directory, force=force)
    if as_json:
        emit({"stopped": after.running is None, "in_use": after.is_used})
    elif after.running is None:
        say("stopped")
        if after.is_used:
            remark("programs still use it, and start it again when they need it: end them first")
    elif force:
        say("programs that use it have started it again: end them first")
    else:
        say("programs still use it: it stops with the last of them (--force does not wait)")
    return 0 if after.running is None else NOT_DONE


@command.command("status", examples=["chasqui server status --json"])
@data_dir_option
@options.json_option
def status(data_dir: str | None, *, as_json: bool) -> int:
    """Show whether it runs, and how it does. Exit code 1 if it does not run."""
    place = _place(data_dir)
    held = embedded_hold.look(place.directory)
    if held.running is None:
        if as_json:
            emit({"running": False, "directory": place.directory, "url": place.url})
        else:
            say(f"no server of {place.directory} is running")
        return NOT_DONE
    known = _known(place, held, _asked(held))
    if as_json:
        emit({"running": True, **known})
        return 0
    memory_mb = int(str(known["used_memory_bytes"])) / 1_048_576
    show(facts([
        ("url", known["url"]),
        ("socket", known["socket"]),
        ("process", known["pid"]),
        ("version", known["version"]),
        ("up for", duration(int(str(known["uptime_secs"])) * 1_000)),
        ("memory", f"{memory_mb:,.1f} MB"),
        ("keys", known["keys"]),
        ("persistence", known["persistence"]),
        ("runs until", "it is stopped" if held.is_held else "its last user ends"),
    ]))  # fmt: skip
    return 0


def _known(place: Place, held: Held, found: ServerFacts) -> dict[str, object]:
    assert held.running is not None  # noqa: S101 -- the caller has looked
    info = found.info
    has_file = info.get("aof_enabled") == "1"
    is_well = info.get("aof_last_write_status", "ok") == "ok"
    return {
        "url": place.url,
        "directory": place.directory,
        "socket": held.running.socket_path,
        "pid": held.running.pid,
        "version": info.get("valkey_version", info.get("redis_version", "")),
        "uptime_secs": found.number("uptime_in_seconds"),
        "used_memory_bytes": found.number("used_memory"),
        "keys": found.keys,
        "persistence": (
            "none" if not has_file else "append-only file" if is_well else "it cannot be written"
        ),
        "held": held.is_held,
    }


def _asked(held: Held) -> ServerFacts:
    assert held.running is not None  # noqa: S101 -- the caller has looked
    # By its socket: to name it as embedded:// would start it, had it ended meanwhile.
    session = Session(f"unix://{quote(held.running.socket_path)}", as_json=False)

    async def ask() -> ServerFacts:
        async with reading(session) as reader:
            return await reader.ask(server_facts())

    return run(ask())


def _place(data_dir: str | None) -> Place:
    if data_dir is None:
        data_dir = _named_by_environment() or _own_folder()
    return Place(str(Path(data_dir).expanduser().resolve()))


def _named_by_environment() -> str | None:
    if URL_VARIABLE not in os.environ:
        return None
    target = parse_url(None)
    return target.directory if target.kind is TargetKind.EMBEDDED else None


def _own_folder() -> str:
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return str(Path(base) / "chasqui")
