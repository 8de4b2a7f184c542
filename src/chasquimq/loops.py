"""Runs a program of ours on an event loop: uvloop, where it is installed and wanted."""

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chasquimq.errors import ConfigError

T = TypeVar("T")


def run_on_loop(coroutine: Coroutine[Any, Any, T], *, use_uvloop: bool | None = None) -> T:
    """Run it on uvloop, if that is wanted or, for None, if it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    is_there = importlib.util.find_spec("uvloop") is not None
    if use_uvloop and not is_there:
        coroutine.close()
        msg = "uvloop is wanted and not installed: run  pip install uvloop"
        raise ConfigError(msg)
    if is_there and use_uvloop is not False:
        import uvloop  # noqa: PLC0415 -- it may not be installed

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)
