"""How far a backfill is, told while its tasks add jobs."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from chasquimq.broker import runs
from chasquimq.clock import monotonic_s
from chasquimq.pipeline.record import RECORD_TTL_S, Record
from chasquimq.spark.links import Links
from chasquimq.spark.options import SinkOptions
from chasquimq.wire.keys import QueueKeys

log = logging.getLogger("chasquimq.pipeline")

_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a backfill is, or a replay of dead letters."""

    done: int
    """Rows whose jobs are added, those of earlier attempts too; of a replay, letters."""
    total: int
    per_s: float
    """Since the first look of this attempt."""

    @property
    def eta_s(self) -> float | None:
        """How long it will take at this rate, None if nothing was added yet."""
        return (self.total - self.done) / self.per_s if self.per_s > 0 else None


class Watch:
    """Looks on while the tasks add: says how far they are, and notes it."""

    def __init__(
        self,
        options: SinkOptions,
        keys: QueueKeys,
        record: Record,
        name: str,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        """`name` is the run's own, without its generation."""
        self._options = options
        self._keys = keys
        self._record = record
        self._name = name
        self._on_progress = on_progress
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="chasquimq-backfill", daemon=True)

    def __enter__(self) -> None:
        """Begin to look."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        began: tuple[float, int] | None = None
        with Links(self._options.target) as links:
            while not self._is_over.wait(_LOOK_S):
                try:
                    done = self._note(links)
                except Exception as error:  # noqa: BLE001 -- it must not end the looking
                    # The tasks have patience of their own; how far they are is told later.
                    log.warning("how far run %s is cannot be told now: %s", self._name, error)
                    continue
                now_s = monotonic_s()
                began = began or (now_s, done)
                spent_s = now_s - began[0]
                per_s = (done - began[1]) / spent_s if spent_s else 0.0
                self._tell(Progress(done, self._record.rows, per_s))

    def _tell(self, progress: Progress) -> None:
        if self._on_progress is None:
            return
        try:
            self._on_progress(progress)
        except Exception:
            # How far the run is goes on being noted: who resumes it reads that.
            log.exception("on_progress failed; run %s goes on", self._name)

    def _note(self, links: Links) -> int:
        done = links.run(self._keys, runs.added(self._keys, self._record.run_id(self._name)))
        if done != self._record.added:
            self._record = replace(self._record, added=done)
            text, step = self._record.as_json(), self._record.step
            links.run(self._keys, runs.note(self._keys, self._name, text, RECORD_TTL_S, step=step))
        return done
