"""What a handler raised, turned into how its run ended: text, traceback, whether a retry may help.

When something breaks, the same line fails for one job after the other. What a traceback says of its
frames is therefore made once and kept: 15 us a failure, where all of it anew takes 95.
"""

import os
import traceback
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from chasquimq.engine.disposition import Failed
from chasquimq.errors import DlqReason, HandlerError, TaskError, UnrecoverableError

TRACEBACK_CHARS = 8_192
"""How much of a traceback a dead letter keeps: its end, where the error is."""
MESSAGE_CHARS = 4_096
"""How much of an error's text events and dead letters keep: its beginning."""

_PACKAGE = str(Path(__file__).parents[1]) + os.sep

_Place: TypeAlias = tuple[str, str, int, int]
# Where errors came from, and how that is told.
_told: dict[tuple[_Place, ...], str] = {}
_MOST_TOLD = 256
# Deeper ones are rare, and told anew.
_MOST_FRAMES = 30
# What these say depends on more than the frames and the text: on names that are alike, on parts.
_UNLIKE = (NameError, AttributeError, ImportError, SyntaxError, BaseExceptionGroup)


def failed(error: BaseException, *, is_panic: bool = False) -> Failed:
    """The outcome of a run whose handler raised this."""
    source = error.source_err() if isinstance(error, HandlerError) else error
    message = _text(source)
    kind = type(source).__name__
    frames = _from_the_handler(error)
    trace = ""
    # What we refuse ourselves is all in the message: frames of ours would only hide it.
    if frames is not None or not isinstance(error, TaskError):
        trace = _whole_trace(error, frames or error.__traceback__)
    return Failed(
        message=message or kind,
        error=f"{kind}: {message}"[:MESSAGE_CHARS] if message else kind,
        traceback=trace,
        dlq_reason=reason_of(error),
        is_panic=is_panic,
    )


def reason_of(error: BaseException) -> DlqReason | None:
    """Why the job is dead-lettered at once; None if a retry may help."""
    if isinstance(error, HandlerError):
        return (
            DlqReason.UNRECOVERABLE if error.is_unrecoverable() else reason_of(error.source_err())
        )
    return error.dlq_reason if isinstance(error, UnrecoverableError) else None


def _from_the_handler(error: BaseException) -> TracebackType | None:
    """The traceback without what leads to the handler: those frames are the same for every job.

    None if the handler's code was never reached.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace


def _whole_trace(error: BaseException, frames: TracebackType | None) -> str:
    try:
        trace = _utf8(_formatted(error, frames))
    except Exception:  # noqa: BLE001 -- errors and code of the user may be as odd as can be
        return ""
    if len(trace) > TRACEBACK_CHARS:
        trace = "... (earlier frames left out)\n" + trace[-TRACEBACK_CHARS:]
    return trace


def _formatted(error: BaseException, frames: TracebackType | None) -> str:
    """What `traceback.format_exception` gives."""
    context = None if error.__suppress_context__ else error.__context__
    is_alone = error.__cause__ is None and context is None and not isinstance(error, _UNLIKE)
    places = _places(frames) if is_alone else None
    if not places:
        return "".join(traceback.format_exception(type(error), error, frames))
    stack = _told.get(places)
    if stack is None:
        if len(_told) >= _MOST_TOLD:
            _told.clear()
        stack = _told[places] = "".join(traceback.format_tb(frames))
    return f"Traceback (most recent call last):\n{stack}{_last_line(error)}"


def _last_line(error: BaseException) -> str:
    """What `traceback.format_exception_only` gives, in a tenth of its time."""
    kind, text = type(error), None
    try:
        if type(kind.__module__) is str and not hasattr(error, "__notes__"):
            text = str(error)
    except Exception:  # noqa: BLE001, S110 -- the user's code may raise anything; told below
        pass
    if text is None:
        return "".join(traceback.format_exception_only(error))
    name = kind.__qualname__
    if kind.__module__ not in ("__main__", "builtins"):
        name = f"{kind.__module__}.{name}"
    return f"{name}: {text}\n" if text else f"{name}\n"


def _places(frames: TracebackType | None) -> tuple[_Place, ...] | None:
    """Where each frame stands; None if there are too many."""
    places: list[_Place] = []
    while frames is not None:
        if len(places) == _MOST_FRAMES:
            return None
        code = frames.tb_frame.f_code
        # All that a line of the traceback is made of; nothing of the user's is kept alive.
        places.append((code.co_filename, code.co_qualname, frames.tb_lineno, frames.tb_lasti))
        frames = frames.tb_next
    return tuple(places)


def _text(error: BaseException) -> str:
    try:
        return _utf8(str(error)[:MESSAGE_CHARS])
    except Exception:  # noqa: BLE001 -- the user's `__str__` may raise anything
        return ""


def _utf8(text: str) -> str:
    """The same text; what UTF-8 cannot carry is written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
