"""One run, from the first process to the last look."""

import asyncio
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from chaos import aftermath, recurring, stage
from chaos.clocks import now_us
from chaos.faults import playable
from chaos.fleet import Fleet, Part, cast
from chaos.history import Record, Scroll, Stage, in_order, read_all
from chaos.nemesis import Nemesis
from chaos.options import LEASE_MS, Options
from chaos.saying import say
from chaos.scene import Scene
from chaos.watch import Watch
from chaos.workload import RECURRING
from chasquimq import Queue
from chasquimq.wire.keys import QueueKeys

QUEUE = "chaos"


def run(options: Options, folder: Path, parts: Iterable[Part] | None = None) -> list[Record]:
    """Play it, and return all that was written down in the folder, in the order of time.

    The parts are those of the options unless others are given.
    """
    keys = QueueKeys(QUEUE)
    with ExitStack() as afterwards:
        scroll = Scroll(folder / "nemesis.jsonl")
        afterwards.callback(scroll.close)
        servers = stage.build(options.topology, options.server, keys.stream)
        afterwards.callback(servers.close)
        fleet = Fleet(
            parts or cast(options), servers.url_of, queue=QUEUE, folder=folder, seed=options.seed
        )
        afterwards.callback(fleet.close, scroll)
        scroll.write(Stage(now_us(), options.seed, options.server, options.topology, LEASE_MS))
        asyncio.run(_store_recurring(servers.url, scroll))
        scene = Scene(servers, fleet, keys, scroll, threading.Event())
        with Watch(servers, scroll, keys):
            fleet.mend(scroll)
            faults = playable(options.topology, options.faults)
            say(f"{len(faults)} kinds of faults for {options.minutes:g} minutes ...")
            Nemesis(scene, faults, options.seed).run(options.minutes * 60)
            say("enough; waiting until everything is settled ...")
            is_drained = aftermath.settle(servers, fleet, keys, scroll)
            fleet.close(scroll)
        history = read_all(folder)
        for record in aftermath.look(servers, keys, history, is_drained=is_drained):
            scroll.write(record)
            history.append(record)
        return in_order(history)


async def _store_recurring(url: str, scroll: Scroll) -> None:
    async with Queue(QUEUE, redis_url=url) as queue:
        await recurring.store(queue, scroll, RECURRING)
