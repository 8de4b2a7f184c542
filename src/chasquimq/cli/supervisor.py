"""Keeps a number of worker processes alive: starts, restarts, recycles, reloads and stops them.

It never imports the user's module, so nothing there can bring it down, and a reload is a new
process. How children are told what to do, and why not by signals, is in `child.py`.
"""

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from chasquimq.cli.child import CUT, GO, GRACE_S, STOP
from chasquimq.cli.serving import Ending, Ready, Settings
from chasquimq.cli.watching import SourceTree
from chasquimq.clock import monotonic_s
from chasquimq.config import ConsumerConfig

log = logging.getLogger("chasquimq.supervisor")

_WATCH_S = 0.3
# After an order to end at once.
_CUT_GRACE_S = 5.0
# Said in place of a child that the system would not start: no change of the source helps it.
_UNSTARTED = "unstarted"
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
# What a process said before it ended arrives at once, or never.
_LAST_WORDS_S = 1.0
# Who lived this long has not died of its beginning: the next pause is short again.
_LONG_LIFE_S = 60.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Restart:
    """Start another in its place, after a pause."""

    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AwaitChange:
    """It cannot start as the source is: wait until that changes."""


@dataclass(frozen=True, slots=True)
class Leave:
    """This place stays empty."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End everything with this exit code."""

    code: int


Verdict: TypeAlias = Restart | AwaitChange | Leave | GiveUp


@dataclass(frozen=True, slots=True)
class Death:
    """How a child ended, or could not begin, and in which circumstances."""

    code: int
    ending: str | None
    """What it said itself, if it did."""
    runs: int
    """Of jobs, if it said so."""
    was_ready: bool
    lived_s: float
    is_replaced: bool
    """It was told to end because the source changed."""
    deaths_in_a_row: int


def verdict(death: Death, *, is_stopping: bool, is_reloading: bool, was_any_ready: bool) -> Verdict:
    """What becomes of the place of a child that has ended."""
    if is_stopping or death.ending == Ending.DONE:
        return Leave()
    if death.ending == Ending.HELD:
        return GiveUp(death.code)
    # Without a pause only after some work: nothing may make processes come and go all the time.
    has_served = death.ending in {Ending.RECYCLED, Ending.STOPPED} and death.runs
    if death.is_replaced or has_served:
        return Restart()
    if not death.was_ready and death.code > 0:
        # It told why, in one line: trying again would only say it again.
        if is_reloading and death.ending != _UNSTARTED:
            return AwaitChange()
        if not was_any_ready:
            return GiveUp(death.code)
    pause_s = _FIRST_PAUSE_S * 2 ** min(death.deaths_in_a_row - 1, 16)
    return Restart(min(pause_s, _LONGEST_PAUSE_S))


