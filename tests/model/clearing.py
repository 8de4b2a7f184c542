"""Operations on many jobs at once: drain, clean, obliterate; and what no job is."""

import hypothesis.strategies as st
import pytest

from chasquimq import QueueBusyError
from chasquimq.wire.codec import pack
from chasquimq.wire.envelope import Envelope, encode
from tests.model.ground import Ground
from tests.model.hand import MAX_PAYLOAD
from tests.model.jobs import delays
from tests.model.stage import operation
from tests.model.values import START_MS, UNIT_MS, Job
from tests.model.world import GARBAGE


class Clearing(Ground):
    """What people do with the whole queue, and strangers to it."""

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

    @operation(
        state=st.sampled_from(("waiting", "delayed", "failed", "completed")),
        limit=st.sampled_from((1, 2, 1_000)),
        grace=st.sampled_from((0, 0, 1)),
        dry_run=st.booleans(),
    )
    def clean(self, state, limit, grace, dry_run):
        model = self.model
        dlq_ids = self.world.dlq_ids()
        ids = self.queue.clean(grace * UNIT_MS, limit, state, dry_run=dry_run)
        # Entries and dead letters are as old as the server says, which is seconds.
        entries = [] if grace else model.waiting[:limit]
        letters = [] if grace else model.dlq[:limit]
        match state:
            case "waiting":
                assert ids == [each.job.id or each.entry_id.decode() for each in entries]
            case "failed":
                named = zip(letters, dlq_ids, strict=False)
                assert ids == [letter.job.id or dlq_id for letter, dlq_id in named]
            case "delayed":
                self._check_some(ids, [each.job.id for each in model.delayed], limit)
            case "completed":
                done = [job_id for job_id, end in model.ended.items() if end.kind != "f"]
                self._check_some(ids, done, limit)
        if dry_run:
            return
        match state:
            case "waiting":
                model.clean_waiting(entries)
            case "failed":
                model.discard(letters)
            case "delayed":
                assert all(map(model.cancel, ids))
            case "completed":
                model.forget(ids)

    def _check_some(self, ids, there, limit):
        """Which of them is left open, if they are more than the limit."""
        there = [job_id for job_id in there if job_id]
        assert len(set(ids)) == len(ids) == min(limit, len(there))
        assert set(ids) <= set(there)

    # Now and then: it is the end of all that an example has built up.
    @operation(luck=st.integers(0, 5), force=st.booleans())
    def obliterate(self, luck, force):
        if self.model.active and not force:
            with pytest.raises(QueueBusyError, match=f"{len(self.model.active)} jobs of"):
                self.queue.obliterate(dry_run=luck != 0)
            return
        would_go = self.queue.obliterate(force=force, dry_run=True)
        if luck == 0:
            assert self.queue.obliterate(force=force) == would_go
            self.model.obliterate()
            assert self.world.is_gone()

    @operation(kind=st.sampled_from(("no payload", "no envelope", "oversize")))
    def poison(self, kind):
        serial = self._next_serial()
        job_id, name, reason = "", "", "malformed"
        fields = {"x": serial}
        if kind == "no envelope":
            fields, reason = {"d": GARBAGE + str(serial).encode()}, "decode_failed"
        if kind == "oversize":
            job_id, name, reason = f"big-{serial}", "big", "oversize_payload"
            data = pack([serial, "x" * MAX_PAYLOAD])
            fields = {"d": encode(Envelope(job_id, data, START_MS)), "n": name}
        self.stage.client.xadd(self.stage.keys.stream, fields)
        self.model.poison(Job(job_id, name, serial, poison=reason))

    @operation(delay=delays)
    def poison_delayed(self, delay):
        serial = self._next_serial()
        member = GARBAGE + str(serial).encode()
        run_at_ms = self.world.raw.now_ms() + delay * UNIT_MS
        self.stage.client.zadd(self.stage.keys.delayed, {member: run_at_ms})
        self.model.poison_later(Job("", "", serial, poison="malformed"), delay)
