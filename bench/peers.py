"""Who else is measured, and the environment of its own that each of them lives in.

An environment is made on demand in a cache directory (`$CHASQUI_BENCH_CACHE`, else
`$XDG_CACHE_HOME/chasquimq/bench`). It is made beside its final place and renamed when it is
complete, so an interrupted run leaves nothing that looks finished. A peer that cannot be had is a
`MissingError` with the reason; a run goes on without it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INSTALL_S = 600
# The loop that all run on, and what reads the server's counts. A peer on redis-py gains by hiredis.
_FOR_ALL = ("uvloop", "hiredis")


class MissingError(Exception):
    """A peer, or a tool, cannot be had here."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another queue."""

    name: str
    adapter: str
    packages: tuple[str, ...]
    """What to install; the first is what its version is asked of."""
    share: float = 1.0
    """Which part of a scenario's jobs it is given: slow ones would take minutes."""


PEERS: Mapping[str, Peer] = {
    peer.name: peer for peer in (Peer("reference", "chasqui", ("chasquimq==1.3.0",)),)
}


def cache_dir() -> Path:
    """The directory of everything that is installed or built; it need not exist."""
    if named := os.environ.get("CHASQUI_BENCH_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "chasquimq" / "bench"


def home(peer: Peer) -> Path:
    """The Python of the peer's environment, which is made if need be."""
    packages = (*peer.packages, *_FOR_ALL)
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:8]
    tree = cache_dir() / f"{peer.name}-{digest}"
    if not tree.exists():
        partial = tree.with_name(f"{tree.name}.{os.getpid()}")
        try:
            _run([sys.executable, "-m", "venv", str(partial)])
            pip = [str(partial / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            _run([*pip, "--disable-pip-version-check", *packages])
            partial.rename(tree)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return tree / "bin" / "python"


def version_of(peer: Peer, python: Path) -> str:
    """The version that is installed."""
    package = peer.packages[0].partition("=")[0].partition("[")[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return _run([str(python), "-c", code]).strip()


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_INSTALL_S
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise MissingError(said[-1] if said else f"exit {error.returncode}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(str(error)) from error
    return done.stdout
