"""One run, from the first process to the last look."""

import asyncio
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from chaos import aftermath, stage
from chaos.clocks import now_us
from chaos.faults import playable
from chaos.fleet import Fleet, cast
from chaos.history import Record, Recurs, Scroll, Stage, in_order, read_all
from chaos.nemesis import Nemesis
from chaos.options import LEASE_MS, Options
from chaos.saying import say
from chaos.scene import Scene
from chaos.watch import Watch
from chaos.workload import RECURRING, RECURRING_BUDGET
from chasquimq import BackoffSpec, MissedFiresPolicy, Queue, RepeatPattern
from chasquimq.wire.keys import QueueKeys

QUEUE = "chaos"
# More windows than a run can miss.
_CATCH_UP = 100_000


def run(options: Options) -> list[Record]:
    """Play it, and return all that was written down, in the order of time."""
    keys = QueueKeys(QUEUE)
    with ExitStack() as afterwards:
        folder = options.keep or Path(
            afterwards.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        scroll = Scroll(folder / "nemesis.jsonl")
        afterwards.callback(scroll.close)
        servers = stage.build(options.topology, options.server, keys.stream)
        afterwards.callback(servers.close)
        fleet = Fleet(cast(options), servers.url_of, queue=QUEUE, folder=folder, seed=options.seed)
        afterwards.callback(fleet.close, scroll)
        scroll.write(Stage(now_us(), options.seed, options.server, options.topology, LEASE_MS))
        asyncio.run(_store_recurring(servers.url, scroll))
        scene = Scene(servers, fleet, keys, scroll, threading.Event())
        with Watch(servers, scroll):
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
    policies = {
        "skip": MissedFiresPolicy.skip(),
        "fire-once": MissedFiresPolicy.fire_once(),
        "fire-all": MissedFiresPolicy.fire_all(_CATCH_UP),
    }
    async with Queue(QUEUE, redis_url=url) as queue:
        for policy, every_ms in RECURRING:
            data = {"takes_ms": 5, "fails": 0, "ends": "ok", "returns": True}
            job = await queue.upsert_repeatable_job(
                f"recurring-{policy}",
                {**data, "budget": RECURRING_BUDGET, "call": policy},
                repeat=RepeatPattern.every(every_ms),
                missed_fires=policies[policy],
                attempts=RECURRING_BUDGET,
                backoff=BackoffSpec.fixed(50),
            )
            scroll.write(Recurs(now_us(), job.id, every_ms, policy))
