"""The machine: does the same to a real queue and to its model, and compares the two."""

from datetime import UTC, datetime

import hypothesis.strategies as st
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chasquimq import QueueFullError
from chasquimq.broker import delayed
from chasquimq.clock import ManualClock
from chasquimq.engine.disposition import Failed, Ok, Postponed
from chasquimq.errors import DlqReason
from chasquimq.wire.codec import pack
from tests.model.hand import Hand
from tests.model.plain import LOCK_TTL, MAX_STREAM, UNIT_MS, Job, Model
from tests.model.stage import OPERATIONS, Stage, operation
from tests.model.world import Seen, World
from tests.support.guards import sweep_keys

UNIQUE_IDS = ("u1", "u2", "u3")
CONSUMERS = ("c1", "c2")
PROMOTERS = ("p1", "p2")
# By hand, between two clocks, nothing may take longer than this: else the model's units blur.
SLOPE_MS = UNIT_MS // 2

names = st.sampled_from(("mail", "report"))
delays = st.integers(1, 4)
attempts = st.sampled_from((None, 1, 2))
picks = st.integers(0, 200)
consumers = st.sampled_from(CONSUMERS)
wishes = st.tuples(
    names, st.sampled_from((None, None, *UNIQUE_IDS)), st.sampled_from((0, 0, 1, 3)), attempts
)


