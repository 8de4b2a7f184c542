"""A small app for `chasqui worker`: run this file to add jobs, and a worker to run them.

export CHASQUI_REDIS_URL=embedded:///tmp/chasqui-example     (or the URL of a server of yours)
python examples/tasks.py
chasqui worker tasks:app --app-dir examples --burst
"""

import asyncio

from chasquimq import Chasqui, Job, UnrecoverableError

app = Chasqui("orders")
STOCK = {"apple": 3, "pear": 0}


@app.task(attempts=3, timeout=30)
async def ship(job: Job, item: str, *, count: int = 1) -> str:
    """An async task; its first parameter is the job itself."""
    if item not in STOCK:
        message = f"there is no such thing as a {item}"
        raise UnrecoverableError(message)
    await asyncio.sleep(0.01)
    return f"{count} {item} shipped in run {job.attempt}"


@app.task("thank-you")
def thank(to: str) -> None:
    """A plain function: it runs in a thread."""
    print(f"thank you, {to}")


async def main() -> None:
    """Add one job that works, one that thanks, and one that cannot work."""
    async with app:
        for job in (await ship.add("apple", count=2), await thank.add("ada"),
                    await ship.add("unicorn")):  # fmt: skip
            print(f"added {job.name} {job.data}")


if __name__ == "__main__":
    asyncio.run(main())
