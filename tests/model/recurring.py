"""Operations on recurring jobs: store, pause, run now, remove; and of those who fire them."""

import hypothesis.strategies as st
import pytest

from chasquimq import MissedFiresPolicy, QueueFullError, RepeatPattern
from chasquimq.config import SchedulerConfig
from chasquimq.engine.scheduler import SchedulerRole
from tests.model.ground import Ground
from tests.model.jobs import attempts, names, picks
from tests.model.stage import AtOnce, at_once, operation
from tests.model.values import LOCK_TTL, MAX_STREAM, UNIT_MS, Spec, first_fire

SCHEDULERS = ("s1", "s2")
PATTERNS = (("every", 1), ("every", 3), ("cron", 1), ("cron", 2))
POLICIES = (("skip", 0), ("fire-once", 1), ("fire-all", 2), ("fire-all", 3))


class Recurring(Ground):
    """What people and schedulers do with recurring jobs."""

    @operation(
        weight=2,
        name=names,
        pattern=st.sampled_from(PATTERNS),
        missed=st.sampled_from(POLICIES),
        limit=st.sampled_from((None, None, 1, 3)),
        end=st.sampled_from((None, None, 0, 2, 5)),
        runs=attempts,
        has_own_id=st.booleans(),
    )
    def upsert(self, name, pattern, missed, limit, end, runs, has_own_id):
        kind, units = pattern
        is_cron, interval_ms = kind == "cron", units * UNIT_MS
        now_ms, serial = self.model.clock_ms, self._next_serial()
        due_ms = first_fire(interval_ms, now_ms, is_cron=is_cron)
        end_ms = None if end is None else now_ms + end * UNIT_MS
        repeat = RepeatPattern.cron(f"*/{10 * units} * * * *")
        if not is_cron:
            repeat = RepeatPattern.every(interval_ms)
        how = MissedFiresPolicy(missed[0], missed[1] if missed[0] == "fire-all" else None)
        # Two specs with the same id of their own would make two jobs of one id.
        own_id = f"{name}-{kind}-{units}" if has_own_id else None
        wanted = {"repeat": repeat, "limit": limit, "end_before_ms": end_ms, "attempts": runs,
                  "job_id": own_id, "missed_fires": how}  # fmt: skip
        if end_ms is not None and due_ms > end_ms:
            with pytest.raises(ValueError, match="before the first fire"):
                self.queue.upsert_repeatable_job(name, serial, **wanted)
            return
        key = self.queue.upsert_repeatable_job(name, serial, **wanted).id
        before = self.model.specs.get(key)
        self.model.specs[key] = Spec(
            name, serial, interval_ms, is_cron, due_ms, missed,
            limit=limit, end_ms=end_ms, attempts=runs, own_id=own_id,
            fired=before.fired if before else 0,
        )  # fmt: skip

    @operation(
        weight=4,
        when=lambda self: self.model.specs,
        holder=st.sampled_from(SCHEDULERS),
        batch=st.sampled_from((1, 2, 256)),
    )
    def fire(self, holder, batch):
        config = SchedulerConfig(
            queue_name=self.stage.keys.name, holder_id=holder, batch=batch,
            max_stream_len=MAX_STREAM, lock_ttl_secs=LOCK_TTL * UNIT_MS // 1_000,
        )  # fmt: skip
        connection = AtOnce(self.stage.connection)
        at_once(SchedulerRole(connection, config, clock=self.stage.clock).step())
        if self.model.lead("scheduler", holder):
            self.model.fire(batch)

    @operation(when=lambda self: self.model.specs, pick=picks, paused=st.booleans())
    def pause_spec(self, pick, paused):
        key = self._pick_spec(pick)
        change = self.queue.pause_repeatable if paused else self.queue.resume_repeatable
        assert change(key) == (key in self.model.specs)
        if key in self.model.specs:
            self.model.specs[key].is_paused = paused

    @operation(when=lambda self: self.model.specs, pick=picks)
    def remove_spec(self, pick):
        key = self._pick_spec(pick)
        assert self.queue.remove_repeatable_by_key(key) == (key in self.model.specs)
        self.model.specs.pop(key, None)

    @operation(when=lambda self: self.model.specs, pick=picks)
    def run_spec_now(self, pick):
        key = self._pick_spec(pick)
        if key not in self.model.specs:
            assert self.queue.run_repeatable_now(key) is None
            return
        try:
            job_id = self.queue.run_repeatable_now(key)
        except QueueFullError:
            assert len(self.model.stream) >= MAX_STREAM
        else:
            job = self.model.fired_job(key, job_id.rpartition("@")[2])
            assert job.id == job_id
            assert job_id not in self.model.known
            assert self.model.add([(job, 0)]) == ([True], False)

    def _pick_spec(self, pick):
        """The key of one; now and then of none."""
        keys = sorted(self.model.specs)
        return "nobody" if pick % 10 == 0 else keys[pick % len(keys)]