class QueueMachine(RuleBasedStateMachine):
    """The rules."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        sweep_keys(stage.client, stage.keys.name)
        self.stage = stage
        self.queue = stage.queue
        self.world = World(stage.client, stage.keys)
        self.model = Model()
        self.serial = 0
        clock = ManualClock()
        self.hands = {name: Hand(stage.connection, stage.keys, name, clock) for name in CONSUMERS}
        # What each consumer believes to have, as the model knows it.
        self.in_hand = {name: {} for name in CONSUMERS}

    @rule(choice=st.integers(0, 1_000), data=st.data())
    def do(self, choice, data):
        """Some operation, if it means something now.

        What is drawn must not depend on how things stand: where a promise leaves an order open, the
        same steps may come to different states, and hypothesis would take that for its own mistake.
        """
        weighted = [each for each in OPERATIONS for _ in range(each.weight)]
        chosen = weighted[choice % len(weighted)]
        drawn = {name: data.draw(values) for name, values in chosen.arguments.items()}
        if not chosen.when(self):
            return
        note(f"{chosen.run.__name__}({', '.join(f'{k}={v!r}' for k, v in drawn.items())})")
        chosen.run(self, **drawn)

    # --- adding

    @operation(weight=3, wish=wishes)
    def add(self, wish):
        self._add([wish])

    @operation(weight=2, batch=st.lists(wishes, min_size=2, max_size=5))
    def add_bulk(self, batch):
        self._add(batch)

    @operation(name=names, delay=delays)
    def add_at_an_instant(self, name, delay):
        serial = self._next_serial()
        instant = datetime.fromtimestamp(self.world.raw.now_ms() / 1_000 + 60 * 10 * delay, tz=UTC)
        added = self.queue.add(name, serial, delay_ms=instant)
        assert self.model.add([(Job(added.id, name, serial), delay)]) == ([True], False)

    def _add(self, batch):
        # Ids whose job is still somewhere although they are free again would make two jobs of
        # one id: allowed, and then "the job of this id" means nothing that could be compared.
        batch = [wish for wish in batch if self._is_plain(wish[1])]
        entries = []
        for name, job_id, delay, runs in batch:
            entry = {"name": name, "data": self._next_serial()}
            if job_id is not None:
                entry["job_id"] = job_id
            if delay:
                entry["delay_ms"] = delay * UNIT_MS
            if runs is not None:
                entry["attempts"] = runs
            entries.append(entry)
        try:
            added = self.queue.add_bulk(entries)
        except QueueFullError:
            added = None
        ids = self._ids_of(added, entries)
        jobs = [
            (
                Job(job_id, entry["name"], entry["data"], attempts=entry.get("attempts"),
                    is_unique="job_id" in entry),
                wish[2],
            )
            for job_id, entry, wish in zip(ids, entries, batch, strict=True)
        ]  # fmt: skip
        fates, is_refused = self.model.add(jobs)
        assert is_refused == (added is None)
        if added is not None:
            assert [not job.deduplicated for job in added] == fates

    def _ids_of(self, added, entries):
        if added is not None:
            return [job.id for job in added]
        # A refusal names no ids: those that were made up are of jobs that are not in.
        return [entry.get("job_id", "not in") for entry in entries]

    def _is_plain(self, job_id):
        return job_id is None or self.model.is_taken(job_id) or not self.model.is_alive(job_id)

    # --- by hand

    @operation(when=lambda self: self.model.delayed, pick=picks)
    def cancel(self, pick):
        job_id = self._pick(pick, self.model.delayed)
        assert self.queue.cancel_delayed(job_id) == self.model.cancel(job_id)

    @operation(when=lambda self: self.model.stream or self.model.delayed, pick=picks)
    def remove(self, pick):
        job_id = self._pick(pick, [*self.model.stream, *self.model.delayed])
        assert self.queue.remove(job_id) == self.model.remove(job_id)

    @operation(when=lambda self: self.model.delayed, pick=picks)
    def promote_by_hand(self, pick):
        job_id = self._pick(pick, self.model.delayed)
        assert self.queue.promote_job(job_id) == self.model.promote_one(job_id)

    @operation(when=lambda self: self.model.delayed, pick=picks, delay=delays)
    def reschedule(self, pick, delay):
        job_id = self._pick(pick, self.model.delayed)
        moved = self.queue.reschedule(job_id, delay_ms=delay * UNIT_MS)
        assert moved == self.model.reschedule(job_id, delay)

    @operation(when=lambda self: self.model.stream or self.model.delayed, pick=picks)
    def update(self, pick):
        job_id = self._pick(pick, [*self.model.stream, *self.model.delayed])
        serial = self._next_serial()
        assert self.queue.update_job_data(job_id, serial) == self.model.update(job_id, serial)

    # Else hardly any example would keep a job for long.
    @operation(
        when=lambda self: len(self.model.waiting) + len(self.model.delayed) > 5,
        delayed_too=st.booleans(),
        dry_run=st.booleans(),
    )
    def drain(self, delayed_too, dry_run):
        expected = len(self.model.waiting) + delayed_too * len(self.model.delayed)
        assert self.queue.drain(delayed_too, dry_run=dry_run) == expected
        if not dry_run:
            assert self.model.drain(delayed_too=delayed_too) == expected

    @operation(when=lambda self: self.model.waiting or self.model.active)
    def pause(self):
        assert self.queue.pause() == self.model.set_paused(wanted=True)

    @operation(weight=2, when=lambda self: self.model.is_paused)
    def resume(self):
        assert self.queue.resume() == self.model.set_paused(wanted=False)

    @operation(
        weight=2,
        when=lambda self: len(self.model.waiting) > 1,
        consumer=consumers,
        count=st.integers(1, 4),
    )
    def blink(self, consumer, count):
        """A pause that a worker hears of when it has been given jobs already."""
        self.pause()
        self.take(consumer, count, was_blocked=True)
        self.resume()

    # --- dead letters

    @operation(weight=2, when=lambda self: self.model.dlq, limit=st.integers(1, 3))
    def replay(self, limit):
        assert self.queue.replay_dlq(limit) == self.model.replay(self.model.dlq[:limit])

    @operation(when=lambda self: self.model.dlq, pick=picks)
    def retry_job(self, pick):
        job_id = self._pick(pick, self.model.dlq)
        letters = [letter for letter in self.model.dlq if letter.job.id == job_id]
        assert self.queue.retry_job(job_id) == bool(self.model.replay(letters[-1:]))

    @operation(when=lambda self: self.model.dlq, pick=picks)
    def discard(self, pick):
        letter = self.model.dlq[pick % len(self.model.dlq)]
        assert self.queue.discard_dlq(ids=[letter.job.id]) == self.model.discard([letter])

    # --- roles

    @operation(
        weight=4,
        when=lambda self: self.model.delayed,
        holder=st.sampled_from(PROMOTERS),
        batch=st.sampled_from((1, 2, 256)),
    )
    def promote(self, holder, batch):
        call = delayed.promote(
            self.stage.keys, holder=holder, lock_ttl_s=LOCK_TTL * UNIT_MS // 1_000, batch=batch,
            capacity=MAX_STREAM, events_cap=100_000, dlq_cap=100,
        )  # fmt: skip
        before = len(self.model.stream)
        promotion = self.stage.connection.run(call)
        assert promotion.is_leader == self.model.lead(holder)
        due = self.model.due(batch) if promotion.is_leader else []
        by_serial = {later.job.serial: later for later in self.model.delayed}
        tail = self.world.look().stream[before:]
        moved = [by_serial[seen.serial] for _, seen in tail]
        # Of those due in the same millisecond any may come first.
        assert [later.run_at_ms for later in moved] == [later.run_at_ms for later in due]
        assert [job_id.decode() for job_id in promotion.job_ids] == [each.job.id for each in moved]
        self.model.promote(moved)
        self.stage.connection.run(delayed.forget_indexes(self.stage.keys, promotion.job_ids))
        if promotion.is_leader:
            assert promotion.depth == len(self.model.delayed)

    @operation(
        weight=6,
        when=lambda self: self.model.waiting or self.model.expired,
        consumer=consumers,
        count=st.integers(1, 4),
    )
    def take(self, consumer, count, *, was_blocked=False):
        model, hand = self.model, self.hands[consumer]
        expired, waiting = model.expired, model.waiting
        deliveries, is_paused, unfit = hand.take(count, was_blocked=was_blocked)
        assert is_paused == model.is_paused
        by_id = {entry.entry_id: entry for entry in model.stream}
        entries = [by_id[delivery.entry_id] for delivery in deliveries]
        claims = [entry for entry in entries if entry.held]
        fresh = [entry for entry in entries if entry.held is None]
        assert all(entry in expired for entry in claims)
        room = count - len(claims)
        if self.stage.connection.ready().has_claim:
            assert len(claims) == min(count, len(expired))
        elif was_blocked:
            assert not claims
        else:
            assert len(claims) == min(count, len(expired))
            # There a look for expired leases comes first, and is all if it finds some.
            room = 0 if claims or is_paused else room
        assert fresh == waiting[:room]
        assert entries == [*claims, *fresh]
        taken = model.take(consumer, entries, set(self.in_hand[consumer]))
        if is_paused:
            model.put_back(consumer, taken)
            return
        set_aside = []
        for each in taken:
            if each.is_in_hand:
                continue
            if each.attempt > each.entry.job.budget:
                made = each.attempt - 1
                assert model.bury(consumer, each.entry, "retries_exhausted", made)
                set_aside.append(each.entry.entry_id)
            else:
                self.in_hand[consumer][each.entry.entry_id] = each
        assert [each.delivery.entry_id for each in unfit] == set_aside

    @operation(
        weight=7,
        when=lambda self: any(self.in_hand.values()),
        consumer=consumers,
        pick=picks,
        how=st.sampled_from(("value", "none", "fail", "fail", "fatal", "postpone")),
    )
    def settle(self, consumer, pick, how):
        consumer = self._busy(consumer)
        hand, believed = self.hands[consumer], self.in_hand[consumer]
        assert {key: run.attempt for key, run in hand.runs.items()} == {
            key: each.attempt for key, each in believed.items()
        }
        entry_id = list(believed)[pick % len(believed)]
        each = believed.pop(entry_id)
        entry, attempt, model = each.entry, each.attempt, self.model
        match how:
            case "value":
                counted = hand.settle(entry_id, Ok(pack(attempt)))
                assert counted == model.complete(entry, attempt)
            case "none":
                counted = hand.settle(entry_id, Ok(None))
                assert counted == model.complete(entry, None)
            case "fail":
                counted = hand.settle(entry_id, Failed("no", "Error: no", "..."))
                assert counted == model.fail(consumer, entry, attempt)
            case "fatal":
                reason = DlqReason.UNRECOVERABLE
                counted = hand.settle(entry_id, Failed("no", "Error: no", "...", reason))
                assert counted == model.bury(consumer, entry, str(reason), attempt)
            case "postpone":
                counted = hand.settle(entry_id, Postponed(UNIT_MS))
                assert counted == model.retry(consumer, entry, made=attempt - 1, backoff=1)

    @operation(when=lambda self: any(self.in_hand.values()), consumer=consumers)
    def crash(self, consumer):
        """The process is gone; what the server's book says of it stays."""
        consumer = self._busy(consumer)
        self.hands[consumer].runs.clear()
        self.in_hand[consumer].clear()

    @operation(when=lambda self: any(self.in_hand.values()), consumer=consumers)
    def stop(self, consumer):
        consumer = self._busy(consumer)
        self.hands[consumer].hand_back()
        taken = list(self.in_hand[consumer].values())
        self.in_hand[consumer].clear()
        self.model.hand_back(consumer, taken)

    @operation(when=lambda self: any(self.in_hand.values()), consumer=consumers)
    def renew(self, consumer):
        consumer = self._busy(consumer)
        entries = [each.entry for each in self.in_hand[consumer].values()]
        assert self.hands[consumer].renew() == self.model.renew(consumer, entries)

    @operation(
        weight=3, when=lambda self: self.model.known, units=st.sampled_from((1, 1, 1, 2, 4, 7))
    )
    def time_passes(self, units):
        self.world.pass_time(units * UNIT_MS)
        self.model.pass_time(units)

    # --- agreement

    @invariant()
    def both_agree(self):
        look, model = self.world.look(), self.model
        assert [seen for _, seen in look.stream] == [_seen(each.job) for each in model.stream]
        for entry, (entry_id, _) in zip(model.stream, look.stream, strict=True):
            entry.entry_id = entry_id
        assert look.held == {
            each.entry_id: (each.held.consumer, each.held.counted)
            for each in model.stream
            if each.held
        }
        self._compare_delayed(look.delayed)
        assert look.dlq == [(each.job.id, each.reason, each.attempts) for each in model.dlq]
        assert self.world.ends(model.known) == {
            job_id: (end.kind, model.value_of(job_id)) for job_id, end in model.ended.items()
        }
        assert self.world.taken_ids(UNIQUE_IDS) == set(filter(model.is_taken, UNIQUE_IDS))

    @invariant()
    def what_people_see_agrees(self):
        model = self.model
        counts = self.queue.counts()
        assert (counts.waiting, counts.active, counts.delayed, counts.dead) == (
            len(model.waiting), len(model.active), len(model.delayed), len(model.dlq)
        )  # fmt: skip
        assert self.queue.is_paused() == model.is_paused
        if model.known:
            job_id = model.known[self.serial % len(model.known)]
            assert self.queue.get_job_state(job_id) == model.state_of(job_id)

    def teardown(self):
        assert self.world.events() == self.model.events
        assert not sweep_keys(self.stage.client, self.stage.keys.name)

    def _compare_delayed(self, delayed_jobs):
        by_serial = {seen.serial: (seen, score) for seen, score in delayed_jobs}
        assert len(by_serial) == len(delayed_jobs) == len(self.model.delayed)
        now_ms = self.world.raw.now_ms()
        for later in self.model.delayed:
            seen, score = by_serial[later.job.serial]
            assert seen == _seen(later.job)
            if later.run_at_ms is None:
                # Just scheduled: the server's clock has said when, and cannot have said another.
                left_ms = score - now_ms
                wanted_ms = (later.due - self.model.now) * UNIT_MS
                assert wanted_ms - SLOPE_MS < left_ms <= wanted_ms
                later.run_at_ms = score
            assert score == later.run_at_ms

    def _pick(self, pick, places):
        """The id of one of these jobs; now and then of any there ever was, gone or elsewhere."""
        if pick % 10 == 0:
            return self.model.known[pick // 10 % len(self.model.known)]
        return places[pick % len(places)].job.id

    def _busy(self, consumer):
        """This one if it has something in hand, else the one that has."""
        return consumer if self.in_hand[consumer] else next(filter(self.in_hand.get, CONSUMERS))

    def _next_serial(self):
        self.serial += 1
        return self.serial


def _seen(job: Job) -> Seen:
    return Seen(job.id, job.name, job.serial, job.made)
