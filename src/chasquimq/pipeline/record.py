"""What the server keeps of a backfill, so that it can be continued: its source, its cut, its state.

Rows are told apart by where they stand. So a run that goes on must read the same files, cut into
the same parts: both are noted when it begins.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self

from chasquimq.errors import ConfigError
from chasquimq.pipeline.sources import FileSeen

RECORD_TTL_S = 30 * 24 * 3_600
"""How long it is kept after it last changed; longer than the sink remembers what it added."""
# A run id of the user's has none of it, or two runs could be one to the sink.
_ANEW = " anew "
# Beyond these only the digest tells a change, not which file it was.
_MOST_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Record:
    """One generation of a run: the first, or one that was started anew."""

    generation: int
    digest: str
    """Of all files."""
    files: tuple[FileSeen, ...]
    """The first of them."""
    cut: Mapping[str, str | None]
    """The settings of Spark that decide into which parts files are cut."""
    parts: int
    """How many parts rows are spread over that are from no file."""
    rows: int
    """How many there are; all of them were looked at."""
    added: int = 0
    """How many were added when somebody last looked."""
    is_done: bool = False
    reading: str = ""
    """How its rows are read and what becomes of their columns, as a digest."""

    def run_id(self, name: str) -> str:
        """Under which the sink remembers what it added."""
        return name if self.generation == 1 else f"{name}{_ANEW}{self.generation}"

    @property
    def step(self) -> int:
        """Which of two records of a run is the later: of a later generation, or done."""
        return 2 * self.generation + self.is_done

    def as_json(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """As it was kept; fields of a newer version are passed over."""
        kept = json.loads(text)
        files = tuple(FileSeen(**each) for each in kept.pop("files"))
        known = {name: kept[name] for name in cls.__slots__ if name in kept}
        return cls(files=files, **known)

    def change(self, now: Sequence[FileSeen], reading: str) -> str | None:
        """How the source differs from what it was, None if it does not."""
        if reading != self.reading:
            return "its format, options, columns or names are given differently"
        if digest_of(now) == self.digest:
            return None
        before, after = {each.path: each for each in self.files}, {each.path: each for each in now}
        for path, file in before.items():
            if path not in after:
                return f"{path} is gone"
            if file != after[path]:
                return (
                    f"{path} had {file.size} bytes and has {after[path].size}, or was written anew"
                )
        new = sorted(after.keys() - before.keys())
        if new and len(self.files) < _MOST_FILES:
            return f"{new[0]} is new"
        return "one of its many files is not what it was"


def check_run_id(run_id: str) -> None:
    """Refuse an id that could be that of another run's later generation."""
    if _ANEW in run_id:
        msg = f"run_id is {run_id!r}: leave out {_ANEW.strip()!r} between blanks, which is ours"
        raise ConfigError(msg)


def listed(files: Sequence[FileSeen]) -> tuple[FileSeen, ...]:
    """So many as are kept."""
    return tuple(files[:_MOST_FILES])


def digest_of(files: Sequence[FileSeen]) -> str:
    """The same for the same files, whatever their number."""
    text = json.dumps([[each.path, each.size, each.modified_ms] for each in files])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
