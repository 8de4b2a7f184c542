"""Faults of content: things in the queue that are no jobs, and specs that are none."""

import random
from collections.abc import Sequence

import redis

from chaos.clocks import now_ms, now_us
from chaos.history import Poisoned
from chaos.scene import FutileError, Scene
from chasquimq.wire.repeat import RepeatableSpec, RepeatPattern, encode_spec

BOGUS_SPEC = b"bogus-"
_TAIL = 6

_OVERSIZE = b"x" * (1_048_576 + 1)
_ENVELOPE_OF_TWO = b"\x92\xa2id\xc4\x01\xc0"
_ENVELOPE_WITHOUT_ID = b"\x94\xc0\xc4\x01\xc0\x00\x00"
_MAP_OF_A_LATER_VERSION = b"\x82\xa1v\x63\xa4body\xc4\x01\xc0"
ENTRIES = (
    ("no fields of ours", (b"hello", b"world")),
    ("an empty envelope", (b"d", b"")),
    ("garbage", (b"d", b"\xc1\xff\x00garbage")),
    ("two slots", (b"d", _ENVELOPE_OF_TWO)),
    ("no id", (b"d", _ENVELOPE_WITHOUT_ID)),
    ("a later version", (b"d", _MAP_OF_A_LATER_VERSION, b"n", b"from the future")),
    ("oversize", (b"d", _OVERSIZE, b"n", b"huge")),
)
MEMBERS = (
    ("too short", b"\x01"),
    ("a name beyond its end", b"\xff\xff\xff\x7fabc"),
    ("a name and garbage", b"\x01\x00\x00\x00x\xc1"),
    ("nothing but a name", b"\x01\x00\x00\x00x"),
)
_NOWHERE = RepeatPattern.cron("* * * * *", tz="Europe/Berlin" * 1_000)
_READABLE = encode_spec(RepeatableSpec("bogus", "bogus", RepeatPattern.every(1_000), b"\xc0"))
_SPECS = (
    (b"spec", b""),
    (b"spec", b"\xc1"),
    (b"spec", b"\x91\xa1k"),
    (b"spec", b"\x98" + b"\xa1k" * 8),
    # Read, and not planned.
    (b"spec", encode_spec(RepeatableSpec("bogus", "bogus", _NOWHERE, b"\xc0"))),
    # At once: without its count it could be read, and would fire.
    (b"spec", _READABLE, b"fired", b"many"),
    (b"spec", _READABLE, b"fired", b"9223372036854775807"),
)
# Half a millisecond later the window is still the same one. Twice, it would be another.
_BETWEEN = """
local due = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not due or due % 1 ~= 0 then return 0 end
return redis.call('ZADD', KEYS[1], 'XX', 'CH', due + 0.5, ARGV[1])
"""


def tail(raw: bytes) -> str:
    """By which it is known again: no two members have the same last bytes, but for the shortest."""
    return raw[-_TAIL:].hex()


def entry(scene: Scene, chance: random.Random) -> str:
    """An entry of the stream that is no job."""
    bag = scene.bag("entry", ENTRIES)
    with scene.server(), bag.deal(chance) as (what, fields):
        _leave(scene, f"entry: {what}", tail(_envelope(fields)),
               ("XADD", scene.keys.stream, "*", *fields))  # fmt: skip
    return what


def member(scene: Scene, chance: random.Random) -> str:
    """A member of the delayed set that is no job, due now; each differs, as members of sets do."""
    due_ms = now_ms() + chance.randint(-1_000, 1_000)
    bag = scene.bag("member", MEMBERS)
    with scene.server(), bag.deal(chance) as (what, raw):
        unlike = raw if what == "too short" else raw + chance.randbytes(_TAIL)
        _leave(scene, f"member: {what}", tail(unlike),
               ("ZADD", scene.keys.delayed, due_ms, unlike))  # fmt: skip
    return what


def _leave(scene: Scene, shape: str, its_tail: str, words: Sequence[str | bytes | int]) -> None:
    """Put it there, and write it down, also if nobody says whether it is there."""
    try:
        answer = scene.stage.run(*words)
    except (redis.ConnectionError, redis.TimeoutError):
        scene.scroll.write(Poisoned(now_us(), shape, its_tail, is_certain=False))
        raise
    if not answer:
        message = f"{shape} is there already"
        raise FutileError(message)
    entry_id = answer.decode() if isinstance(answer, bytes) else ""
    scene.scroll.write(Poisoned(now_us(), shape, its_tail, entry_id))


def _envelope(fields: Sequence[bytes]) -> bytes:
    return dict(zip(fields[::2], fields[1::2], strict=True)).get(b"d", b"")


def spec(scene: Scene, chance: random.Random) -> str:
    """A recurring job that cannot be read, due now; and a window between two milliseconds."""
    key = BOGUS_SPEC + str(chance.randrange(5)).encode()
    with scene.server():
        if chance.random() < 0.8:
            scene.stage.run("HSET", scene.keys.repeat_spec(key), *chance.choice(_SPECS))
        scene.stage.run("ZADD", scene.keys.repeat, now_ms(), key)
        stored = scene.stage.run("ZRANGE", scene.keys.repeat, 0, -1)
        for good in (each for each in stored if not each.startswith(BOGUS_SPEC)):
            scene.stage.run("EVAL", _BETWEEN, 1, scene.keys.repeat, good)
    return key.decode()
