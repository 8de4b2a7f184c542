"""Operations of those who add jobs and see to them: add, cancel, remove, change, replay."""

from datetime import UTC, datetime

import hypothesis.strategies as st

from chasquimq import QueueFullError
from chasquimq.broker import stream
from chasquimq.broker.stream import NewJob, Telling
from chasquimq.wire.codec import pack
from chasquimq.wire.envelope import encode_job
from chasquimq.wire.ids import ulid
from tests.model.ground import Ground
from tests.model.stage import operation
from tests.model.values import MAX_STREAM, UNIT_MS, Job

UNIQUE_IDS = ("u1", "u2", "u3")

names = st.sampled_from(("mail", "report"))
delays = st.integers(1, 4)
attempts = st.sampled_from((None, 1, 2))
picks = st.integers(0, 200)
wishes = st.tuples(
    names, st.sampled_from((None, None, *UNIQUE_IDS)), st.sampled_from((0, 0, 1, 3)), attempts
)


class Jobs(Ground):
    """What people do with single jobs."""

    # --- adding

    @operation(weight=3, wish=wishes)
    def add(self, wish):
        self._add([wish])

    @operation(when=lambda self: len(self.model.stream) < MAX_STREAM, name=names)
    def add_past_the_script(self, name):
        """As a single job goes to a server that knows ids: by `XADD`, far from the limit."""
        if not self.stage.connection.ready().has_idmp:
            return
        serial, now_ms = self._next_serial(), self.stage.clock.now_ms()
        # Not by the clock of the stage, which runs ahead: ids of this process never go back.
        job_id = ulid(self.world.raw.now_ms())
        call = stream.add_one(
            self.stage.keys,
            NewJob(job_id, encode_job(job_id, pack(serial), now_ms), name),
            producer_id="model",
            telling=Telling(now_ms, cap=100_000),
            counting=True,
        )
        assert self.stage.connection.run(call).count == 1
        assert self.model.add([(Job(job_id, name, serial), 0)]) == ([True], False)

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

    # --- dead letters

    @operation(weight=2, when=lambda self: self.model.dlq, limit=st.integers(1, 3))
    def replay(self, limit):
        letters = [letter for letter in self.model.dlq if letter.job.id]
        assert self.queue.replay_dlq(limit) == self.model.replay(letters[:limit])

    @operation(when=lambda self: self.model.dlq, pick=picks)
    def retry_job(self, pick):
        job_id = self._pick(pick, self.model.dlq)
        letters = [letter for letter in self.model.dlq if letter.job.id == job_id]
        assert self.queue.retry_job(job_id) == bool(self.model.replay(letters[-1:]))

    @operation(when=lambda self: self.model.dlq, pick=picks)
    def discard(self, pick):
        at = pick % len(self.model.dlq)
        letter = self.model.dlq[at]
        name = letter.job.id or self.world.dlq_ids()[at]
        assert self.queue.discard_dlq(ids=[name]) == self.model.discard([letter])
