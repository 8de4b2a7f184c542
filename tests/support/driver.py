"""A Spark driver in a process of its own, with its Java and its workers, to be killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import spark_driver
from tests.support.spark import SMALL


class Driver:
    """The process of a driver, and all that it started."""

    def __init__(self, told: dict[str, str], config: dict[str, str]) -> None:
        """Start it, in a session of its own."""
        arguments = json.dumps([told, SMALL | config])
        self._process = subprocess.Popen(
            [sys.executable, spark_driver.__file__, arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def kill(self, words: str = "") -> int:
        """Kill all of it that is still there, or those whose command line holds `words`."""
        killed = 0
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(path.name)
                if os.getsid(pid) != self._process.pid:
                    continue
                if words in (path / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        return killed

    def wait(self, timeout: float = 120) -> tuple[int, str]:
        """How it ended, and the last it said."""
        _, told = self._process.communicate(timeout=timeout)
        return self._process.returncode, told.decode()[-3_000:]

    def is_running(self) -> bool:
        """Whether the driver itself is there."""
        return self._process.poll() is None
