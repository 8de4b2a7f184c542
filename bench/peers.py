"""Who else is measured, and the environment of its own that each of them lives in.

An environment is made on demand in a cache directory (`$CHASQUI_BENCH_CACHE`, else
`$XDG_CACHE_HOME/chasquimq/bench`). It is made beside its final place and renamed when it is
complete, so an interrupted run leaves nothing that looks finished. A peer that cannot be had is a
`MissingError` with the reason; a run goes on without it.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INSTALL_S = 600
_NODE_PROGRAM = Path(__file__).parent / "program" / "bullmq.mjs"
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
    is_node: bool = False
    """Whether it lives on Node; it has a program of its own, then, in place of an adapter."""


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("reference", "chasqui", ("chasquimq==1.3.0",)),
        Peer("bullmq-node", "", ("bullmq", "ioredis"), is_node=True),
        Peer("bullmq", "bullmq", ("bullmq",), share=0.2),
        Peer("taskiq", "taskiq", ("taskiq-redis", "taskiq"), share=0.2),
        Peer("saq", "saq", ("saq[redis]", "typing_extensions"), share=0.2),
        Peer("arq", "arq", ("arq",), share=0.2),
        Peer("streaq", "streaq", ("streaq",), share=0.2),
        Peer("dramatiq", "dramatiq", ("dramatiq[redis]",), share=0.2),
        Peer("rq", "rq", ("rq",), share=0.02),
        Peer("celery", "celery", ("celery[redis]",), share=0.1),
    )
}


def cache_dir() -> Path:
    """The directory of everything that is installed or built; it need not exist."""
    if named := os.environ.get("CHASQUI_BENCH_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "chasquimq" / "bench"


@dataclass(frozen=True, slots=True)
class Home:
    """A peer that is installed."""

    version: str
    command: tuple[str, ...]
    """Starts its program; an order follows."""


def home(peer: Peer) -> Home:
    """Where a peer is, installed if need be."""
    return _node_home(peer) if peer.is_node else _python_home(peer)


def _python_home(peer: Peer) -> Home:
    packages = (*peer.packages, *_FOR_ALL)

    def fill(tree: Path) -> None:
        _run([sys.executable, "-m", "venv", str(tree)])
        pip = [str(tree / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _run([*pip, "--disable-pip-version-check", *packages])

    python = str(_tree(peer, packages, fill) / "bin" / "python")
    package = re.split(r"[=\[]", peer.packages[0])[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return Home(_run([python, "-c", code]).strip(), (python, "-m", "bench.program"))


def _node_home(peer: Peer) -> Home:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        msg = "there is no node or no npm"
        raise MissingError(msg)

    def fill(tree: Path) -> None:
        tree.mkdir(parents=True)
        (tree / "package.json").write_text('{"private": true}')
        _run([npm, "install", "--silent", "--no-audit", "--prefix", str(tree), *peer.packages])

    tree = _tree(peer, peer.packages, fill)
    installed = tree / "node_modules" / peer.packages[0] / "package.json"
    version = json.loads(installed.read_text(encoding="utf-8"))["version"]
    return Home(version, (node, str(_NODE_PROGRAM), str(tree / "package.json")))


def _tree(peer: Peer, packages: Sequence[str], fill: Callable[[Path], None]) -> Path:
    """The directory of what a peer needs, filled if it is not there; other needs, another one."""
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:8]
    tree = cache_dir() / f"{peer.name}-{digest}"
    if not tree.exists():
        partial = tree.with_name(f"{tree.name}.{os.getpid()}")
        try:
            fill(partial)
            partial.rename(tree)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return tree


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
