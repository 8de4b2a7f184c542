"""The machine: does the same to a real queue and to its model, and compares the two."""

import hypothesis.strategies as st
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.model.clearing import Clearing
from tests.model.jobs import UNIQUE_IDS, Jobs
from tests.model.recurring import Recurring
from tests.model.stage import OPERATIONS, operation
from tests.model.values import UNIT_MS, Job
from tests.model.workers import Workers
from tests.model.world import Seen
from tests.support.guards import sweep_keys

# By hand, between two clocks, nothing may take longer than this: else the model's units blur.
SLOPE_MS = UNIT_MS // 2


class QueueMachine(Jobs, Workers, Recurring, Clearing, RuleBasedStateMachine):
    """The rule, and what must be true after each step."""

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

    @operation(
        weight=3,
        when=lambda self: self.model.known or self.model.specs,
        units=st.sampled_from((1, 1, 1, 2, 4, 7)),
    )
    def time_passes(self, units):
        self.world.pass_time(units * UNIT_MS)
        self.stage.clock.advance(units * UNIT_MS)
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
        ends, taken_ids = self.world.kept(model.known, UNIQUE_IDS)
        assert ends == {
            job_id: (end.kind, model.value_of(job_id)) for job_id, end in model.ended.items()
        }
        assert taken_ids == set(filter(model.is_taken, UNIQUE_IDS))

    @invariant()
    def what_people_see_agrees(self):
        model = self.model
        counts = self.queue.counts()
        assert (counts.waiting, counts.active, counts.delayed, counts.dead) == (
            len(model.waiting), len(model.active), len(model.delayed), len(model.dlq)
        )  # fmt: skip
        assert self.queue.is_paused() == model.is_paused
        listed = self.queue.get_repeatable_jobs()
        assert listed == sorted(listed, key=lambda meta: meta.next_fire_ms)
        assert {meta.key: (meta.next_fire_ms, meta.paused, meta.fired) for meta in listed} == {
            key: (spec.due_ms, spec.is_paused, spec.fired) for key, spec in model.specs.items()
        }
        if model.known:
            job_id = model.known[self.serial % len(model.known)]
            assert self.queue.get_job_state(job_id) == model.state_of(job_id)

    def teardown(self):
        assert self.world.events() == self.model.events
        assert not sweep_keys(self.stage.client, self.stage.keys.name)

    def _compare_delayed(self, delayed_jobs):
        found = {(seen.id, seen.serial): (seen, score) for seen, score in delayed_jobs}
        assert len(found) == len(delayed_jobs) == len(self.model.delayed)
        is_new = any(later.run_at_ms is None for later in self.model.delayed)
        now_ms = self.world.raw.now_ms() if is_new else 0
        for later in self.model.delayed:
            seen, score = found[later.job.id, later.job.serial]
            assert seen == _seen(later.job)
            if later.run_at_ms is None:
                # Just scheduled: the server's clock has said when, and cannot have said another.
                left_ms = score - now_ms
                wanted_ms = (later.due - self.model.now) * UNIT_MS
                assert wanted_ms - SLOPE_MS < left_ms <= wanted_ms
                later.run_at_ms = score
            assert score == later.run_at_ms


def _seen(job: Job) -> Seen:
    return Seen(job.id, job.name, job.serial, job.made)
