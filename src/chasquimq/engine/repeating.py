"""What a producer does with recurring jobs, as steps: upsert, list, remove, pause, run now."""

from dataclasses import replace

from chasquimq.broker import repeats, stream, upkeep
from chasquimq.broker.call import Objection, Steps
from chasquimq.broker.repeats import StoredSpec
from chasquimq.broker.ring import Ring
from chasquimq.broker.stream import Added, Capacity, Telling
from chasquimq.clock import SYSTEM_CLOCK, Clock
from chasquimq.config import ProducerConfig
from chasquimq.engine import cadence
from chasquimq.engine.limits import check_id, check_name, check_size
from chasquimq.errors import ServerReplyError
from chasquimq.wire.envelope import Envelope, encode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.repeat import RepeatableMeta, RepeatableSpec, by_hand_id


class Repeating:
    """The recurring jobs of one queue."""

    def __init__(
        self, keys: QueueKeys, config: ProducerConfig, clock: Clock | None, ring: Ring
    ) -> None:
        """`ring` is the producer's: a job that is run by hand is an add like any other.

        The server's clock says which window is next, unless there is a `clock` to go by.
        """
        self._keys = keys
        self._config = config
        self._clock = clock
        self._ring = ring

    def upsert(self, spec: RepeatableSpec, job_id: str | None) -> Steps[int]:
        """Store a spec and return when it fires first; `ValueError` if it never would.

        By the server's clock, as schedulers count: by one that is behind, the window that has just
        fired would be stored again. A spec of the same key is replaced, and its next window is
        counted anew; its count of fires, which a limit is measured against, goes on. What no add
        takes no spec may fire: names, ids and payloads beyond their limits are refused.
        """
        cadence.check_pattern(spec.pattern)
        check_name(spec.job_name)
        job = self._by_hand(spec, job_id or spec.key, SYSTEM_CLOCK.now_ms())
        check_id(job.id)
        check_size(self._config, spec.job_name, encode(job))
        return self._upsert(spec, job_id)

    def _upsert(self, spec: RepeatableSpec, job_id: str | None) -> Steps[int]:
        now_ms = yield from self._now_ms()
        try:
            next_ms = cadence.first_fire(spec, now_ms)
        except ValueError as error:
            raise Objection(error) from None
        spec = replace(spec, pattern=cadence.as_stored(spec.pattern))
        yield repeats.upsert(self._keys, spec, next_ms=next_ms, job_id=job_id)
        return next_ms

    def _now_ms(self) -> Steps[int]:
        if self._clock is not None:
            return self._clock.now_ms()
        now_ms: int = yield upkeep.server_time_ms()
        return now_ms

    def listed(self, limit: int) -> Steps[list[RepeatableMeta]]:
        """Specs by their next fire, soonest first; those that cannot be read are left out."""
        found: list[StoredSpec] = yield from repeats.listed(self._keys, limit)
        return [
            stored.spec.meta(
                stored.due_ms, paused=stored.is_paused, fired=stored.fired, job_id=stored.job_id
            )
            for stored in found
            if stored.spec is not None
        ]

    def find(self, spec_key: str) -> Steps[StoredSpec | None]:
        """One spec with all that stands beside it."""
        return (yield from repeats.find(self._keys, spec_key))

    def remove(self, spec_key: str) -> Steps[bool]:
        """Forget a spec; jobs that it has fired stay."""
        removed: bool = yield repeats.remove(self._keys, spec_key)
        return removed

    def set_paused(self, spec_key: str, *, paused: bool) -> Steps[bool]:
        """Let windows pass without firing, or fire again; False if there is no such spec."""
        found = yield from repeats.find(self._keys, spec_key)
        if found is None:
            return False
        yield repeats.set_paused(self._keys, spec_key, paused=paused)
        return True

    def run_now(self, spec_key: str, telling: Telling, capacity: Capacity) -> Steps[str | None]:
        """Add the job of a spec now, besides its windows; its id, or None if there is no such spec.

        It counts neither against the limit nor as one of the windows, and its id is that of none:
        two calls may share a millisecond, with each other and with a window.
        """
        found = yield from repeats.find(self._keys, spec_key)
        if found is not None and found.is_refused:
            raise ServerReplyError(found.problem)  # it may well exist
        if found is None or found.spec is None:
            return None
        spec = found.spec
        job = self._by_hand(spec, found.job_id or spec_key, telling.ts_ms)
        with self._ring.tickets() as [ticket]:
            added: Added = yield stream.add(
                self._keys,
                [job.id, encode(job), spec.job_name],
                ticket=ticket,
                capacity=capacity,
                telling=telling,
                whole=True,
            )
        return job.id if added.count else ""

    def _by_hand(self, spec: RepeatableSpec, name: str, now_ms: int) -> Envelope:
        """A job of a spec that is that of no window; those have an id that is shorter."""
        return Envelope(by_hand_id(name, now_ms), spec.payload, now_ms, 0, spec.retry)
