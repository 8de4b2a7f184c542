"""What a user's function is, plain or a coroutine function, and how a plain one is run."""

import contextvars
import functools
import inspect
from collections.abc import Callable
from typing import Any

from chasquimq.engine.threads import Threads


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives a coroutine, as far as that can be told without calling it."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 -- a class may make it a coroutine function
    )


def takes_one(function: Callable[..., object]) -> bool:
    """Whether it can be called with one argument."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True  # some built-ins do not tell
    return True


async def in_thread(threads: Threads, function: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Run a plain function in a thread, in this run's context; await what is awaitable."""
    context = contextvars.copy_context()
    value = await threads.run(functools.partial(context.run, function))
    return await value if inspect.isawaitable(value) else value
