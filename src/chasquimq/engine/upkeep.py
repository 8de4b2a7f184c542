"""What people do to a queue by hand, as steps: pause it, remove or change one job in it.

Every change is a script that looks and acts in one step: a job is either changed here, or read,
promoted or cancelled by somebody else before that, never both.
"""

from collections.abc import Callable

from chasquimq.broker import delayed, pause, upkeep
from chasquimq.broker.call import Call, Objection, Steps
from chasquimq.broker.seek import Found, find_entry, newest_entry
from chasquimq.broker.stream import Telling
from chasquimq.clock import Clock
from chasquimq.config import UNIQUE_GRACE_SECS, ProducerConfig
from chasquimq.engine.limits import check_delay, check_size
from chasquimq.wire.envelope import Envelope, encode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member


class Upkeep:
    """The steps of one producer that change what is queued, one job at a time."""

    def __init__(
        self, config: ProducerConfig, clock: Clock, telling: Callable[[], Telling]
    ) -> None:
        """`telling` says what the events stream is to be told."""
        self._config = config
        self._keys = QueueKeys(config.queue_name)
        self._clock = clock
        self._telling = telling

    def ready(self) -> Steps[None]:
        """End once the server has answered."""
        yield upkeep.ping()

    def set_paused(self, *, paused: bool) -> Steps[bool]:
        """Pause the queue, for all workers and until it is resumed; True if that is a change."""
        changed: bool = yield upkeep.set_paused(self._keys, paused=paused, telling=self._telling())
        return changed

    def is_paused(self) -> Steps[bool]:
        """Whether the queue is paused."""
        paused: bool = yield pause.is_paused(self._keys)
        return paused

    def remove(self, job_id: str) -> Steps[bool]:
        """Take a job out that waits or is delayed."""
        return self._where_it_waits(
            job_id,
            lambda member: _only(
                upkeep.discard_delayed(self._keys, [(member, job_id)], dry_run=False)
            ),
            lambda found: _only(
                upkeep.discard_waiting(self._keys, [(found.entry_id, job_id)], dry_run=False)
            ),
        )

    def update_data(self, job_id: str, payload: bytes) -> Steps[bool]:
        """Give a job that waits or is delayed other data."""

        def changed(name: str, envelope: Envelope) -> bytes:
            old = envelope
            data = encode(Envelope(old.id, payload, old.created_at_ms, old.attempt, old.retry))
            try:
                check_size(self._config, name, data)
            except ValueError as error:
                raise Objection(error) from None
            return data

        def in_set(member: bytes) -> Call[bool]:
            job = delayed.job_of(member)
            if job is None:
                return Call((), lambda _: False)
            name, envelope = job
            data = changed(name, envelope)
            return upkeep.rewrite_delayed(self._keys, job_id, member, name=name, envelope=data)

        return self._where_it_waits(
            job_id,
            in_set,
            lambda found: upkeep.rewrite_waiting(
                self._keys, found, changed(found.name, found.envelope)
            ),
        )

    def promote(self, job_id: str) -> Steps[bool]:
        """Let a delayed job run now."""
        member = yield from self._member(job_id)
        if member is None:
            return False
        name, data = decode_member(member)
        moved: bool = yield upkeep.promote_one(
            self._keys,
            member,
            name=name,
            data=data,
            job_id=job_id,
            telling=self._telling(),
        )
        return moved

    def reschedule(self, job_id: str, delay_ms: int, run_at_ms: int | None) -> Steps[bool]:
        """Let a delayed job run at another time."""
        check_delay(self._config, delay_ms, run_at_ms, self._clock.now_ms())
        return self._reschedule(job_id, (delay_ms, run_at_ms))

    def _reschedule(self, job_id: str, due: tuple[int, int | None]) -> Steps[bool]:
        member = yield from self._member(job_id)
        if member is None:
            return False
        name, _ = decode_member(member)
        moved: bool = yield upkeep.reschedule(
            self._keys,
            member,
            job=(job_id, name),
            due=due,
            grace_s=UNIQUE_GRACE_SECS,
            telling=self._telling(),
        )
        return moved

    def _member(self, job_id: str) -> Steps[bytes | None]:
        """The member of a delayed job, by its index or, without one, by looking at them all."""
        member: bytes | None = yield delayed.index_of(self._keys, job_id)
        if member is not None and (yield delayed.is_member(self._keys, member)):
            return member
        return (yield from delayed.find(self._keys, job_id))

    def _where_it_waits(
        self,
        job_id: str,
        in_set: Callable[[bytes], Call[bool]],
        in_stream: Callable[[Found], Call[bool]],
    ) -> Steps[bool]:
        """Do something to a job where it waits for its turn; False if it does so nowhere.

        Looks where it is cheap first. A job that is promoted meanwhile, between a look at the
        stream and one at the set, then stands behind the entry that was the newest before.
        """
        member: bytes | None = yield delayed.index_of(self._keys, job_id)
        if member is not None and (yield in_set(member)):
            return True
        newest = yield from newest_entry(self._keys.stream)
        found = yield from find_entry(self._keys, job_id)
        if found is None:
            member = yield from delayed.find(self._keys, job_id)
            if member is not None and (yield in_set(member)):
                return True
            found = yield from find_entry(self._keys, job_id, after=newest or b"0-0")
        if found is None:
            return False
        done: bool = yield in_stream(found)
        return done


def _only(call: Call[list[bool]]) -> Call[bool]:
    """The one answer of a call that takes many."""
    return Call(
        call.requests,
        lambda replies: call.parse(replies)[0],
        repeatable=call.repeatable,
        scripts=call.scripts,
    )
