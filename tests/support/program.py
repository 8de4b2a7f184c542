"""A program that a test starts, listens to line by line, and signals."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.support.sink import PATIENCE_SECS

CHASQUI = (sys.executable, "-W", "error", "-m", "chasquimq")


class Program:
    """A running program, and what it has written so far to its two outputs together."""

    def __init__(
        self, *arguments: str, cwd: Path, env: Mapping[str, str], program: tuple[str, ...] = CHASQUI
    ) -> None:
        """Start it; without a `program` it is the command line `chasqui`."""
        self._process = subprocess.Popen(
            [*program, *arguments],
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._is_silent = False
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def __repr__(self) -> str:
        """Show the process and the end of what it wrote."""
        return f"<Program {self.pid}, {self.lines[-3:]}>"

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    @property
    def text(self) -> str:
        """Everything so far."""
        return "\n".join(self.lines)

    def until(self, text: str, count: int = 1) -> list[str]:
        """The lines with this text, once there are so many; fails if they do not come."""

        def found() -> list[str]:
            return [line for line in self.lines if text in line]

        with self._news:
            self._news.wait_for(
                lambda: len(found()) >= count or self._is_silent, timeout=PATIENCE_SECS
            )
            assert len(found()) >= count, f"waited for {count} of {text!r}; was told:\n{self.text}"
            return found()

    def send(self, number: signal.Signals) -> None:
        """Signal it, and nobody else."""
        self._process.send_signal(number)

    def ended(self) -> int:
        """The exit status, once it has ended; a signal's number, negative, if it did."""
        status = self._process.wait(PATIENCE_SECS)
        self._listening.join(PATIENCE_SECS)
        return status

    def close(self) -> None:
        """End it, however it stands."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listening.join(PATIENCE_SECS)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._is_silent = True
            self._news.notify_all()
