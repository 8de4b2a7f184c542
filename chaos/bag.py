"""Shapes of one kind, dealt in any order and each once before any comes again."""

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Bag(Generic[T]):
    """What is left to deal; filled and shaken when it is empty.

    Chance alone leaves some of seven shapes out of a run that deals seven times; a bag leaves none.
    """

    def __init__(self, shapes: Sequence[T]) -> None:
        """All of them are to be dealt."""
        self._shapes = shapes
        self._left: list[T] = []
        self._lock = threading.Lock()

    @contextmanager
    def deal(self, chance: random.Random) -> Iterator[T]:
        """One that is left; it goes back if what is done with it raises."""
        with self._lock:
            if not self._left:
                self._left = chance.sample(self._shapes, len(self._shapes))
            shape = self._left.pop()
        try:
            yield shape
        except BaseException:
            with self._lock:
                self._left.append(shape)
            raise
