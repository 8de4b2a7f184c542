"""Operations of promoters and workers: promote, take, settle, die, hand back, leave, renew."""

import hypothesis.strategies as st

from chasquimq.broker import delayed
from chasquimq.engine.disposition import Failed, Ok, Postponed
from chasquimq.errors import DlqReason
from chasquimq.wire.codec import pack
from tests.model.ground import Ground
from tests.model.jobs import picks
from tests.model.stage import CONSUMERS, operation
from tests.model.values import LOCK_TTL, MAX_STREAM, UNIT_MS

PROMOTERS = ("p1", "p2")

consumers = st.sampled_from(CONSUMERS)


class Workers(Ground):
    """What those do who work on the queue, and what a pause does to them."""

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
        assert promotion.is_leader == self.model.lead("promoter", holder)
        due = self.model.due(batch) if promotion.is_leader else []
        look = self.world.look()
        left = {_mark(seen) for seen, _ in look.delayed}
        gone = {_mark(each.job): each for each in self.model.delayed if _mark(each.job) not in left}
        moved = [gone.pop(_mark(seen)) for _, seen in look.stream[before:]]
        aside = list(gone.values())
        # Of those due in the same millisecond any may come first.
        times = [later.run_at_ms for later in moved]
        assert times == sorted(times)
        assert sorted([*times, *(later.run_at_ms for later in aside)]) == [
            later.run_at_ms for later in due
        ]
        assert not any(later.job.poison == "malformed" for later in moved)
        assert all(later.job.poison == "malformed" for later in aside)
        assert [job_id.decode() for job_id in promotion.job_ids] == [each.job.id for each in moved]
        self.model.promote(moved, aside)
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
            job = each.entry.job
            if job.poison or each.attempt > job.budget:
                reason = job.poison or "retries_exhausted"
                made = 0 if job.poison else each.attempt - 1
                assert model.bury(consumer, each.entry, reason, made)
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

    @operation(weight=2, consumer=consumers)
    def leave(self, consumer):
        """The same, and then it leaves the group: it may have nothing in hand, or old leases."""
        taken = list(self.in_hand[consumer].values())
        others = [name for name in self.world.consumers() if name != consumer]
        self.in_hand[consumer].clear()
        self.model.hand_back(consumer, taken)
        has_left = self.hands[consumer].leave()
        assert has_left == self.model.leave(consumer, others)
        assert (consumer in self.world.consumers()) == (not has_left)

    @operation(when=lambda self: any(self.in_hand.values()), consumer=consumers)
    def renew(self, consumer):
        consumer = self._busy(consumer)
        entries = [each.entry for each in self.in_hand[consumer].values()]
        assert self.hands[consumer].renew() == self.model.renew(consumer, entries)


def _mark(job):
    """What tells jobs apart, whether seen or known: those that recur share their data."""
    return job.id, job.serial
