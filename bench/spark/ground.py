"""What every comparison stands on: a session, a server, a folder, and the size of the data."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from bench.raw import RawClient
from bench.rounds import Rival
from chasquimq.wire.keys import QueueKeys

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
}
"""Two tasks at a time: the targets are about two. All else is as users have it."""

_folders = itertools.count()


@dataclass(frozen=True, slots=True)
class Ground:
    """One size of the data on one server."""

    spark: SparkSession
    url: str
    client: RawClient = field(repr=False)
    folder: Path
    rows: int
    queue: str = "bench"

    @property
    def keys(self) -> QueueKeys:
        """The keys of the queue that all is about."""
        return QueueKeys(self.queue)

    def forget(self) -> None:
        """Drop all there is of the queue, before this returns."""
        cursor = b"0"
        while True:
            cursor, found = self.client.run("SCAN", cursor, "MATCH", self.keys.tag + b":*")
            if found:
                self.client.run("DEL", *found)
            if cursor == b"0":
                return

    def at(self, rows: int) -> "Ground":
        """The same with another size."""
        return replace(self, rows=rows)

    def new_folder(self) -> str:
        """A folder that is not there yet."""
        return str(self.folder / f"{next(_folders)}")


@dataclass(frozen=True, slots=True)
class Target:
    """At least so much of the baseline's rate."""

    rival: str
    least: float


@dataclass(frozen=True, slots=True)
class Match:
    """Rivals that do the same; the first is what the others are compared with."""

    rivals: Sequence[Rival]
    targets: Sequence[Target]
