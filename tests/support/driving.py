"""Carry out steps, each call chosen in the light of the answer before, over any connection."""

from collections.abc import Callable
from typing import Any, TypeVar

from chasquimq.broker.call import Call, Steps

T = TypeVar("T")


def drive(run: Callable[[Call[Any]], Any], steps: Steps[T]) -> T:
    """What `steps` say in the end; `run` carries out one call and returns its answer."""
    try:
        call = next(steps)
        while True:
            call = steps.send(run(call))
    except StopIteration as done:
        result: T = done.value
        return result
