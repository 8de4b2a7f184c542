"""Faults of type: something else stands at a key of ours for a while.

Whoever comes to such a key is refused, and nothing of what was asked for is done but for an event
that may be told of it, or makes do without it; so no promise has an excuse here but two. While the
stream is none, nobody can renew a lease; a pause ends when its key does.

Not among the kinds are those that nobody in a run comes to: traces, runs of Spark, its fleets, and
what is reserved for the reference engine. Nor is the marker of an id that is free: whatever stands
there, the id is taken, and who adds would be told of a job that does not exist.
"""

import random
from contextlib import nullcontext

import redis

from chaos.faults.poison import BOGUS_SPEC
from chaos.history import EVERYBODY
from chaos.scene import FutileError, Scene
from chasquimq.broker.delayed import job_of
from chasquimq.broker.ring import TTL_S
from chasquimq.errors import DecodeError
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import glob_of
from tests.support.disguise import bring_back, hide

# What a queue has once. Some hold jobs, or when they recur; the others make do without what they
# held, which is a fault more.
_KEPT = ("stream", "delayed", "dlq", "repeat")
_DROPPED = ("events", "paused", "resumed", "wake", "repeat_wake", "promoter_lock", "scheduler_lock",
            "limiter")  # fmt: skip
# What stands beside one job: written, mostly, when it is run, so one that is yet to run is chosen.
# What is written over meanwhile is newer than what was there.
_OF_JOBS = ("result", "outcome", "progress", "log", "delayed_index", "dedup_marker")
_OF_OTHERS = ("sent", "repeat_spec")
KINDS = (*_KEPT, *_DROPPED, *_OF_JOBS, *_OF_OTHERS)
"""The kinds of keys, by the names that `QueueKeys` has for them."""

_JOBS = 100
# So many keys are looked at for one, at most: an hour leaves some hundred thousand.
_PAGES, _PAGE = 100, 5_000
# Who has added within so many seconds is there to add more.
_LATELY_S = 10


def wrong_type(scene: Scene, chance: random.Random) -> str:
    """A key of ours that holds a string, or a list, for a while; then what was there is back."""
    return disguise(scene, chance, chance.sample(KINDS, len(KINDS)))


def disguise(scene: Scene, chance: random.Random, kinds: list[str]) -> str:
    """The same at a key of the first of these kinds that there is one of."""
    seconds = chance.uniform(0.3, 3)
    with scene.server():
        kind, key = _chosen(scene, chance, kinds)
        is_cut = kind == "stream"
        how = "drop" if kind in _DROPPED else "keep"
        if kind in ("dedup_marker", *_OF_OTHERS):
            how = "only what is there"
        with scene.cutting(EVERYBODY, "no stream") if is_cut else nullcontext():
            try:
                if not hide(scene.stage.run, scene.keys, key, how):
                    message = f"{key.decode()} is hidden already, or gone"
                    raise FutileError(message)
                scene.last(seconds)
            finally:
                _bring_back(scene, key)
    return f"{key.decode()} for {seconds:.1f} s"


def _chosen(scene: Scene, chance: random.Random, kinds: list[str]) -> tuple[str, bytes]:
    for kind in kinds:
        if found := _keys_of(scene, kind):
            return kind, chance.choice(found)
    message = f"there is no key of the kinds {', '.join(kinds)}"
    raise FutileError(message)


def _keys_of(scene: Scene, kind: str) -> list[bytes]:
    """The keys of a kind that somebody comes to soon."""
    keys, run = scene.keys, scene.stage.run
    if kind in (*_KEPT, *_DROPPED):
        return [getattr(keys, kind)]
    if kind in _OF_JOBS:
        found = [getattr(keys, kind)(job_id) for job_id in _jobs(scene)]
        return [key for key in found if kind != "dedup_marker" or run("EXISTS", key)]
    if kind == "sent":
        found = _scan(scene, glob_of(keys, b":sent:*"))
        return [key for key in found if run("TTL", key) > TTL_S - _LATELY_S]
    stored = run("ZRANGE", keys.repeat, 0, -1)
    return [keys.repeat_spec(key) for key in stored if not key.startswith(BOGUS_SPEC)]


def _jobs(scene: Scene) -> list[str]:
    """Some that wait, run, or are delayed."""
    run, keys = scene.stage.run, scene.keys
    ids = []
    for _, fields in run("XRANGE", keys.stream, "-", "+", "COUNT", _JOBS):
        try:
            ids.append(decode(fields.get(b"d", b"")).id)
        except DecodeError:
            continue
    delayed = map(job_of, run("ZRANGE", keys.delayed, 0, _JOBS - 1))
    return ids + [job[1].id for job in delayed if job is not None]


def _scan(scene: Scene, pattern: bytes) -> list[bytes]:
    found: list[bytes] = []
    cursor = 0
    for _ in range(_PAGES):
        cursor, page = scene.stage.run("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
        found += page
        if not int(cursor):
            break
    return found


def _bring_back(scene: Scene, key: bytes) -> None:
    """Until it is done: a job that stays hidden is lost, and we have lost it."""
    while True:
        try:
            bring_back(scene.stage.run, key)
        except redis.RedisError:
            scene.last(0.1)
        else:
            return
