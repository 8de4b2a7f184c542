"""Counts how often each thing came before, in memory that does not grow with how many there are.

The latest are held in memory. When those are many they go to a file, sorted, as a table of their
own. A filter of fixed size then tells of most that they are in none, so that few have to be looked
for there. The counts are exact: the filter only saves looking.
"""

import sqlite3

_MOST_HELD = 100_000
# Two bits for each thing that went to the file: one look in 200 is in vain after 2.5 million.
_FILTER_BITS = 1 << 26
_CACHE_KIB = 4_096


class Counts:
    """How often each of some digests was noted; each is random bytes, eight or more.

    Takes some 30 MB at most, and room for the rest in the temporary folder. The file has no name
    there: nothing is left of it, however the process ends.
    """

    def __init__(self, most_held: int = _MOST_HELD) -> None:
        """Nothing was noted yet, and there is no file."""
        self._most_held = most_held
        self._held: dict[bytes, int] = {}
        self._file: sqlite3.Connection | None = None
        self._tables = 0
        self._filter = bytearray()

    def note(self, digest: bytes) -> int:
        """How often it was noted before."""
        held = self._held
        before = held.get(digest)
        if before is None:
            before = self._in_file(digest) if self._tables else 0
            if len(held) >= self._most_held:
                self._put_away()
        held[digest] = before + 1
        return before

    def close(self) -> None:
        """Give up the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _in_file(self, digest: bytes) -> int:
        one, other = _bits(digest)
        seen = self._filter
        if not seen[one >> 3] >> (one & 7) & seen[other >> 3] >> (other & 7) & 1:
            return 0
        assert self._file is not None  # noqa: S101 -- there are tables
        for number in range(self._tables, 0, -1):  # the newest has the latest count
            wanted = f"SELECT times FROM noted_{number} WHERE digest = ?"  # noqa: S608 -- a number
            row = self._file.execute(wanted, (digest,)).fetchone()
            if row is not None:
                return int(row[0])
        return 0

    def _put_away(self) -> None:
        """Move what is held to a new table, in order."""
        if self._file is None:
            self._file = _new_file()
            self._filter = bytearray(_FILTER_BITS >> 3)
        self._tables += 1
        table = f"noted_{self._tables}"
        self._file.execute(
            f"CREATE TABLE {table} (digest BLOB PRIMARY KEY, times INTEGER) WITHOUT ROWID"
        )
        with self._file:
            self._file.executemany(
                f"INSERT INTO {table} VALUES (?, ?)",  # noqa: S608 -- a name of ours
                ((digest, self._held[digest]) for digest in sorted(self._held)),
            )
        seen = self._filter
        for one, other in map(_bits, self._held):
            seen[one >> 3] |= 1 << (one & 7)
            seen[other >> 3] |= 1 << (other & 7)
        self._held.clear()


def _bits(digest: bytes) -> tuple[int, int]:
    number = int.from_bytes(digest[:8], "big")
    return number % _FILTER_BITS, (number >> 32) % _FILTER_BITS


def _new_file() -> sqlite3.Connection:
    # The empty name is a file of this connection's own, that the system deletes with it.
    file = sqlite3.connect("")
    for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
        file.execute(f"PRAGMA {setting}")
    return file
