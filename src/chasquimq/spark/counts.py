"""Counts how often each thing came before, in memory that does not grow with how many there are.

The latest are held in memory. When those are many they go to a file, sorted; a filter of fixed size
then tells of most that they are not in it, so that few have to be looked for there. The counts are
exact: the filter only saves looking.
"""

import sqlite3
from collections.abc import Iterable

_MOST_HELD = 100_000
# One bit for each thing that went to the file: a tenth of them in use after six million.
_FILTER_BITS = 1 << 26
_CACHE_KIB = 4_096


class Counts:
    """How often each of some digests was noted; each is bytes, at least eight and random.

    Some 30 MB at most, and 40 bytes a digest of a file in the temporary folder. It has no name
    there: nothing is left of it, however the process ends.
    """

    def __init__(self, most_held: int = _MOST_HELD) -> None:
        """Nothing was noted yet, and there is no file."""
        self._most_held = most_held
        self._held: dict[bytes, int] = {}
        self._filed: sqlite3.Connection | None = None
        self._filter = bytearray()

    def note(self, digest: bytes) -> int:
        """How often it was noted before."""
        held = self._held
        before = held.get(digest)
        if before is None:
            before = 0 if self._filed is None else self._in_file(self._filed, digest)
            if len(held) >= self._most_held:
                self._file(held.items())
                held.clear()
        held[digest] = before + 1
        return before

    def close(self) -> None:
        """Give up the file."""
        if self._filed is not None:
            self._filed.close()
            self._filed = None

    def _in_file(self, filed: sqlite3.Connection, digest: bytes) -> int:
        bit = int.from_bytes(digest[:8], "big") % _FILTER_BITS
        if not self._filter[bit >> 3] & (1 << (bit & 7)):
            return 0
        row = filed.execute("SELECT times FROM noted WHERE digest = ?", (digest,)).fetchone()
        return int(row[0]) if row else 0

    def _file(self, counts: Iterable[tuple[bytes, int]]) -> None:
        if self._filed is None:
            self._filed = _new_file()
            self._filter = bytearray(_FILTER_BITS >> 3)
        ordered = sorted(counts)
        self._filed.executemany("INSERT OR REPLACE INTO noted VALUES (?, ?)", ordered)
        for digest, _ in ordered:
            bit = int.from_bytes(digest[:8], "big") % _FILTER_BITS
            self._filter[bit >> 3] |= 1 << (bit & 7)


def _new_file() -> sqlite3.Connection:
    # The empty name is a file of this connection's own, that the system deletes with it.
    filed = sqlite3.connect("", isolation_level=None)
    for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
        filed.execute(f"PRAGMA {setting}")
    filed.execute(
        "CREATE TABLE noted (digest BLOB PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID"
    )
    return filed
