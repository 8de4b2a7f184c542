"""One soak, from the first process to the last look."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from chaos.aftermath import leftovers, settle
from chaos.fleet import Fleet, Part
from chaos.history import Scroll
from chaos.saying import say
from chaos.soak.ledger import Balance, balance
from chaos.soak.options import Options
from chaos.soak.readings import Readings, of_server
from chaos.soak.verdict import Series
from chaos.stage import Single
from chasquimq import Queue, RepeatPattern
from chasquimq.wire.keys import QueueKeys
from tests.support.eventually import eventually_sync
from tests.support.servers import known_servers

QUEUE = "soak"
_START_SECS = 60
_RECURS_MS = 500
# What is kept for a while, or up to a number, is to be steady long before the warm-up is over.
_KEPT_MS = 20_000
_DEAD_LETTERS = 100
_NO_EVICTION = ("--maxmemory-policy", "noeviction")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a soak has come to."""

    seconds: float
    cuts: int
    balance: Balance
    series: list[Series]
    wrongs: list[str]
    """What is wrong, whatever the series say."""


def run(options: Options) -> Outcome:
    """Play it."""
    keys = QueueKeys(QUEUE)
    with ExitStack() as afterwards:
        folder = Path(afterwards.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        scroll = Scroll(folder / "soak.jsonl")
        afterwards.callback(scroll.close)
        stage = Single(known_servers()[options.server], _NO_EVICTION)
        afterwards.callback(stage.close)
        fleet = Fleet(_parts(options), stage.url_of, queue=QUEUE, folder=folder, seed=options.seed)
        afterwards.callback(fleet.close, scroll)
        asyncio.run(_store_recurring(stage.url))
        fleet.mend(scroll, may_be_skewed=False)
        eventually_sync(lambda: stage.is_read_by(keys.stream, options.workers), _START_SECS)
        say(f"{options.rate:g} jobs a second for {options.minutes:g} minutes ...")
        readings, cuts, seconds = _soak(stage, fleet, keys, options)
        wrongs = [f"{each.who} ended by itself" for each in fleet if not each.is_alive]
        say("enough; waiting until everything is settled ...")
        if not settle(stage, fleet, keys, scroll):
            wrongs.append("the queue does not drain")
        fleet.close(scroll)
        wrongs += leftovers(stage.client(), keys)
        return Outcome(seconds, cuts, balance(folder), readings.series, wrongs)


def _soak(
    stage: Single, fleet: Fleet, keys: QueueKeys, options: Options
) -> tuple[Readings, int, float]:
    """Cut somebody's connections, read, cut the next one's: until the time is over."""
    readings, cuts, at_s = Readings(), 0, 0.0
    began, turns = time.monotonic(), cycle(fleet)
    while at_s < options.minutes * 60:
        stage.proxies[next(turns).part.name].cut()
        cuts += 1
        # Half way: by then everybody is connected again, and nobody is about to be cut.
        time.sleep(options.every_s / 2)
        readings.take(time.monotonic() - began, fleet, of_server(stage.client(), keys))
        time.sleep(max(0.0, began + cuts * options.every_s - time.monotonic()))
        at_s = time.monotonic() - began
    return readings, cuts, at_s


def _parts(options: Options) -> Iterator[Part]:
    for number in range(1, options.producers + 1):
        share = options.rate / options.producers
        yield Part(f"producer-{number}", "chaos.soak.producer", {"rate": share, "number": number})
    for number in range(1, options.workers + 1):
        yield Part(
            f"worker-{number}",
            "chaos.soak.worker",
            {"result_ttl_ms": _KEPT_MS, "dlq_max_stream_len": _DEAD_LETTERS},
        )


async def _store_recurring(url: str) -> None:
    async with Queue(QUEUE, redis_url=url) as queue:
        await queue.upsert_repeatable_job(
            "recurring", {"number": None}, repeat=RepeatPattern.every(_RECURS_MS)
        )
