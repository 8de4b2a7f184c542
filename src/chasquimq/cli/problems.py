"""Turns what went wrong into one line on stderr and an exit code.

| code | meaning |
|---|---|
| 0 | done |
| 1 | the command could not do it: refused, aborted, no such job |
| 2 | wrong usage: an argument, a value, a setting |
| 3 | the server cannot be reached |
| 4 | `doctor` found problems |
| 130 | ended by Ctrl+C, where that is not the usual way to end |
"""

import os
import sys

import click

from chasquimq.errors import (
    ANOTHER_SERVER,
    ChasquiError,
    ConfigError,
    ConnectionFailedError,
    NotSupportedError,
    OutcomeUnknownError,
)

DEBUG_VARIABLE = "CHASQUI_DEBUG"

NOT_DONE = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130

# Of a path; no system takes much longer ones.
_MOST_SHOWN = 400


# A server of the process's own, which the library offers, would be gone with the command.
_ANOTHER_SERVER = "name another with --redis-url or CHASQUI_REDIS_URL, or run: chasqui server start"


class NoCommand(click.UsageError):
    """A group without a command: the help is the answer, laid out as it is."""


class Refusal(click.ClickException):
    """The command could not do what it was asked; the message says why and what to do."""

    exit_code = NOT_DONE


def exit_code_of(error: BaseException) -> int:
    """Tell the user about `error`; whatever is not theirs to mend is raised again.

    With `CHASQUI_DEBUG` set everything is raised again, to see where it came from.
    """
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    match error:
        case KeyboardInterrupt() | click.Abort():
            code = _stopped(error)
        case BrokenPipeError():
            code = _unread()
        case NoCommand():
            click.echo(error.message, err=True)
            code = USAGE
        case click.UsageError():
            code = _told(f"{error.format_message()}{_where_to_look(error)}", USAGE)
        case click.ClickException():
            code = _told(error.format_message(), error.exit_code)
        case ConnectionFailedError() | OutcomeUnknownError():
            code = _told(str(error).replace(ANOTHER_SERVER, _ANOTHER_SERVER), UNREACHABLE)
        case ConfigError() | NotSupportedError() | ValueError() | TypeError():
            code = _told(str(error), USAGE)
        case ChasquiError():
            code = _told(str(error), NOT_DONE)
        case _:
            code = _told(_of_a_file(error), NOT_DONE)
    return code


def _of_a_file(error: BaseException) -> str:
    """What the system says of a file or folder of the user's; whatever else it is, is raised."""
    if not isinstance(error, OSError) or error.filename is None:
        raise error
    path = str(error.filename)
    shown = path if len(path) <= _MOST_SHOWN else f"{path[:_MOST_SHOWN]}…"
    return f"{shown!r} cannot be used: {error.strerror}"


def _where_to_look(error: click.UsageError) -> str:
    return f" (see {error.ctx.command_path} --help)" if error.ctx else ""


def _told(message: str, code: int) -> int:
    click.echo(f"chasqui: {' '.join(message.split())}", err=True)
    return code


def _stopped(error: BaseException) -> int:
    # click makes an Abort of Ctrl+C too; of the two only a declined question has no cause.
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        return INTERRUPTED
    return _told("aborted, nothing was done", NOT_DONE)


def _unread() -> int:
    """Whoever read us has gone; the interpreter must not try to flush to it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NOT_DONE
