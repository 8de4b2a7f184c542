"""`QueueKeys`: every Redis key of a queue, derived from its name under one hash tag.

All keys of queue `Q` start with `{chasqui:Q}`. The braces are literal: they make the server hash
only what is between them, so that a whole queue lives in one cluster slot, in reach of a script.
Nothing is escaped, which is why a queue name may not contain braces itself.
"""

import functools
import inspect
import re
from dataclasses import dataclass, field
from typing import Any

from chasquimq import given

_GLOB_SPECIAL = re.compile(rb"[\\*?\[\]^-]")

_FIXED_KEYS = {
    "stream": b":stream",
    "dlq": b":dlq",
    "delayed": b":delayed",
    "events": b":events",
    "repeat": b":repeat",
    "promoter_lock": b":promoter:lock",
    "scheduler_lock": b":scheduler:lock",
    "stalled_lock": b":stalled:lock",
    "paused": b":paused",
    "limiter": b":limiter",
    "wake": b":wake",
    "repeat_wake": b":repeat:wake",
    "resumed": b":resumed",
}


def _fixed() -> Any:  # noqa: ANN401 - a dataclass field stands where its value will
    return field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The keys of one queue, as bytes ready to be sent; two are equal when the names are.

    The attributes are the keys that exist once per queue. The methods give the keys that exist once
    per job, spec or producer; ids may be `str` or `bytes` and are used as they are.

    `wake`, `repeat_wake`, `resumed`, `outcome`, `sent`, `trace` and `seen` are our own; all others
    are shared with the reference engine.
    """

    name: str
    tag: bytes = _fixed()
    stream: bytes = _fixed()
    dlq: bytes = _fixed()
    delayed: bytes = _fixed()
    events: bytes = _fixed()
    repeat: bytes = _fixed()
    promoter_lock: bytes = _fixed()
    scheduler_lock: bytes = _fixed()
    stalled_lock: bytes = _fixed()
    paused: bytes = _fixed()
    limiter: bytes = _fixed()
    wake: bytes = _fixed()
    repeat_wake: bytes = _fixed()
    resumed: bytes = _fixed()

    def __post_init__(self) -> None:
        """Check the name, then derive every fixed key once."""
        tag = f"{{chasqui:{given.queue_name(self.name)}}}".encode()
        object.__setattr__(self, "tag", tag)
        for attribute, suffix in _FIXED_KEYS.items():
            object.__setattr__(self, attribute, tag + suffix)

    def result(self, job_id: str | bytes) -> bytes:
        """The stored return value of a job."""
        return self.tag + b":result:" + _as_bytes(job_id)

    def outcome(self, job_id: str | bytes) -> bytes:
        """How a job ended, for those who wait for it (ours)."""
        return self.tag + b":outcome:" + _as_bytes(job_id)

    def dedup_marker(self, job_id: str | bytes) -> bytes:
        """The marker that makes a second add of the same id harmless."""
        return self.tag + b":dlid:" + _as_bytes(job_id)

    def delayed_index(self, job_id: str | bytes) -> bytes:
        """The exact delayed-set member of a job, so that it can be cancelled by id."""
        return self.tag + b":didx:" + _as_bytes(job_id)

    def repeat_spec(self, spec_key: str | bytes) -> bytes:
        """The hash that holds a recurring job's spec and its fire counter."""
        return self.tag + b":repeat:spec:" + _as_bytes(spec_key)

    def progress(self, job_id: str | bytes) -> bytes:
        """How far a job says it is, 0 to 100."""
        return self.tag + b":progress:" + _as_bytes(job_id)

    def log(self, job_id: str | bytes) -> bytes:
        """The lines a job logged, as a stream."""
        return self.tag + b":log:" + _as_bytes(job_id)

    def stalls(self, job_id: str | bytes) -> bytes:
        """How often a job was found stalled."""
        return self.tag + b":stalls:" + _as_bytes(job_id)

    def sent(self, producer_id: str | bytes) -> bytes:
        """What a producer has sent, so that a repeated request is recognised (ours)."""
        return self.tag + b":sent:" + _as_bytes(producer_id)

    def trace(self, job_id: str | bytes) -> bytes:
        """What a job carries of the trace in which it was added (ours)."""
        return self.tag + b":trace:" + _as_bytes(job_id)

    def seen(self, run_id: str | bytes) -> bytes:
        """The ids of the jobs that a run has added (ours)."""
        return self.tag + b":seen:" + _as_bytes(run_id)

    def run(self, run_id: str | bytes) -> bytes:
        """What is known of a run that may have to be continued (ours)."""
        return self.tag + b":run:" + _as_bytes(run_id)

    def pace(self, run_id: str | bytes) -> bytes:
        """How far ahead of its rate a run is (ours)."""
        return self.tag + b":pace:" + _as_bytes(run_id)

    def fleet(self, name: str | bytes) -> bytes:
        """Which driver runs the fleet of this name (ours)."""
        return self.tag + b":fleet:" + _as_bytes(name)


def is_known(keys: QueueKeys, key: bytes) -> bool:
    """Whether a key under the queue's tag is of a kind that a queue has."""
    return key.startswith(_prefixes(keys)) or key in once_a_queue(keys)


@functools.lru_cache(maxsize=16)  # asked for each of many keys of few queues
def _prefixes(keys: QueueKeys) -> tuple[bytes, ...]:
    """What the keys begin with that exist once per job, spec or producer."""
    methods = inspect.getmembers(keys, inspect.ismethod)
    return tuple(method(b"") for name, method in methods if not name.startswith("_"))


def once_a_queue(keys: QueueKeys) -> list[bytes]:
    """The keys that a queue has once, the stream first."""
    return [keys.tag + suffix for suffix in _FIXED_KEYS.values()]


def of_unfinished_job(keys: QueueKeys, job_id: str | bytes) -> list[bytes]:
    """What may stand beside a job that waits: its marker first, by which its id is taken."""
    return [
        keys.dedup_marker(job_id),
        keys.delayed_index(job_id),
        keys.trace(job_id),
        keys.progress(job_id),
        keys.log(job_id),
        keys.stalls(job_id),
    ]


def of_finished_job(keys: QueueKeys, job_id: str | bytes) -> list[bytes]:
    """What may be kept of a job that has ended: how it did, its value, what it said on the way."""
    return [
        keys.outcome(job_id),
        keys.result(job_id),
        keys.progress(job_id),
        keys.log(job_id),
        keys.stalls(job_id),
    ]


KEPT_GLOB = b":[or]*"
"""Of finished jobs: `:outcome:` and `:result:`, and a few keys more, for `finished_job`."""


def finished_job(keys: QueueKeys, key: bytes) -> tuple[str, bool] | None:
    """Which job a key tells the end of, and whether it is the outcome; None for other keys."""
    for prefix, is_outcome in ((keys.outcome(b""), True), (keys.result(b""), False)):
        if key.startswith(prefix):
            try:
                return key[len(prefix) :].decode(), is_outcome
            except UnicodeDecodeError:
                return None
    return None


def glob_of(keys: QueueKeys, rest: bytes) -> bytes:
    """A pattern for `SCAN`: the queue's tag taken literally, then `rest`, itself a pattern."""
    return _GLOB_SPECIAL.sub(rb"\\\g<0>", keys.tag) + rest


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
