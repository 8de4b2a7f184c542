"""`chasqui watch`: a queue, live."""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Self

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from chasquimq.broker.survey import Depths, depths
from chasquimq.cli import options, values
from chasquimq.cli.inspect import rows, shape
from chasquimq.cli.options import Session
from chasquimq.cli.render import clean, console, emit, iso, table
from chasquimq.cli.run import reading, run_until_stopped
from chasquimq.cli.unknown import remark_if_unknown
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.wire.keys import QueueKeys

_BARS = "▁▂▃▄▅▆▇█"
# So many refreshes back a sparkline goes: with the rest it fits into 80 columns.
_HISTORY = 24


@click.command(
    "watch",
    cls=options.Command,
    examples=["chasqui watch emails", "chasqui watch emails --interval-ms 500 --count 10 --json"],
)
@options.queue_argument
@click.option("--interval-ms", type=values.positive, default=1_000, show_default=True,
              metavar="MS", help="How often to look.")  # fmt: skip
@click.option("--count", type=values.positive, metavar="N", help="End after so many looks.")
@options.group_option
@options.session
def command(
    queue: str, *, interval_ms: int, count: int | None, group: str, session: Session
) -> None:
    """Show a queue live, with rates and what it was like before, until Ctrl+C.

    added/s counts entries of the stream, retries and promoted jobs too; settled/s those that left
    it. Servers before Redis 7 do not count what was added, and then both are `-`.
    """
    keys = QueueKeys(queue)
    remark_if_unknown(session, queue)

    async def follow() -> None:
        film = Film(queue, group, interval_ms)
        async with reading(session, keys.tag) as reader:
            with Screen(session) as screen:
                for look in _looks(count):
                    if look:
                        await asyncio.sleep(interval_ms / 1_000)
                    found = await reader.ask(depths(keys, group))
                    film.take(found, SYSTEM_CLOCK.now_ms())
                    screen.show(film)

    run_until_stopped(follow())


class Film:
    """The last looks at one queue, and what they say together."""

    def __init__(self, queue: str, group: str, interval_ms: int) -> None:
        """Nothing has been seen yet."""
        self._queue = queue
        self._group = group
        self._interval_ms = interval_ms
        self._looks: deque[tuple[int, Depths]] = deque(maxlen=_HISTORY)

    def take(self, found: Depths, now_ms: int) -> None:
        """Add a look."""
        self._looks.append((now_ms, found))

    def rates(self) -> tuple[float | None, float | None]:
        """Entries added and settled per second since the look before; None if not known."""
        if len(self._looks) <= 1:
            return None, None
        (before_ms, before), (now_ms, now) = self._looks[-2], self._looks[-1]
        if before.added is None or now.added is None or now_ms <= before_ms:
            return None, None
        seconds = (now_ms - before_ms) / 1_000
        added = now.added - before.added
        settled = added - (now.stream - before.stream)
        # A stream that was deleted in between begins to count anew.
        return (None, None) if added < 0 else (added / seconds, max(0, settled) / seconds)

    def shape(self) -> dict[str, object]:
        """The last look for programs."""
        now_ms, found = self._looks[-1]
        added, settled = self.rates()
        return {
            "at_ms": now_ms,
            "queue": self._queue,
            "group": self._group,
            **shape(found, now_ms),
            "stream_delta": self._delta("stream"),
            "dlq_delta": self._delta("dlq"),
            "added_per_s": added,
            "settled_per_s": settled,
        }

    def picture(self) -> RenderableType:
        """The last look for people."""
        now_ms, found = self._looks[-1]
        deltas = {"stream depth": self._delta("stream"), "DLQ depth": self._delta("dlq")}
        lines = {
            "stream depth": self._line("stream"),
            "pending": self._line("pending"),
            "DLQ depth": self._line("dlq"),
            "delayed depth": self._line("delayed"),
        }
        body = [
            (name, value, _signed(deltas.get(name)), lines.get(name, ""))
            for name, value in rows(found, now_ms)
        ]
        for name, rate in zip(("added/s", "settled/s"), self.rates(), strict=True):
            body.append((name, "-" if rate is None else f"{rate:,.1f}", "", ""))
        header = Text(
            f"chasqui watch {clean(self._queue)}  refresh={self._interval_ms}ms  {iso(now_ms)}  "
            "(Ctrl+C to exit)"
        )
        columns = [f"queue: {self._queue}", f"group: {self._group}", "delta", "history"]
        return Group(header, table(columns, body))

    def _delta(self, name: str) -> int | None:
        if len(self._looks) <= 1:
            return None
        now: int = getattr(self._looks[-1][1], name)
        before: int = getattr(self._looks[-2][1], name)
        return now - before

    def _line(self, name: str) -> str:
        return sparkline([getattr(found, name) or 0 for _, found in self._looks])


class Screen:
    """Where looks are shown: in place on a terminal, one after the other elsewhere."""

    def __init__(self, session: Session) -> None:
        """Nothing is shown yet."""
        self._as_json = session.as_json
        self._console = console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def show(self, film: Film) -> None:
        """Show the last look."""
        if self._as_json:
            emit(film.shape())
        elif self._is_live:
            self._live.update(film.picture(), refresh=True)
        else:
            self._console.print(film.picture())

    @property
    def _is_live(self) -> bool:
        return self._console.is_terminal and not self._as_json


def sparkline(values: list[int]) -> str:
    """Numbers as bars, the largest full; nothing is higher than nothing."""
    top = max(values, default=0)
    if top <= 0:
        return _BARS[0] * len(values)
    steps = len(_BARS) - 1
    return "".join(_BARS[-(-value * steps // top)] for value in values)


def _signed(delta: int | None) -> str:
    if delta is None:
        return "-"
    return f"+{delta}" if delta > 0 else str(delta)


def _looks(count: int | None) -> Iterator[int]:
    look = 0
    while count is None or look < count:
        yield look
        look += 1
