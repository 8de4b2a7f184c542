"""Stores the recurring jobs of a run, one of each policy for missed windows."""

from collections.abc import Iterable

from chaos.clocks import now_us
from chaos.history import Recurs, Scroll
from chaos.workload import RECURRING_BUDGET
from chasquimq import BackoffSpec, MissedFiresPolicy, Queue, RepeatPattern

# More windows than a run can miss.
_CATCH_UP = 100_000
_POLICIES = {
    "skip": MissedFiresPolicy.skip(),
    "fire-once": MissedFiresPolicy.fire_once(),
    "fire-all": MissedFiresPolicy.fire_all(_CATCH_UP),
}


async def store(queue: Queue, scroll: Scroll, recurring: Iterable[tuple[str, int]]) -> set[str]:
    """Store jobs of these policies and intervals, and write them down; their keys."""
    keys = set()
    for policy, every_ms in recurring:
        data = {"takes_ms": 5, "fails": 0, "ends": "ok", "returns": True}
        job = await queue.upsert_repeatable_job(
            f"recurring-{policy}",
            {**data, "budget": RECURRING_BUDGET, "call": policy},
            repeat=RepeatPattern.every(every_ms),
            missed_fires=_POLICIES[policy],
            attempts=RECURRING_BUDGET,
            backoff=BackoffSpec.fixed(50),
        )
        scroll.write(Recurs(now_us(), job.id, every_ms, policy, RECURRING_BUDGET))
        keys.add(job.id)
    return keys
