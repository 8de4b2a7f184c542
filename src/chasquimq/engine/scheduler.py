"""`SchedulerRole`: when leader, fires due specs and moves them to their next window.

Windows come by the server's clock, as delayed jobs do: a leader whose own clock is minutes ahead
would pass over all windows up to its time, for whoever leads next too, and one behind would fire
none. It sleeps until the next window; who stores a spec, which may be due sooner, wakes it through
a list that the leader blocks on. The tick is only the upper bound, for those who store and do not
wake. A fire is fenced by the window itself (`fire.lua`), so two schedulers can never fire the same
one, whatever their locks say. A spec that cannot be read, or not be planned for whatever reason, is
put off and logged: it never stops the others. Nor does one that the server refuses to tell or to
fire, if not all are: its window stays where it is, and is tried again after a tick. What a crash
leaves behind: the lock, which expires, and specs that are due; the next leader fires them by their
policy.
"""

import asyncio
import logging
import math
from dataclasses import replace

from chasquimq.broker import locks, repeats, stream
from chasquimq.broker.connection import Connection
from chasquimq.broker.repeats import StoredSpec
from chasquimq.broker.steps import drive
from chasquimq.broker.stream import NewJob, Telling
from chasquimq.clock import Clock
from chasquimq.config import SchedulerConfig
from chasquimq.engine import cadence
from chasquimq.engine.bell import Bell
from chasquimq.engine.cadence import Plan
from chasquimq.engine.legible import legible
from chasquimq.engine.role import Role
from chasquimq.engine.server_clock import ServerClock
from chasquimq.errors import ChasquiError, ServerReplyError
from chasquimq.metrics import LockOutcome, report
from chasquimq.wire.envelope import Envelope, encode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import MissedFiresPolicy, RepeatableSpec, fire_id

log = logging.getLogger("chasquimq.engine")

# A spec that cannot be read is looked at again after this long: a newer release may know it.
_PUT_OFF_MS = 60_000
# What a server says to whoever asks, not of one spec: the role waits, ever longer.
_REFUSED_TO_ALL = frozenset(
    ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY")
)
# A window that is due and did not fire must not make a busy loop.
_SHORTEST_SLEEP_S = 0.005


