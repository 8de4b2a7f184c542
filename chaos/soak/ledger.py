"""A file of numbers that one process appends to: which jobs were acknowledged, which have ended.

A soak has too many jobs for the histories of chaos. Eight bytes each are kept outside of the
processes, so that the memory of none of them grows with what it has done.
"""

import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_NUMBER = struct.Struct("<Q")
ACKNOWLEDGED, ENDED = "acknowledged", "ended"


class Ledger:
    """The numbers of one kind that one process wrote."""

    def __init__(self, path: Path) -> None:
        """Open it, new or not."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, number: int) -> None:
        """Append a number; it survives the death of this process from here on."""
        os.write(self._file, _NUMBER.pack(number))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Balance:
    """What two kinds of ledgers say together."""

    acknowledged: int
    ended: int
    """Jobs that succeeded or were given up, each once."""
    again: int
    """Ends of jobs that had ended before: at least once is not exactly once."""
    lost: int
    """Acknowledged, and never ended."""


def balance(folder: Path) -> Balance:
    """Read all ledgers of a folder."""
    acknowledged = set(_numbers(folder.glob(f"*.{ACKNOWLEDGED}")))
    ended = Counter(_numbers(folder.glob(f"*.{ENDED}")))
    return Balance(
        len(acknowledged),
        len(ended),
        ended.total() - len(ended),
        len(acknowledged - ended.keys()),
    )


def _numbers(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        data = path.read_bytes()
        whole = len(data) - len(data) % _NUMBER.size
        yield from (number for (number,) in _NUMBER.iter_unpack(data[:whole]))
