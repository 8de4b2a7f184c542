"""Something else stands at a key of a queue for a while; then what was there is back.

Each is one step on the server, so that nobody writes in between, and may be done as often as need
be: an answer may not come.
"""

from collections.abc import Callable
from typing import Any

from chasquimq.wire.keys import QueueKeys

Run = Callable[..., Any]
"""Carries out a command, given by its words."""

_HIDDEN = b":hidden"
_HIDE = """
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local is_there = redis.call('EXISTS', KEYS[1]) == 1
if ARGV[2] == 'only what is there' and not is_there then return 0 end
if is_there and ARGV[2] ~= 'drop' then redis.call('RENAME', KEYS[1], KEYS[2]) end
redis.call('DEL', KEYS[1])
redis.call(ARGV[1], KEYS[1], 'not what you think')
return 1
"""
# Who writes over a key, or deletes it, whatever it holds, means what was hidden too.
_BRING_BACK = """
local kind = redis.call('TYPE', KEYS[1]).ok
local there = kind == 'string' and redis.call('GET', KEYS[1])
              or kind == 'list' and redis.call('LINDEX', KEYS[1], 0)
if there ~= 'not what you think' then return redis.call('DEL', KEYS[2]) end
redis.call('DEL', KEYS[1])
return redis.call('EXISTS', KEYS[2]) == 1 and redis.call('RENAME', KEYS[2], KEYS[1])
"""
_STRINGS = ("paused", "promoter_lock", "scheduler_lock", "stalled_lock")
_STRINGS_OF = ("result", "outcome", "dedup_marker", "delayed_index", "progress", "stalls", "trace",
               "run", "pace", "fleet")  # fmt: skip


def hide(run: Run, keys: QueueKeys, key: bytes, how: str = "keep") -> bool:
    """Put a list where a string is to be, else a string; False if that was done before.

    `how` is `keep`, `drop` (what is there is not brought back), or `only what is there`: False, and
    nothing is done, where nothing is.
    """
    strings = (*(getattr(keys, name) for name in _STRINGS),)
    of_one = tuple(getattr(keys, name)(b"") for name in _STRINGS_OF)
    wrong = "RPUSH" if key in strings or key.startswith(of_one) else "SET"
    return bool(run("EVAL", _HIDE, 2, key, key + _HIDDEN, wrong, how))


def bring_back(run: Run, key: bytes) -> None:
    """Undo `hide`; what was written or deleted there meanwhile is left as it is."""
    run("EVAL", _BRING_BACK, 2, key, key + _HIDDEN)
