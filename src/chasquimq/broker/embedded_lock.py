"""Locks on files that the kernel drops when their holder dies, however it dies.

They are `flock` locks, which belong to the opened file and not to the process. That cuts both ways:
a lock can be handed to another process by passing its descriptor on, and a forked child would keep
its parent's locks without knowing. The second must not happen, so a forked child closes them all.
"""

import fcntl
import os
import threading
from pathlib import Path
from typing import Self

# Held while a lock is opened or closed, and across every fork: no child can be born between the
# opening of a descriptor and its entry in `_open`, from where it would be kept open for ever.
# Reentrant, for a signal handler that forks.
_guard = threading.RLock()
_open: "set[FileLock]" = set()


class FileLock:
    """One opened lock file, locked or not. Closing it gives the lock up."""

    def __init__(self, path: str) -> None:
        """Open the file at `path`, making it if there is none. Raises `OSError`."""
        self.path = path
        with _guard:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _open.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FileLock {self.path} {'open' if self in _open else 'closed'}>"

    def fileno(self) -> int:
        """The descriptor, to be passed on to a process that shall hold the lock too."""
        return self._descriptor

    def try_shared(self) -> bool:
        """Lock it together with others who share it; False if somebody has it alone."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Lock it alone; False if anybody else has it."""
        return self._try(fcntl.LOCK_EX)

    def is_current(self) -> bool:
        """Whether the file is still the one that its path names, and not one that was deleted."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), Path(self.path).stat())
        except OSError:
            return False

    def close(self) -> None:
        """Give up this hold. A process the descriptor was passed on to keeps its own."""
        with _guard:
            self._close()

    def _close(self) -> None:
        if self in _open:
            _open.discard(self)
            os.close(self._descriptor)

    def _try(self, operation: int) -> bool:
        try:
            fcntl.flock(self._descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _close_in_child() -> None:
    # Closed, never unlocked: an unlock would reach the parent's lock, which is the same one.
    for lock in list(_open):
        lock._close()  # noqa: SLF001 -- `_guard` is already ours
    _guard.release()


os.register_at_fork(
    before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_close_in_child
)
