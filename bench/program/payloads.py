"""The data that jobs carry."""

import uuid
from typing import Any

from bench.program.adapter import Data

_WIDTH = _DEPTH = 10


def payload(size: int = 0) -> Data:
    """A tiny one, or one with a text of so many bytes."""
    return {"data": "x" * size} if size else {"data": {str(uuid.uuid4()): {}}}


def nested() -> Data:
    """Ten chains of ten maps in each other, about 4 KB."""
    return {"data": {str(uuid.uuid4()): _chain(_DEPTH) for _ in range(_WIDTH)}}


def _chain(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(1, depth):
        made = {str(uuid.uuid4()): made}
    return made