class Supervisor:
    """`processes` places, each with one child at a time."""

    def __init__(
        self,
        settings: Settings,
        *,
        processes: int,
        is_reloading: bool,
        on_ready: Callable[[Ready], None],
    ) -> None:
        """`on_ready` is called once, when the first child is."""
        self._settings = settings
        self._processes = processes
        self._is_reloading = is_reloading
        self._on_ready = on_ready
        deadline_s = settings.options.get("shutdown_deadline_secs")
        if deadline_s is None:
            deadline_s = ConsumerConfig().shutdown_deadline_secs
        self._patience_s = deadline_s + GRACE_S
        self._children: set[_Child] = set()
        self._exit_code = 0
        self._signals = 0
        self._is_stopping = asyncio.Event()
        self._is_proved = asyncio.Event()
        self._has_changed = asyncio.Event()

    def __repr__(self) -> str:
        """Show live state."""
        state = "stopping" if self._is_stopping.is_set() else "running"
        return f"<Supervisor {state}, {len(self._children)}/{self._processes} processes>"

    async def run(self) -> int:
        """Keep the places filled until a signal, or until there is nothing left; the exit code."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        watching = loop.create_task(self._watch()) if self._is_reloading else None
        try:
            async with asyncio.TaskGroup() as places:
                for place in range(self._processes):
                    places.create_task(self._keep(place))
        finally:
            if watching is not None:
                watching.cancel()
            for child in self._children:
                child.kill()
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
        return self._exit_code

    async def _keep(self, place: int) -> None:
        # The first goes ahead: what cannot start at all is told once, not by every process.
        if place and not await self._unless_stopping(self._is_proved):
            return
        deaths_in_a_row = 0
        while not self._is_stopping.is_set():
            death = await self._live_and_die(place, deaths_in_a_row + 1)
            is_long = death.lived_s > _LONG_LIFE_S
            deaths_in_a_row = 0 if is_long else death.deaths_in_a_row
            match verdict(
                death,
                is_stopping=self._is_stopping.is_set(),
                is_reloading=self._is_reloading,
                was_any_ready=self._is_proved.is_set(),
            ):
                case Leave():
                    return
                case GiveUp(code):
                    self._exit_code = code
                    self._stop()
                case AwaitChange():
                    log.info("waiting for a change of the source")
                    self._has_changed.clear()
                    await self._unless_stopping(self._has_changed)
                    deaths_in_a_row = 0
                case Restart(0):
                    deaths_in_a_row = 0
                case Restart(pause_s):
                    log.warning("a process ended with %s after %.1f s: another starts in %.1f s",
                                _shown(death.code), death.lived_s, pause_s)  # fmt: skip
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._is_stopping.wait(), pause_s)

    async def _live_and_die(self, place: int, deaths_in_a_row: int) -> Death:
        began_s = monotonic_s()
        try:
            child = await _Child.start(replace(self._settings, place=place))
        except OSError as error:
            # The system may be short of processes or files for now: the others go on, and so do we.
            log.error("a process could not be started: %s", error)  # noqa: TRY400 -- that says it all
            return Death(
                code=1,
                ending=_UNSTARTED,
                runs=0,
                was_ready=False,
                lived_s=0.0,
                is_replaced=False,
                deaths_in_a_row=deaths_in_a_row,
            )
        self._children.add(child)
        try:
            if self._is_stopping.is_set():  # told while it was being started
                self._end(child)
            code = await child.listen(self._on_child_ready)
        finally:
            self._children.discard(child)
        return Death(
            code=code,
            ending=child.ending,
            runs=child.runs,
            was_ready=child.is_ready,
            lived_s=monotonic_s() - began_s,
            is_replaced=child.is_replaced,
            deaths_in_a_row=deaths_in_a_row,
        )

    def _on_child_ready(self, ready: Ready) -> None:
        if not self._is_proved.is_set():
            self._is_proved.set()
            self._on_ready(ready)

    def _on_signal(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals == 1:
            log.info("%s: %d processes finish their running jobs; once more to stop at once",
                     number.name, len(self._children))  # fmt: skip
            self._stop()
            return
        log.warning("%s again: stopping now", number.name)
        for child in self._children:
            self._end(child)

    def _stop(self) -> None:
        self._is_stopping.set()
        for child in self._children:
            self._end(child)

    def _end(self, child: "_Child") -> None:
        """Tell it to end, as urgently as we were told; it may be importing, and never hear it."""
        is_urgent = self._signals > 1
        child.order(CUT if is_urgent else STOP)
        child.kill_in(_CUT_GRACE_S if is_urgent else self._patience_s)

    async def _watch(self) -> None:
        tree = await asyncio.to_thread(SourceTree, self._settings.app_dir)
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                changed = await asyncio.to_thread(tree.changed)
            except Exception:
                # A reload that has silently ended would make edits look as if they had no effect.
                log.exception("whether the source has changed cannot be seen; looking again")
                await asyncio.sleep(_LONGEST_PAUSE_S)
                continue
            if not changed:
                continue
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            log.info("%s%s changed: starting anew", changed[0], more)
            self._has_changed.set()
            for child in self._children:
                child.is_replaced = True
                self._end(child)

    async def _unless_stopping(self, wanted: asyncio.Event) -> bool:
        """Wait for it; False if the stop came first."""
        waits = [asyncio.ensure_future(each.wait()) for each in (wanted, self._is_stopping)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        return not self._is_stopping.is_set()


@dataclass(slots=True, eq=False)
class _Child:
    """A process of `child.py`, and the supervisor's end of the socket to it."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_ready: bool = False
    is_replaced: bool = False
    ending: str | None = None
    runs: int = 0
    _killers: list[asyncio.TimerHandle] = field(default_factory=list)

    @classmethod
    async def start(cls, settings: Settings) -> "_Child":
        """Start it and hand it its settings.

        In a session of its own: Ctrl+C in a terminal is for the supervisor alone.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "chasquimq.cli.child",
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        reader, writer = await asyncio.open_connection(sock=ours)
        child = cls(process, reader, writer)
        child.order(json.dumps(settings.as_dict()))
        return child

    async def listen(self, on_ready: Callable[[Ready], None]) -> int:
        """Take note of what it says until it ends; its exit code, negative for a signal.

        The end of the process counts, not that of the socket: whatever a handler has forked may
        hold the child's side open for longer than the child lives.
        """
        reading = asyncio.ensure_future(self._take_note(on_ready))
        ending = asyncio.ensure_future(self.process.wait())
        try:
            await asyncio.wait([reading, ending], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait([reading], timeout=_LAST_WORDS_S)
            if reading.done():
                reading.result()
            return await ending
        finally:
            reading.cancel()
            ending.cancel()
            for killer in self._killers:
                killer.cancel()
            self.writer.close()
            with suppress(ConnectionError):
                await self.writer.wait_closed()

    async def _take_note(self, on_ready: Callable[[Ready], None]) -> None:
        with suppress(ConnectionError):
            while line := await self.reader.readline():
                news = json.loads(line)
                if "ready" in news:
                    self.is_ready = True
                    on_ready(Ready(**news["ready"]))
                    self.order(GO)
                self.ending = news.get("ending", self.ending)
                self.runs = news.get("runs", self.runs)

    def order(self, line: str) -> None:
        """Tell it something; if it is gone already, nothing happens."""
        if not self.writer.is_closing():
            self.writer.write(line.encode() + b"\n")

    def kill_in(self, seconds: float) -> None:
        """End it by force then, if it has not ended."""
        self._killers.append(asyncio.get_running_loop().call_later(seconds, self.kill))

    def kill(self) -> None:
        """End it by force."""
        with suppress(ProcessLookupError):
            self.process.kill()


def _shown(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
