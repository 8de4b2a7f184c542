"""The stream of ticks behind a fleet: each is a stint of every slot, its rows what they did."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from chasquimq.broker import backlog, locks, pause, stream
from chasquimq.broker.url import parse_url
from chasquimq.spark.links import Links
from chasquimq.spark.schemas import STINTS, struct
from chasquimq.spark.slot import Recipe, work
from chasquimq.spark.source import Part
from chasquimq.wire.keys import QueueKeys

# How long a look for work waits for a job; the query can be stopped in between.
_LOOK_MS = 250


class FleetSource(DataSource):
    """Bound to one recipe by `bound`; not a format for users, whose handler no option can hold."""

    recipe: ClassVar[Recipe]

    @classmethod
    def name(cls) -> str:
        """Of this fleet alone: two may run in one session."""
        return f"chasquimq_fleet_{cls.recipe.holder}"

    def schema(self) -> StructType:
        """What slots did."""
        return struct(STINTS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """The ticks."""
        return FleetReader(self.recipe)


def bound(recipe: Recipe) -> type[FleetSource]:
    """The source of one fleet; made here, so that it travels as a value."""

    class Bound(FleetSource):
        pass

    Bound.recipe = recipe
    return Bound


class FleetReader(DataSourceStreamReader):
    """A tick whenever there is work, and one at the start for what an earlier driver left.

    The offset is a mere number: what was done is known to the server alone. A tick that is carried
    out again, after a crash, takes what there is then.
    """

    def __init__(self, recipe: Recipe) -> None:
        """Keep values only: this is copied to the tasks."""
        self._recipe = recipe
        self._keys = QueueKeys(recipe.queue)
        self._links = Links(parse_url(recipe.redis_url))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Nothing was done yet."""
        return {"tick": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The next tick if there is something to do; waits for that a little."""
        tick = int(start["tick"])
        return {"tick": tick + self._is_due(is_first=tick == 0)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """A tick has its own limits."""
        return ReadAllAvailable()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One for each slot."""
        if start == end:
            return []
        return [Part(slot) for slot in range(self._recipe.slots)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """In a task: a stint of one slot."""
        done = work(self._recipe, partition.value)
        counts = (done.completed, done.failed, done.retried, done.dead)
        yield (self._recipe.queue, done.consumer, *counts, done.ended)

    def stop(self) -> None:
        """Close the connections; Spark does not always get to this."""
        self._links.close()

    def _is_due(self, *, is_first: bool) -> bool:
        keys, recipe = self._keys, self._recipe
        if not self._links.run(keys, locks.is_held(*recipe.permit)):
            return False
        if is_first:
            return True
        look = backlog.work(keys, recipe.group, min_idle_ms=recipe.lease_ms)
        found = self._links.run(keys, look)
        if found.is_there:
            return True
        if found.is_paused:
            self._links.run(keys, pause.wait_for_resume(keys, after=b"$", block_ms=_LOOK_MS))
            return False
        after = str(found.newest).encode()
        return self._links.run(keys, stream.wait_for_entry(keys, after=after, block_ms=_LOOK_MS))
