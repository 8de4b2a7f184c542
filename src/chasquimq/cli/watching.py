"""Notices that source files below a folder have changed, by looking at them again and again.

Looking costs some milliseconds for a thousand files and works on every file system, which the
kernel's own notifications do not.
"""

import os
from collections.abc import Iterator

SUFFIXES = (".py",)
# Folders that hold no code of the user's. A virtual environment is known by its own file.
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_VENV_MARK = "pyvenv.cfg"


class SourceTree:
    """The source files below a folder, as they were when last looked at."""

    def __init__(self, folder: str) -> None:
        """Remember how they are now."""
        self._folder = folder
        self._seen = dict(_stamps(folder))

    def changed(self) -> list[str]:
        """The files that were changed, added or removed since the last look, relative, sorted."""
        now = dict(_stamps(self._folder))
        before, self._seen = self._seen, now
        paths = {path for path, _ in now.items() ^ before.items()}
        return sorted(os.path.relpath(path, self._folder) for path in paths)


def _stamps(folder: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every source file with its time of change and its size."""
    for path, folders, files in os.walk(folder):
        if _VENV_MARK in files:
            folders.clear()
            continue
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _SKIPPED]
        for name in files:
            if name.endswith(SUFFIXES):
                full = os.path.join(path, name)  # noqa: PTH118 -- thousands of times a second
                try:
                    found = os.stat(full)  # noqa: PTH116 -- the same
                except OSError:
                    continue  # gone between the two looks
                yield full, (found.st_mtime_ns, found.st_size)
