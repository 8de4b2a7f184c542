"""Gathers the many folders that batches left in bronze into one file for each day and queue.

Which folders count is told by a table, `compactions`, of which the newest number is heeded. No step
changes what a reader sees, but for one: that table gets its next number, in one file that is there
or is not. So a kill leaves the old state or the new one, and at worst a folder that nobody reads,
which the next compaction deletes. A reader that has begun goes on with folders that are replaced
meanwhile: they are deleted by a later compaction, when they have been replaced for long enough.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from chasquimq.pipeline import quality
from chasquimq.pipeline.files import delete_folder_of
from chasquimq.pipeline.lake import COMPACTED, Folder, Lake, one_of
from chasquimq.pipeline.tables import BATCHES, BRONZE, COMPACTIONS, SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction came to, in folders of bronze."""

    gathered: int = 0
    """How many were put together."""
    into: int = 0
    """How many were made of them, each of one file."""
    deleted: int = 0
    """How many nobody reads any more, and are gone."""


@dataclass(frozen=True, slots=True)
class State:
    """Which folders of bronze count, beside those of batches that were never gathered."""

    number: int = 0
    live: frozenset[Folder] = frozenset()
    replaced_ms: Mapping[Folder, int] = field(default_factory=dict)
    """Those that do not count any more, and since when."""

    def counts(self, folder: Folder) -> bool:
        """Whether its rows are read."""
        return folder in self.live if is_gathered(folder) else folder not in self.replaced_ms

    def next(
        self, groups: Sequence[Sequence[Folder]], now_ms: int, there: Collection[Folder]
    ) -> "State":
        """After these groups are gathered; what was replaced and is not `there` is forgotten.

        Not sooner: a folder that is there and in no list would count.
        """
        name = f"{COMPACTED}{self.number + 1:08d}"
        gathered = {folder for group in groups for folder in group}
        made = {(group[0][0], group[0][1], name) for group in groups}
        kept = {folder: at for folder, at in self.replaced_ms.items() if folder in there}
        return State(
            self.number + 1,
            self.live - gathered | made,
            kept | dict.fromkeys(sorted(gathered), now_ms),
        )


def is_gathered(folder: Folder) -> bool:
    """Whether a compaction made it."""
    return folder[2].startswith(COMPACTED)


def groups_of(folders: Sequence[Folder], whole: frozenset[str], state: State) -> list[list[Folder]]:
    """What is to be gathered: folders of one day and queue, two or more. Pure.

    Of batches only those that are `whole`: another may be written again.
    """
    found: dict[tuple[str, str], list[Folder]] = defaultdict(list)
    for folder in sorted(folders):
        if state.counts(folder) and (is_gathered(folder) or folder[2] in whole):
            found[folder[:2]].append(folder)
    return [group for group in found.values() if len(group) > 1]


def compact(
    lake: Lake, *, now_ms: int, keep_ms: int, on_step: Callable[[str], None] = lambda _: None
) -> Compacted:
    """Gather what can be, and delete what was replaced at least `keep_ms` ago.

    Done again, it does nothing. One at a time; a run of the pipeline may go on beside it, since the
    newest batch is left alone, the only one that may come again.
    """
    on_step("looking which folders of bronze there are")
    state, until_ms = read_state(lake), now_ms - keep_ms
    folders = _folders(lake)
    doomed = [
        folder
        for folder in folders
        if not state.counts(folder) and state.replaced_ms.get(folder, until_ms) <= until_ms
    ]
    if doomed:
        on_step(f"deleting {len(doomed)} that were replaced")
    for folder in doomed:
        delete_folder_of(lake.spark, folders[folder].file_url)

    groups = groups_of(list(folders), _whole_batches(lake), state)
    after = state.next(groups, now_ms, folders)
    if not groups and after.replaced_ms == state.replaced_ms:
        return Compacted(deleted=len(doomed))
    for number, group in enumerate(groups, start=1):
        day, queue, _ = group[0]
        on_step(f"gathering {len(group)} of {day}, queue {queue} ({number} of {len(groups)})")
        wanted = sum(folders[folder].events for folder in group)
        _gather(lake, group, f"{COMPACTED}{after.number:08d}", wanted)
    # From here on the new folders count, and the old ones do not.
    lake.replace(COMPACTIONS, _rows(lake, after, now_ms))
    _forget_numbers(lake, after.number, until_ms)
    return Compacted(sum(map(len, groups)), len(groups), len(doomed))