class SchedulerRole(Role):
    """One of many, of which one leads."""

    name = "scheduler"

    def __init__(
        self, connection: Connection, config: SchedulerConfig, *, clock: Clock | None = None
    ) -> None:
        """The server's clock says what is due, unless there is a `clock` to go by.

        The scheduler listens on a sibling of `connection`, for as long as it runs.
        """
        self.connection = connection
        self._config = config
        self._server_clock = ServerClock()
        self._clock = clock
        self._keys = QueueKeys(config.queue_name)
        self.bell = Bell(connection.sibling(), self._keys.repeat_wake, role=self.name)
        self._was_leader: bool | None = None
        self._put_off: set[str] = set()
        # Specs that the server refused to tell or to fire, and when each is tried again. They stay
        # due, before all others: the server may refuse every spec for a while, and windows must not
        # move.
        self._refused: dict[bytes, int] = {}
        # Specs that make up for more windows than one step fires: how many are left, by the window
        # at which the spec stands. Who takes over half way begins with the whole number anew.
        self._catching_up: dict[bytes, dict[int, int]] = {}
        self.fired = 0

    def __repr__(self) -> str:
        """Show whether it leads."""
        state = "leading" if self._was_leader else "standing by"
        return f"<Scheduler {self._config.queue_name} {state}, {self.fired} fired>"

    async def step(self) -> float:
        """Fire what is due, if we lead; return the seconds until the next window or the tick."""
        config = self._config
        longest_s = config.tick_interval_ms / 1_000
        is_leader = await self.connection.run(
            locks.lead(self._keys.scheduler_lock, config.holder_id, config.lock_ttl_secs)
        )
        self._note_leadership(is_leader=is_leader)
        if not is_leader:
            return longest_s
        if self._clock is None:
            await self._server_clock.look(self.connection)
        if (left_s := await self._until_next()) > 0:
            if not self._refused:
                self._catching_up.clear()
            return min(longest_s, max(_SHORTEST_SLEEP_S, left_s))
        if await self.connection.run(stream.depth(self._keys)) >= config.max_stream_len:
            return longest_s
        due = await self._due()
        for stored in due:
            try:
                await self._fire(stored)
            except ServerReplyError as error:
                if error.kind in _REFUSED_TO_ALL:
                    raise
                self._refused[stored.raw_key] = self._now_ms() + config.tick_interval_ms
                self._note_put_off(stored.key, error.message)
                self._report(error)
        if len(due) >= config.batch:
            return 0
        return min(longest_s, max(_SHORTEST_SLEEP_S, await self._until_next()))

    async def _due(self) -> list[StoredSpec]:
        """A batch of the specs whose window has come, without those that were just refused."""
        now_ms = self._now_ms()
        refused = {key: until_ms for key, until_ms in self._refused.items() if until_ms > now_ms}
        found = await drive(
            self.connection,
            repeats.due(self._keys, now_ms, self._config.batch + len(refused)),
        )
        # Not those that somebody has moved or removed meanwhile.
        self._refused = {
            each.raw_key: refused[each.raw_key] for each in found if each.raw_key in refused
        }
        return [each for each in found if each.raw_key not in refused]

    async def _until_next(self) -> float:
        """Seconds until the next window or attempt; without end if there is none."""
        skip = len(self._refused)
        next_ms = await self.connection.run(repeats.next_due(self._keys, skip=skip))
        times_ms = [*self._refused.values(), *(() if next_ms is None else (next_ms,))]
        return (min(times_ms) - self._now_ms()) / 1_000 if times_ms else math.inf

    async def run(self, stop: asyncio.Event) -> None:
        """Repeat `step` until `stop` is set, then stop listening too."""
        try:
            await super().run(stop)
        finally:
            await self.bell.end()

    async def wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Sleep, but wake for a spec that is stored meanwhile."""
        if self._was_leader:
            await self.bell.wait(stop, seconds)
        else:
            await super().wait(stop, seconds)

    async def release(self) -> None:
        """Give the lock up, so that another can lead at once."""
        try:
            await self.connection.run(
                locks.release(self._keys.scheduler_lock, self._config.holder_id)
            )
        except ChasquiError as error:
            log.debug("the scheduler's lock was not released, it expires by itself: %s", error)

    async def _fire(self, stored: StoredSpec) -> None:
        if stored.is_refused:
            raise ServerReplyError(stored.problem)
        now_ms = self._now_ms()
        planned = self._planned(stored, now_ms)
        if planned is None:
            await self.connection.run(
                repeats.move(self._keys, stored.raw_key, now_ms + _PUT_OFF_MS)
            )
            return
        plan, jobs = planned
        if plan.left and plan.next_ms is not None:
            # Both, until the next step shows whether the server has carried this one out.
            before = self._left(stored)
            self._catching_up[stored.raw_key] = {plan.next_ms: plan.left} | (
                {} if before is None else {stored.due_ms: before}
            )
        fired = await self.connection.run(
            repeats.fire(
                self._keys,
                stored,
                jobs,
                holder=self._config.holder_id,
                next_ms=plan.next_ms,
                telling=Telling(now_ms, self._events_cap()),
            )
        )
        if not plan.left:
            self._catching_up.pop(stored.raw_key, None)
        self._put_off.discard(stored.key)
        self.fired += fired.count
        if not fired.was_ours:
            log.info("spec %s was fired by another scheduler", legible(stored.key))

    def _now_ms(self) -> int:
        return (self._clock or self._server_clock).now_ms()

    def _planned(self, stored: StoredSpec, now_ms: int) -> tuple[Plan, list[NewJob]] | None:
        """What a due spec does now, and its jobs; None, which is told, if it cannot be known."""
        spec = stored.spec
        if spec is None:
            self._note_put_off(stored.key, stored.problem)
            return None
        try:
            plan = self._plan(stored, spec, now_ms)
            windows = () if stored.is_paused else plan.windows_ms
            return plan, [self._job(stored, spec, window_ms) for window_ms in windows]
        except ValueError as error:
            self._note_put_off(stored.key, str(error))
        except Exception as error:  # noqa: BLE001 -- whatever one spec brings about, others fire
            self._note_put_off(stored.key, f"{type(error).__name__}: {legible(str(error))}")
        return None

    def _plan(self, stored: StoredSpec, spec: RepeatableSpec, now_ms: int) -> Plan:
        if stored.is_paused:
            spec = replace(spec, missed_fires=MissedFiresPolicy.skip())
        return cadence.plan(spec, stored.due_ms, now_ms, left=self._left(stored))

    def _left(self, stored: StoredSpec) -> int | None:
        return self._catching_up.get(stored.raw_key, {}).get(stored.due_ms)

    def _job(self, stored: StoredSpec, spec: RepeatableSpec, window_ms: int) -> NewJob:
        job_id = fire_id(stored.job_id or stored.key, window_ms)
        # The window is the job's birthday: what it waited is counted from when it should have run.
        envelope = encode(Envelope(job_id, spec.payload, window_ms, 0, spec.retry))
        return NewJob(job_id, envelope, spec.job_name)

    def _events_cap(self) -> int:
        return self._config.events_max_stream_len if self._config.events_enabled else 0

    def _note_put_off(self, key: str, problem: str) -> None:
        if key not in self._put_off:
            self._put_off.add(key)
            log.error("recurring job %r cannot be fired and is put off: %s", legible(key), problem,
                      extra={"queue": self._config.queue_name})  # fmt: skip

    def _note_leadership(self, *, is_leader: bool) -> None:
        if is_leader != self._was_leader:
            self._was_leader = is_leader
            outcome = LockOutcome.ACQUIRED if is_leader else LockOutcome.HELD
            report(self._config.metrics.promoter_lock_outcome, outcome)
