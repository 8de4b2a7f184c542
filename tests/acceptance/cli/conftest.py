"""The real command line in a subprocess, against a real server."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

TIMEOUT_SECS = 30


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object that was printed."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The objects that were printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would change the output."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CHASQUI")}
    return {**kept, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", **more}


@pytest.fixture
def chasqui(server):
    """`chasqui("add", queue, ...)`: run it and say how it ended. No terminal, no traceback."""

    def call(*arguments: str, stdin: str = "", **variables: str) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "chasquimq", *arguments],
            check=False,
            capture_output=True,
            encoding="utf-8",
            input=stdin,
            timeout=TIMEOUT_SECS,
            env=environment(**{"CHASQUI_REDIS_URL": server.url, **variables}),
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def done(chasqui):
    """The same for what must work."""

    def call(*arguments: str, **more: str) -> Answer:
        answer = chasqui(*arguments, **more)
        assert answer.code == 0, answer.err
        return answer

    return call
