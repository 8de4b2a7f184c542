"""A real Chromium without a window, spoken to through a pipe: pages as people see them."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_ANSWER_S = 60
# It reads from 3 and writes to 4: the pipes are put there, by way of numbers that are neither.
_START = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
for place, pipe in zip((3, 4), pipes): os.dup2(pipe, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """Where one is, None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page; `events` is all that the browser told of it."""

    def __init__(self, writing: int, reading: int) -> None:
        """Opened by the first call."""
        self.events: list[dict[str, Any]] = []
        self._writing = writing
        self._reading = reading
        self._rest = b""
        self._calls = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers; raises what it complains of."""
        self._calls += 1
        message: dict[str, Any] = {"id": self._calls, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._calls:
                if "error" in found:
                    raise RuntimeError(found["error"]["message"])
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def open(self, page: Path, *, width: int, dark: bool = False) -> None:
        """Load a file, as on a screen of this width, and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
        while not any(each.get("method") == "Page.loadEventFired" for each in self.events):
            self.events.append(self._next())

    def ask(self, script: str) -> Any:
        """The value of an expression on the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def told(self, *methods: str) -> list[dict[str, Any]]:
        """What came of some events."""
        return [each["params"] for each in self.events if each.get("method") in methods]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reading], [], [], _ANSWER_S)
            more = os.read(self._reading, 1 << 16) if ready else b""
            if not more:
                msg = f"the browser did not answer within {_ANSWER_S} s, or has ended"
                raise RuntimeError(msg)
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def a_tab(browser: str) -> Iterator[Tab]:
    """A tab of a browser of its own, which ends with it."""
    to_read, writing = os.pipe()
    reading, to_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(to_read), str(to_write), browser, *_FLAGS,
             f"--user-data-dir={profile}"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        try:
            yield Tab(writing, reading)
        finally:
            process.kill()
            process.wait()
            os.close(writing)
            os.close(reading)