def read_state(lake: Lake) -> State:
    """What the newest compaction says."""
    rows = lake.newest_compaction()
    told = [((row["day"], row["queue"], row["batch"]), row) for row in rows]
    return State(
        max((int(row["compaction"]) for row in rows), default=0),
        frozenset(folder for folder, row in told if row["state"] == "live"),
        {folder: row["replaced_ms"] for folder, row in told if row["state"] == "replaced"},
    )


@dataclass(frozen=True, slots=True)
class _Found:
    events: int
    file_url: str


def _folders(lake: Lake) -> dict[Folder, _Found]:
    rows = lake.read_all(BRONZE).withColumn("file_url", F.input_file_name())
    found = rows.groupBy("day", "queue", "batch").agg(
        F.count(F.lit(1)).alias("events"), F.min("file_url").alias("file_url")
    )
    return {
        (row["day"], row["queue"], row["batch"]): _Found(row["events"], row["file_url"])
        for row in found.collect()
    }


def _whole_batches(lake: Lake) -> frozenset[str]:
    """Batches that will not come again: all that are noted, but for the newest of the query."""
    noted = {row["batch"] for row in lake.read(BATCHES).select("batch").collect()}
    query = lake.query_id()[:8]
    newest = max((batch for batch in noted if query and batch.startswith(query)), default=None)
    return frozenset(noted - {newest})


def _gather(lake: Lake, group: Sequence[Folder], name: str, wanted: int) -> None:
    sources = lake.read_all(BRONZE).where(one_of(group)).withColumn("batch", F.lit(name))
    # Folders first: else Spark would sort by them, and not by time.
    in_order = sources.coalesce(1).sortWithinPartitions(*BRONZE.partitions, "entry_at", "entry_seq")
    lake.replace(BRONZE, in_order)
    # Read anew: a frame knows the files that were there when it was made.
    made = lake.read_all(BRONZE).where(one_of([(group[0][0], group[0][1], name)]))
    quality.check_count(made, expected=wanted)


def _rows(lake: Lake, state: State, now_ms: int) -> DataFrame:
    at = datetime.fromtimestamp(now_ms / 1_000, UTC)
    told = [
        *((folder, "live", None) for folder in sorted(state.live)),
        *((folder, "replaced", datetime.fromtimestamp(ms / 1_000, UTC))
          for folder, ms in state.replaced_ms.items()),
    ]  # fmt: skip
    return lake.spark.createDataFrame(
        [
            (at, *folder, kind, since, SCHEMA_VERSION, f"{state.number:08d}")
            for folder, kind, since in told
        ],
        COMPACTIONS.schema,
    )


def _forget_numbers(lake: Lake, newest: int, until_ms: int) -> None:
    """Delete numbers that no reader can be at any more."""
    rows = lake.read_all(COMPACTIONS).withColumn("file_url", F.input_file_name())
    told = rows.groupBy("compaction").agg(
        F.min("file_url").alias("file_url"), F.max(F.unix_millis("at")).alias("at_ms")
    )
    numbers = sorted(told.collect(), key=lambda row: str(row["compaction"]))
    for row, successor in pairwise(numbers):
        # A reader may be at one until its successor has been there for long enough.
        if int(row["compaction"]) < newest and successor["at_ms"] <= until_ms:
            delete_folder_of(lake.spark, row["file_url"])
