"""What a queue promises, in plain Python: no server, no bytes, no scripts, time in whole units.

The machine in `test_machine.py` does the same to this and to a real queue, and compares the two.
Where the promise leaves an order open (which of several expired leases is claimed first, which of
several jobs due in the same millisecond is promoted first) the model follows what the queue did,
after checking that it was allowed to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.model.places import Places
from tests.model.values import (
    FOR_ALL,
    GRACE,
    LOCK_TTL,
    LONGEST_BACKOFF,
    MAX_STREAM,
    RESULT_TTL,
    UNIT_MS,
    Ended,
    Entry,
    Held,
    Job,
    Later,
    Letter,
    Taken,
)


@dataclass
class Model(Places):
    """What may be done to a queue, and what becomes of it."""

    # --- adding

    def add(self, jobs: Sequence[tuple[Job, int]]) -> tuple[list[bool | None], bool]:
        """Jobs with their delays: what became of each (None: not in), and whether it was refused.

        Unique ones first, then the others for now, all or none, then those for later.
        """
        fates: list[bool | None] = [None] * len(jobs)
        unique = [at for at, (job, delay) in enumerate(jobs) if job.is_unique and not delay]
        fresh = [at for at, (job, delay) in enumerate(jobs) if not job.is_unique and not delay]
        for at in unique:
            fates[at] = self._add_unique(jobs[at][0])
        if any(fates[at] is None for at in unique):
            return fates, True
        if fresh and len(self.stream) + len(fresh) > MAX_STREAM:
            return fates, True
        for at in fresh:
            self._append(jobs[at][0])
            fates[at] = True
        for at, (job, delay) in enumerate(jobs):
            if delay:
                fates[at] = self._add_later(job, delay)
        return fates, False

    def _add_unique(self, job: Job) -> bool | None:
        if self.is_taken(job.id):
            return False
        if len(self.stream) >= MAX_STREAM:
            return None
        self.taken_ids[job.id] = self.now + GRACE
        self._append(job)
        return True

    def _add_later(self, job: Job, delay: int) -> bool:
        if job.is_unique and self.is_taken(job.id):
            return False
        if job.is_unique:
            self.taken_ids[job.id] = self.now + delay + GRACE
        self._meet(job)
        self.delayed.append(Later(job, self.now + delay))
        self.events.append(("delayed", job.id))
        return True

    # --- by hand

    def cancel(self, job_id: str) -> bool:
        later = self._later(job_id)
        if later is None:
            return False
        self.delayed.remove(later)
        self.taken_ids.pop(job_id, None)
        return True

    def remove(self, job_id: str) -> bool:
        if self.cancel(job_id):
            return True
        entry = self._entry(job_id)
        if entry is None or entry.held:
            return False
        self.stream.remove(entry)
        self.taken_ids.pop(job_id, None)
        return True

    def drain(self, *, delayed_too: bool) -> int:
        gone = [entry.job for entry in self.waiting]
        self.stream = self.active
        if delayed_too:
            gone += [later.job for later in self.delayed]
            self.delayed = []
        for job in gone:
            self.taken_ids.pop(job.id, None)
        return len(gone)

    def promote_one(self, job_id: str) -> bool:
        later = self._later(job_id)
        if later is None:
            return False
        self.delayed.remove(later)
        self._append(later.job)
        return True

    def reschedule(self, job_id: str, delay: int) -> bool:
        later = self._later(job_id)
        if later is None:
            return False
        later.due, later.run_at_ms = self.now + delay, None
        if self.is_taken(job_id):
            self.taken_ids[job_id] = self.now + delay + GRACE
        self.events.append(("delayed", job_id))
        return True

    def poison(self, job: Job) -> None:
        """Somebody writes to the stream who knows nothing of us."""
        self._meet(job)
        self.stream.append(Entry(job))

    def poison_later(self, job: Job, delay: int) -> None:
        self.delayed.append(Later(job, self.now + delay))

    def clean_waiting(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.stream.remove(entry)
            self.taken_ids.pop(entry.job.id, None)

    def forget(self, job_ids: Sequence[str]) -> None:
        """What is kept of how these jobs ended is gone."""
        for job_id in job_ids:
            del self.ended[job_id]

    def obliterate(self) -> None:
        """Nothing is left; only the test remembers who was ever here."""
        self.is_paused = False
        for places in (self.stream, self.delayed, self.dlq, self.events):
            places.clear()
        for kept in (self.ended, self.taken_ids, self.specs, self.leaders):
            kept.clear()

    def update(self, job_id: str, serial: int) -> bool:
        later, entry = self._later(job_id), self._entry(job_id)
        if later:
            later.job = replace(later.job, serial=serial, poison="")
            return True
        if entry is None or entry.held:
            return False
        self.stream.remove(entry)
        self.stream.append(Entry(replace(entry.job, serial=serial, poison="")))
        return True

    def set_paused(self, *, wanted: bool) -> bool:
        has_changed = self.is_paused != wanted
        self.is_paused = wanted
        if has_changed:
            self.events.append(("paused" if wanted else "resumed", ""))
        return has_changed

    def replay(self, letters: Sequence[Letter]) -> int:
        for letter in letters:
            self.dlq.remove(letter)
            self.ended.pop(letter.job.id, None)
            self._append(replace(letter.job, made=0))
        return len(letters)

    def discard(self, letters: Sequence[Letter]) -> int:
        for letter in letters:
            self.dlq.remove(letter)
        return len(letters)

    # --- roles

    def lead(self, role: str, holder: str) -> bool:
        """Whether this promoter, or scheduler, leads; then it does for some time more."""
        leader, until = self.leaders.get(role, (holder, 0))
        if leader != holder and until > self.now:
            return False
        self.leaders[role] = holder, self.now + LOCK_TTL
        return True

    def due(self, batch: int) -> list[Later]:
        """What a promoter moves: the earliest of those that are due, as far as there is room."""
        room = min(batch, max(0, MAX_STREAM - len(self.stream)))
        due = [later for later in self.delayed if later.due <= self.now]
        return sorted(due, key=lambda later: later.run_at_ms or 0)[:room]

    def promote(self, moved: Sequence[Later], aside: Sequence[Later]) -> None:
        """Jobs to the stream, and what is none to the dead letters: of that nobody is told."""
        for later in moved:
            self.delayed.remove(later)
            self._append(later.job)
        for later in aside:
            self.delayed.remove(later)
            self.dlq.append(Letter(later.job, "malformed", 0))

    def fire(self, batch: int) -> None:
        """A scheduler that leads fires what is due, if the queue is not full when it begins."""
        if len(self.stream) >= MAX_STREAM:
            return
        due = [key for key, spec in self.specs.items() if spec.due_ms <= self.clock_ms]
        for key in sorted(due, key=lambda key: (self.specs[key].due_ms, key))[:batch]:
            spec = self.specs[key]
            windows, next_ms = spec.plan(self.clock_ms)
            for window_ms in [] if spec.is_paused else windows:
                if spec.limit is None or spec.fired < spec.limit:
                    self._append(self.fired_job(key, window_ms))
                    spec.fired += 1
            if next_ms is None or (spec.limit is not None and spec.fired >= spec.limit):
                del self.specs[key]
            else:
                spec.due_ms = next_ms

    def fired_job(self, key: str, which: int | str) -> Job:
        """The job of a window, or one that was run by hand."""
        spec = self.specs[key]
        job_id = f"{spec.own_id or key}@{which}"
        return Job(job_id, spec.name, spec.serial, attempts=spec.attempts)

    def take(self, consumer: str, entries: Sequence[Entry], hand: set[bytes]) -> list[Taken]:
        """`consumer` is given these: which run each of them is."""
        taken = []
        for entry in entries:
            before = entry.held.counted if entry.held else 0
            entry.held = Held(consumer, before + 1, self.now)
            is_in_hand = entry.entry_id in hand
            taken.append(Taken(entry, before, entry.job.made + before + 1, is_in_hand))
        return taken

    def put_back(self, consumer: str, taken: Sequence[Taken]) -> None:
        """Deliveries come while the queue is paused: they wait again, uncounted."""
        self._let_go(consumer, taken)
        self._wait_again()

    def hand_back(self, consumer: str, taken: Sequence[Taken]) -> None:
        """A worker stops: what it did not begin goes to the next, who is woken if none would be."""
        is_backlog = bool(self.waiting)
        ours = [each for each in taken if self._is_ours(consumer, each.entry)]
        anew = [] if is_backlog else [each for each in ours if not each.before]
        self._let_go(consumer, [each for each in ours if each not in anew])
        for each in anew:
            self.stream.remove(each.entry)
            self.stream.append(Entry(each.entry.job))

    def leave(self, consumer: str, others: Sequence[str]) -> bool:
        """What was handed back goes to the other, or waits again; whether nothing else is left."""
        ours = [entry for entry in self.active if self._is_ours(consumer, entry)]
        for entry in ours if others else ():
            held = entry.held
            if held and (held.since is None or self.now - held.since >= FOR_ALL):
                entry.held = replace(held, consumer=others[0])
        if not others:
            self._wait_again()
        return not any(self._is_ours(consumer, entry) for entry in ours)

    def _wait_again(self) -> None:
        """Those at the end of the stream that nobody began are unread again.

        An entry before one that runs stays delivered, for whoever looks first.
        """
        for entry in reversed(self.active):
            if entry.held and entry.held.counted:
                break
            entry.held = None

    def renew(self, consumer: str, entries: Sequence[Entry]) -> list[bytes]:
        """Who still has them keeps them; the ids of those lost."""
        lost = []
        for entry in entries:
            if entry in self.stream and entry.held and entry.held.consumer == consumer:
                entry.held = replace(entry.held, since=self.now)
            else:
                lost.append(entry.entry_id)
        return lost

    def complete(self, entry: Entry, value: int | None) -> bool:
        if entry not in self.stream or entry.held is None:
            return False
        self.stream.remove(entry)
        kind = "n" if value is None else "v"
        self.ended[entry.job.id] = Ended(kind, value, self.now + 2 * RESULT_TTL)
        self.events.append(("completed", entry.job.id))
        return True

    def fail(self, consumer: str, entry: Entry, attempt: int) -> bool:
        """A handler raised: another run later, or the dead letters."""
        if attempt >= entry.job.budget:
            return self.bury(consumer, entry, "retries_exhausted", attempt)
        backoff = min(LONGEST_BACKOFF, 2 ** (attempt - 1))
        return self.retry(consumer, entry, made=attempt, backoff=backoff)

    def retry(self, consumer: str, entry: Entry, *, made: int, backoff: int) -> bool:
        if not self._is_ours(consumer, entry):
            return False
        self.stream.remove(entry)
        self.delayed.append(Later(replace(entry.job, made=made), self.now + backoff))
        self.events.append(("retry-scheduled", entry.job.id))
        return True

    def bury(self, consumer: str, entry: Entry, reason: str, attempts: int) -> bool:
        if not self._is_ours(consumer, entry):
            return False
        self.stream.remove(entry)
        self.dlq.append(Letter(entry.job, reason, attempts))
        # Whoever sets poison aside does not look into it: not even for its id.
        told_id = "" if entry.job.poison else entry.job.id
        if told_id:
            self.ended[told_id] = Ended("f", None, self.now + 2 * RESULT_TTL)
        self.events.append(("dlq", told_id))
        return True

    def pass_time(self, units: int) -> None:
        self.now += units
        for later in self.delayed:
            if later.run_at_ms is not None:
                later.run_at_ms -= units * UNIT_MS
        self.ended = {key: end for key, end in self.ended.items() if end.until > self.now}
