"""Look each installed package up among the known vulnerabilities that PyPI tells of a release.

    python scripts/audit.py        status 1 if one has a vulnerability that was not withdrawn

Where PyPI cannot be asked, or does not answer in time, it says so and is content: a check that
needs the network must not keep anybody from working without it. Nothing is installed, and nothing
is sent but names and versions.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from typing import Any

_URL = "https://pypi.org/pypi/{name}/{version}/json"
_ANSWER_SECS = 5
_ALL_SECS = 30
_AT_ONCE = 8
_OWN = "chasquimq"


def main() -> int:
    """Ask about every installed package; the exit status."""
    found_here = {(each.metadata["Name"].lower(), each.version) for each in distributions()}
    installed = [package for package in sorted(found_here) if package[0] != _OWN]
    deadline = time.monotonic() + _ALL_SECS
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = list(threads.map(lambda each: _ask(each[0], each[1], deadline), installed))
    known = [answer for answer in answers if answer is not None]
    found = [line for answer in known for line in answer]
    print(
        f"audit: {len(known)} of {len(installed)} packages looked up, {len(found)} known problems"
    )
    if len(known) < len(installed):
        print("audit: the others could not be: PyPI does not answer here, or does not know them")
    for line in found:
        print(f"audit: {line}", file=sys.stderr)
    return 1 if found else 0


def _ask(name: str, version: str, deadline: float) -> list[str] | None:
    """The problems of one release; None if nobody could be asked."""
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    url = _URL.format(name=name, version=version)
    try:
        with urllib.request.urlopen(url, timeout=min(_ANSWER_SECS, left)) as reply:  # noqa: S310 -- https above
            told = json.load(reply)
    except (OSError, urllib.error.URLError, ValueError):
        return None
    return problems(name, version, told)


def problems(name: str, version: str, told: dict[str, Any]) -> list[str]:
    """One line for each vulnerability that was not withdrawn."""
    return [
        f"{name} {version}: {each['id']} (fixed in {', '.join(each['fixed_in']) or 'nothing yet'})"
        for each in told.get("vulnerabilities") or []
        if not each.get("withdrawn")
    ]


if __name__ == "__main__":
    sys.exit(main())
