"""Run one command with a deadline, and turn every way it can fail into one readable reason."""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

QUICK_SECS = 30
DOWNLOAD_SECS = 300

# Words of a command shown in a reason: enough to tell which one, not a screenful.
SHOWN_WORDS = 4


class UnavailableError(Exception):
    """Something cannot be had on this machine; the message is the reason, in one line."""


def run(command: list[str], *, timeout_secs: float, cwd: Path | None = None) -> str:
    """Run a command and return its output; any failure is an `UnavailableError`.

    The command gets a process group of its own, so that a timeout or Ctrl-C ends a whole build and
    not only the `make` at its top.
    """
    environment = os.environ | {"LC_ALL": "C", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        message = f"`{command[0]}` cannot be run: {error.strerror}"
        raise UnavailableError(message) from error
    with process:
        try:
            out, err = process.communicate(timeout=timeout_secs)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                message = f"`{_shown(command)}` did not end within {timeout_secs:.0f} s"
                raise UnavailableError(message) from error
            raise
    if process.returncode != 0:
        message = f"`{_shown(command)}` failed: {_telling_line(err or out)}"
        raise UnavailableError(message)
    return out


def _shown(command: list[str]) -> str:
    words = [Path(command[0]).name, *command[1:SHOWN_WORDS]]
    return " ".join(words) + (" ..." if len(command) > SHOWN_WORDS else "")


def _telling_line(text: str) -> str:
    """Return the first line that calls itself an error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"E:|ERROR|.*\berror:", line)]
    return (errors[:1] or lines[-1:] or ["no message"])[0]
