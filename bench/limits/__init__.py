"""What the server can do at most: the commands of a job from a client that does nothing else.

In C (`limits.c`) where there is a compiler, else the same loop in Python on hiredis (`loop.py`);
both take the same arguments and answer as programs do.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.peers import MissingError, cache_dir
from bench.program.order import Order

_SOURCE = Path(__file__).with_name("limits.c")
_BUILD_S = 60
_BENCHMARKS = ("redis-benchmark", "valkey-benchmark")


def limit(
    scenario: str, program: Sequence[str], *, is_told: bool = False
) -> Callable[[Order], Sequence[str] | None]:
    """The command that does what a scenario is about, by a program of `programs`.

    With `is_told` adds tell the event that ours tell and the reference does not.
    """
    mode = (TOLD_MODES if is_told else MODES).get(scenario)

    def command(order: Order) -> Sequence[str] | None:
        if mode is None:
            return None
        return [*program, str(order.port), mode[0], str(order.jobs), str(mode[1])]

    return command


MODES: Mapping[str, tuple[str, int]] = {
    "bulk50": ("add", 50),
    "bulk1000": ("add", 1_000),
    "concurrent": ("add", 100),
    "sequential": ("add-large", 1),
    "worker100": ("drain-events", 256),
    "worker100-off": ("drain", 256),
}
"""What the limit of a scenario does, and how many jobs at a time."""

TOLD_MODES: Mapping[str, tuple[str, int]] = {
    "bulk50": ("add-told", 50),
    "bulk1000": ("add-told", 1_000),
    "concurrent": ("add-told", 100),
}
"""The same for adds, where a limit without events leaves out half of what the server does."""


def limit_program() -> tuple[str, Sequence[str]]:
    """What it is written in, and how to start it; it is compiled once into the cache."""
    try:
        return "C", [str(_compiled())]
    except MissingError:
        return "Python", [sys.executable, "-m", "bench.limits.loop"]


def _compiled() -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        msg = "there is no compiler"
        raise MissingError(msg)
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:8]
    binary = cache_dir() / f"limits-{digest}"
    if not binary.exists():
        cache_dir().mkdir(parents=True, exist_ok=True)
        partial = binary.with_name(f"{binary.name}.{os.getpid()}")
        command = [compiler, "-O2", "-o", str(partial), str(_SOURCE)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_BUILD_S)
        except (OSError, subprocess.SubprocessError) as error:
            msg = "limits.c does not compile here"
            raise MissingError(msg) from error
        partial.rename(binary)
    return binary


def benchmark_line(port: int, jobs: int) -> str:
    """What the server's own benchmark says of pipelined `XADD`, in a line; a limit of another kind.

    Ten connections, and no waiting for replies in between: more than one client can do.
    """
    found = next(filter(None, map(shutil.which, _BENCHMARKS)), None)
    if found is None:
        return f"{_BENCHMARKS[0]} is missing"
    command = [found, "-p", str(port), "-n", str(jobs), "-P", "500", "-c", "10", "--csv"]
    command += ["XADD", "{chasqui:limit}:stream", "*", "d", "p" * 60, "n", "x"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_BUILD_S)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{_BENCHMARKS[0]} failed: {error}"
    rate = done.stdout.strip().splitlines()[-1].split(",")[1].strip('"')
    return f"{_BENCHMARKS[0]}: {float(rate):,.0f} XADD/s from ten connections, 500 in a pipeline"
