"""One flood, from filling the delayed set to the last job."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from chaos.clocks import now_ms
from chaos.fleet import Fleet, Part
from chaos.flood.worker import NEW
from chaos.history import Scroll
from chaos.saying import say
from chaos.stage import Single
from chasquimq import Queue
from chasquimq.wire.envelope import Envelope, encode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import encode_member
from tests.support.eventually import eventually_sync
from tests.support.servers import known_servers

QUEUE = "flood"
_BATCH = 1_000
_START_SECS = 60
_LOOK_S = 1.0
# How many can be put into the set in a second, at least: nothing may be due before all are there.
_FILL_RATE = 5_000
_LEAD_S = 10


@dataclass(frozen=True, slots=True)
class Options:
    """One flood."""

    jobs: int = 1_000_000
    workers: int = 2
    concurrency: int = 100
    takes_ms: float = 0.0
    """How long a handler awaits."""
    new_rate: float = 20.0
    """New jobs a second, meanwhile."""
    server: str = "valkey"
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """How much of the flood was left at a moment after it was due."""

    at_s: float
    delayed: int
    in_stream: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen."""

    looks: list[Look]
    new: list[tuple[float, float]]
    """When each new job was added, and how long it took to its handler, in seconds."""
    unheard: int
    """New jobs that never ran."""


def run(options: Options) -> Outcome:
    """Play it."""
    keys = QueueKeys(QUEUE)
    with ExitStack() as afterwards:
        folder = Path(afterwards.enter_context(tempfile.TemporaryDirectory(prefix="flood-")))
        scroll = Scroll(folder / "flood.jsonl")
        afterwards.callback(scroll.close)
        stage = Single(known_servers()[options.server], ())
        afterwards.callback(stage.close)
        # Past the proxies: they would be what is measured.
        fleet = Fleet(_parts(options), lambda _: stage.url, queue=QUEUE, folder=folder, seed=1)
        afterwards.callback(fleet.close, scroll)
        due_ms = now_ms() + (options.jobs // _FILL_RATE + _LEAD_S) * 1_000
        _fill(stage, keys, options.jobs, due_ms)
        fleet.mend(scroll, may_be_skewed=False)
        eventually_sync(lambda: stage.is_read_by(keys.stream, options.workers), _START_SECS)
        say(f"{options.jobs:,} jobs are due in {(due_ms - now_ms()) / 1_000:.0f} s ...")
        time.sleep(max(0.0, (due_ms - now_ms()) / 1_000))
        looks, sent = asyncio.run(_watch(stage, keys, options, due_ms))
        fleet.close(scroll)
        new = sorted(_heard(folder, due_ms))
        return Outcome(looks, new, sent - len(new))


def _fill(stage: Single, keys: QueueKeys, jobs: int, due_ms: int) -> None:
    """Have so many jobs wait in the delayed set, due within the second after `due_ms`.

    As bytes: through the front door a million take longer than the flood itself.
    """
    for start in range(0, jobs, _BATCH):
        members = {}
        for number in range(start, min(jobs, start + _BATCH)):
            envelope = Envelope(f"flood-{number}", b"\xc0", due_ms, 0)
            members[encode_member("old", encode(envelope))] = due_ms + number * 1_000 // jobs
        stage.client().zadd(keys.delayed, members)


async def _watch(
    stage: Single, keys: QueueKeys, options: Options, due_ms: int
) -> tuple[list[Look], int]:
    """Add new jobs until the flood has drained; what was seen, and how many were added."""
    looks: list[Look] = []
    sent, next_s = 0, time.monotonic()
    async with Queue(QUEUE, redis_url=stage.url) as queue:
        while not (looks and looks[-1].delayed == looks[-1].in_stream == 0):
            if (now_ms() - due_ms) / 1_000 >= len(looks) * _LOOK_S:
                looks.append(_look(stage, keys, due_ms))
            if not looks or looks[-1].delayed:
                await queue.add(NEW, now_ms())
                sent += 1
            next_s += 1 / options.new_rate
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
    return looks, sent


def _look(stage: Single, keys: QueueKeys, due_ms: int) -> Look:
    delayed, in_stream = stage.run("ZCARD", keys.delayed), stage.run("XLEN", keys.stream)
    return Look((now_ms() - due_ms) / 1_000, delayed, in_stream)


def _heard(folder: Path, due_ms: int) -> Iterator[tuple[float, float]]:
    for path in folder.glob("*.late"):
        for line in path.read_text().splitlines():
            sent_ms, late_ms = map(int, line.split())
            yield (sent_ms - due_ms) / 1_000, late_ms / 1_000


def _parts(options: Options) -> Iterator[Part]:
    for number in range(1, options.workers + 1):
        settings: dict[str, object] = {"takes_ms": options.takes_ms}
        settings["concurrency"] = options.concurrency
        yield Part(f"worker-{number}", "chaos.flood.worker", settings)
