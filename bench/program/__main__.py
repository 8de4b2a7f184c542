"""`python -m bench.program ORDER`: does what the order says, and prints what it saw as JSON."""

import asyncio
import importlib
import logging
import os
import sys

from bench.program.adapter import Adapter, CannotError
from bench.program.bodies import BODIES
from bench.program.order import Answer, Order


def main(text: str) -> None:
    """Run on uvloop, for every rival."""
    import uvloop  # noqa: PLC0415 -- what tests look at does not need it

    order = Order.from_json(text)
    # What a rival logs of its jobs is not what is measured, and standard output is for the answer.
    logging.disable(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(_answer(order)).to_json(), flush=True)
        # Some rivals leave tasks that swallow cancellation, or threads that wait for ever.
        os._exit(0)


async def _answer(order: Order) -> Answer:
    module = importlib.import_module(f"bench.program.adapters.{order.adapter}")
    adapter: Adapter = module.Rival(order)
    try:
        adapter.check()
        return Answer(await BODIES[order.body](adapter))
    except CannotError as error:
        return Answer(skipped=str(error) or "it has no such feature")


if __name__ == "__main__":
    main(sys.argv[1])
