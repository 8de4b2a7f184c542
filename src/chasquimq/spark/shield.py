"""Keeps a Java that we start from the SIGTERM that ends us: it is still needed to end in order."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


class _Starting(threading.local):
    """Whether what this thread forks is to be shielded."""

    is_on = False


_starting = _Starting()


@contextmanager
def shielded() -> Iterator[None]:
    """Java that this thread starts meanwhile, and what it starts, takes no notice of SIGTERM.

    As by PySpark's own doing it takes none of SIGINT. Supervisors and shells send either to all
    processes of a program at once; Java, which heeds it first, would be gone while we still talk to
    it. It ends as before when its stdin is closed, so with us, however we end.
    """
    _look_at_forks()
    _starting.is_on = True
    try:
        yield
    finally:
        _starting.is_on = False


@cache
def _look_at_forks() -> None:
    # What is ignored stays so in the program that the child becomes. Not in this process, not even
    # for a moment: a signal to us would be lost. Of programs that are started only those with a
    # `preexec_fn` call this, and PySpark gives Java one.
    os.register_at_fork(after_in_child=_ignore_if_shielded)


def _ignore_if_shielded() -> None:
    if _starting.is_on:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
