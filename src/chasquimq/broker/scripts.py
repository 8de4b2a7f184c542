"""Loads `lua/*.lua`, binds the names of each header, and builds calls to scripts by name.

A script's header is its signature. The loader replaces the `-- KEYS` and `-- ARGV` comment lines by
`local` bindings *on the same lines*, so a server error at `user_script:9` is line 9 of the file. A
last name that ends in `...` stands for any number of values: it is bound, as `<name>_from`, to the
position of the first of them.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TypeVar

from chasquimq.broker.call import Argument, Call, Reply, bulks, checked, command

T = TypeVar("T")

_HEADER_LINE = re.compile(r"^-- (KEYS|ARGV)\s+(.*?)\s*$")
_NAME = re.compile(r"^[a-z][a-z0-9_]*(\.\.\.)?$")


@dataclass(frozen=True, eq=False)
class Script:
    """One atomic operation: its source, its digest, and the names of its keys and arguments."""

    name: str
    source: str
    sha: bytes
    keys: tuple[str, ...]
    arguments: tuple[str, ...]

    def request(
        self,
        keys: Mapping[str, Argument],
        arguments: Mapping[str, Argument],
        *,
        more_keys: Sequence[bytes] = (),
        more_arguments: Sequence[bytes] = (),
    ) -> bytes:
        """The `EVALSHA` request, values by name; a missing or unknown name is a `TypeError`."""
        fixed_keys = self._in_order("KEYS", keys, variadic=bool(more_keys))
        fixed_arguments = self._in_order("ARGV", arguments, variadic=bool(more_arguments))
        key_count = b"%d" % (len(fixed_keys) + len(more_keys))
        values = (key_count, *fixed_keys, *more_keys, *fixed_arguments, *more_arguments)
        return b"*%d\r\n%b%b" % (2 + len(values), self._head, bulks(values))

    def call(  # noqa: PLR0913 -- the request, and what is known of it
        self,
        keys: Mapping[str, Argument],
        arguments: Mapping[str, Argument],
        *,
        read: Callable[[Reply], T],
        repeatable: bool = False,
        insistent: bool = False,
        more_keys: Sequence[bytes] = (),
        more_arguments: Sequence[bytes] = (),
    ) -> Call[T]:
        """A call of this script alone, whose reply is read by `read`."""
        request = self.request(keys, arguments, more_keys=more_keys, more_arguments=more_arguments)
        return Call(
            (request,),
            lambda replies: read(checked(replies[0])),
            repeatable=repeatable,
            insistent=insistent,
            scripts=(self,),
        )

    def load_request(self) -> bytes:
        """The request that gives the server this script again."""
        return command(b"SCRIPT", b"LOAD", self.source.encode())

    @functools.cached_property
    def _head(self) -> bytes:
        return bulks((b"EVALSHA", self.sha))

    @functools.cached_property
    def _fixed(self) -> dict[str, tuple[str, ...]]:
        """The names that stand for one value each."""
        kinds = {"KEYS": self.keys, "ARGV": self.arguments}
        return {
            kind: tuple(name for name in names if not name.endswith("..."))
            for kind, names in kinds.items()
        }

    def _in_order(self, kind: str, given: Mapping[str, Argument], *, variadic: bool) -> list[bytes]:
        names = self.keys if kind == "KEYS" else self.arguments
        fixed = self._fixed[kind]
        if given.keys() != set(fixed) or (variadic and fixed == names):
            msg = f"script {self.name} takes {kind} {', '.join(names)}; got {', '.join(given)}"
            raise TypeError(msg)
        values = [given[name] for name in fixed]
        return [value if type(value) is bytes else str(value).encode() for value in values]


def parse_script(name: str, text: str) -> Script:
    """Turn a file's text into a `Script`; a malformed header is a `ValueError`."""
    declared: dict[str, tuple[str, ...]] = {"KEYS": (), "ARGV": ()}
    lines = []
    for line in text.splitlines():
        match = _HEADER_LINE.match(line)
        if match is None:
            lines.append(line)
            continue
        kind, names = match[1], tuple(match[2].split())
        declared[kind] = names
        lines.append(_binding(name, kind, names))
    source = "\n".join(lines) + "\n"
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest().encode()
    return Script(name, source, sha, declared["KEYS"], declared["ARGV"])


def _binding(script: str, kind: str, names: tuple[str, ...]) -> str:
    for position, name in enumerate(names, 1):
        if not _NAME.match(name) or (name.endswith("...") and position != len(names)):
            msg = f"script {script}: {name!r} is not a valid name in its {kind} line"
            raise ValueError(msg)
    if not names:
        return f"-- {kind}"
    left = ", ".join(n.replace("...", "_from") for n in names)
    right = ", ".join(
        str(position) if name.endswith("...") else f"{kind}[{position}]"
        for position, name in enumerate(names, 1)
    )
    return f"local {left} = {right}"


def _load(name: str) -> Script:
    return parse_script(name, (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8"))


ADD = _load("add")
ADD_RUN = _load("add_run")
ADD_UNIQUE = _load("add_unique")
BROWSE_DELAYED = _load("browse_delayed")
BROWSE_WAITING = _load("browse_waiting")
CANCEL = _load("cancel")
CLAIM = _load("claim")
COMPLETE = _load("complete")
DEAD_LETTER = _load("dead_letter")
DISCARD_DELAYED = _load("discard_delayed")
DISCARD_WAITING = _load("discard_waiting")
FIRE = _load("fire")
FORGET = _load("forget")
HAND_BACK = _load("hand_back")
HOLD = _load("hold")
JOIN = _load("join")
LEAD = _load("lead")
LEAVE = _load("leave")
NOTE = _load("note")
PACE = _load("pace")
PROMOTE = _load("promote")
PROMOTE_ONE = _load("promote_one")
PUT_BACK = _load("put_back")
RELEASE = _load("release")
REMOVE_SPEC = _load("remove_spec")
RENEW = _load("renew")
REPLAY = _load("replay")
RESCHEDULE = _load("reschedule")
RETRY = _load("retry")
REWRITE_DELAYED = _load("rewrite_delayed")
REWRITE_WAITING = _load("rewrite_waiting")
SCHEDULE = _load("schedule")
SET_PAUSED = _load("set_paused")
TAKE = _load("take")
TELL = _load("tell")
UPSERT_SPEC = _load("upsert_spec")
WIPE = _load("wipe")
