"""Faults of content: things in the queue that are no jobs, keys of ours of another type."""

import random

from chaos.clocks import now_ms, now_us
from chaos.history import Poisoned
from chaos.scene import Scene

BOGUS_SPEC = b"bogus-"

_OVERSIZE = b"x" * (1_048_576 + 1)
_ENVELOPE_OF_TWO = b"\x92\xa2id\xc4\x01\xc0"
_ENVELOPE_WITHOUT_ID = b"\x94\xc0\xc4\x01\xc0\x00\x00"
_MAP_OF_A_LATER_VERSION = b"\x82\xa1v\x63\xa4body\xc4\x01\xc0"
_ENTRIES = (
    ("no fields of ours", (b"hello", b"world")),
    ("an empty envelope", (b"d", b"")),
    ("garbage", (b"d", b"\xc1\xff\x00garbage")),
    ("two slots", (b"d", _ENVELOPE_OF_TWO)),
    ("no id", (b"d", _ENVELOPE_WITHOUT_ID)),
    ("a later version", (b"d", _MAP_OF_A_LATER_VERSION, b"n", b"from the future")),
    ("oversize", (b"d", _OVERSIZE, b"n", b"huge")),
)
_MEMBERS = (
    ("too short", b"\x01"),
    ("a name beyond its end", b"\xff\xff\xff\x7fabc"),
    ("a name and garbage", b"\x01\x00\x00\x00x\xc1"),
    ("nothing but a name", b"\x01\x00\x00\x00x"),
)
_SPECS = (b"", b"\xc1", b"\x91\xa1k", b"\x98" + b"\xa1k" * 8)


def entry(scene: Scene, chance: random.Random) -> str:
    """An entry of the stream that is no job."""
    what, fields = chance.choice(_ENTRIES)
    with scene.server():
        scene.stage.run("XADD", scene.keys.stream, "*", *fields)
        scene.scroll.write(Poisoned(now_us(), f"entry: {what}", 1))
    return what


def member(scene: Scene, chance: random.Random) -> str:
    """A member of the delayed set that is no job, due now; each differs, as members of sets do."""
    what, raw = chance.choice(_MEMBERS)
    unlike = raw if what == "too short" else raw + chance.randbytes(6)
    due_ms = now_ms() + chance.randint(-1_000, 1_000)
    with scene.server():
        added = scene.stage.run("ZADD", scene.keys.delayed, due_ms, unlike)
        scene.scroll.write(Poisoned(now_us(), f"member: {what}", int(added)))
    return what


def spec(scene: Scene, chance: random.Random) -> str:
    """A recurring job that cannot be read, due now."""
    key = BOGUS_SPEC + str(chance.randrange(5)).encode()
    with scene.server():
        if chance.random() < 0.8:
            scene.stage.run("HSET", scene.keys.repeat_spec(key), "spec", chance.choice(_SPECS))
        scene.stage.run("ZADD", scene.keys.repeat, now_ms(), key)
    return key.decode()


def wrong_type(scene: Scene, chance: random.Random) -> str:
    """A key of ours that holds a list, for a while."""
    keys = scene.keys
    key = chance.choice((keys.wake, keys.promoter_lock, keys.scheduler_lock, keys.resumed,
                         keys.events))  # fmt: skip
    seconds = chance.uniform(0.3, 3)
    kind = "SET" if key == keys.wake else "LPUSH"
    with scene.server():
        scene.stage.run("DEL", key)
        scene.stage.run(kind, key, "not what you think")
        scene.last(seconds)
        scene.stage.run("DEL", key)
    return f"{key.decode()} for {seconds:.1f} s"
