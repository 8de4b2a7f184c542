"""Look each installed package up among the known vulnerabilities that PyPI tells of a release.

    python scripts/audit.py        status 1 if one has a vulnerability that was not withdrawn

Where PyPI cannot be asked, or does not answer in time, it says so and is content: a check that
needs the network must not keep anybody from working without it. A mirror that knows projects and
not their releases still tells of the newest release of each. Nothing is installed, and nothing is
sent but names and versions.
"""

import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from typing import Any

_INDEX = "https://pypi.org/pypi"
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
    asked = dict(zip(installed, answers, strict=True))
    found = [line for answer in answers for line in answer or ()]
    unknown = [f"{name} {version}" for (name, version), told in asked.items() if told is None]
    known = len(installed) - len(unknown)
    print(f"audit: {known} of {len(installed)} packages looked up, {len(found)} known problems")
    if unknown:
        print(f"audit: PyPI does not answer here, or does not know: {', '.join(unknown)}")
    for line in found:
        print(f"audit: {line}", file=sys.stderr)
    return 1 if found else 0


def _ask(name: str, version: str, deadline: float) -> list[str] | None:
    """The problems of one release; None if nobody could be asked, or nobody knows it."""
    told = _page(f"{name}/{version}", deadline)
    if told is None:
        told = _page(name, deadline)
        # The page of a project tells of its newest release, and of no other.
        if told is None or told.get("info", {}).get("version") != version:
            return None
    return problems(name, version, told)


def _page(page: str, deadline: float) -> dict[str, Any] | None:
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    try:
        url = f"{_INDEX}/{page}/json"
        with urllib.request.urlopen(url, timeout=min(_ANSWER_SECS, left)) as reply:  # noqa: S310 -- https above
            told = json.load(reply)
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def problems(name: str, version: str, told: dict[str, Any]) -> list[str]:
    """One line for each vulnerability that was not withdrawn."""
    return [
        f"{name} {version}: {each['id']} (fixed in {', '.join(each['fixed_in']) or 'nothing yet'})"
        for each in told.get("vulnerabilities") or []
        if not each.get("withdrawn")
    ]


if __name__ == "__main__":
    sys.exit(main())
