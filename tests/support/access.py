"""The rules of docs/operations.md for users of the server."""

import re
from pathlib import Path

from tests.support.servers import Server

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
_TEXT = PAGE.read_text()
_RULE = re.compile(r"^ACL SETUSER (\w+) on >secret (.+)$", re.MULTILINE)
RULES = {user: rules.split() for user, rules in _RULE.findall(_TEXT)}
"""By user."""


def _also(sentence: str) -> list[str]:
    """The rules that a sentence of the page adds."""
    found = re.search(rf"{sentence} `([^`]+)`", _TEXT)
    assert found is not None, f"the page does not say {sentence!r}"
    return found[1].split()


CLUSTER_RULES = _also("In a cluster add")
"""What each needs as well in a cluster."""

SINK_RULES = _also("The Spark sink needs")
"""What a producer needs as well that is Spark."""

PROBES = {"xackdel", "xreadgroup"}
"""Commands that are sent to every server, to see whether it has them."""


def make_users(server: Server, *more: str) -> None:
    """Make the users of the page, with these rules as well, as far as the server knows them."""
    for user, rules in RULES.items():
        known = rules if server.is_modern else [rule for rule in rules if rule != "+xackdel"]
        words = ("ACL", "SETUSER", user, "on", ">secret", *known, *more)
        server.client().execute_command(*words)  # type: ignore[no-untyped-call]
