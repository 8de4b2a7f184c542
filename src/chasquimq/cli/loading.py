"""Finds the handler or the app that `module:name` means, or says in one line why there is none."""

import difflib
import importlib
import inspect
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from chasquimq.app import Chasqui
from chasquimq.cli.problems import USAGE
from chasquimq.handlers import takes_one
from chasquimq.handling import Handler
from chasquimq.task import Task
from chasquimq.worker import Worker

_MOST_SUGGESTIONS = 5


class LoadError(click.ClickException):
    """The target is not there, or is no handler; `details` are lines of their own."""

    exit_code = USAGE

    def __init__(self, message: str, details: str = "") -> None:
        """`details` is what Python says of the user's own code: a line of it, or a traceback."""
        super().__init__(message)
        self.details = details


@dataclass(frozen=True, slots=True)
class Loaded:
    """What jobs are given to: an app, or a function of one `Job`."""

    target: str
    app: Chasqui | None
    handler: Handler | None

    def __str__(self) -> str:
        """What the banner shows."""
        if self.app is None:
            return self.target
        tasks = ", ".join(sorted(self.app.tasks)) or "no tasks"
        return f"{self.target} ({tasks})"


def load(target: str, app_dir: str) -> Loaded:
    """Import the module, `app_dir` first on the path, and look at what it has under that name."""
    module_name, colon, attribute = target.partition(":")
    if not module_name or not colon or not attribute:
        msg = (
            f"{target!r} names no handler: write MODULE:NAME, as in tasks:app for the app in "
            "tasks.py"
        )
        raise LoadError(msg)
    if "/" in module_name or module_name.startswith("."):
        msg = f"{module_name!r} is the path of a file: {_as_import(module_name)}"
        raise LoadError(msg)
    folder = str(Path(app_dir).resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: object = _imported(module_name, folder)
    for part in attribute.split("."):
        found = _attribute(found, part, target)
    return _checked(target, found)


def _imported(name: str, folder: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _broken(name, error) from error
        msg = (
            f"there is no module {error.name!r} in {folder} or among the installed ones: "
            f"{_near_file(name, folder)}"
        )
        raise LoadError(msg) from None
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        text = "".join(traceback.format_exception_only(error))
        msg = f"{name!r} cannot be imported: {error.msg} ({where})"
        raise LoadError(msg, text) from None
    except Exception as error:
        raise _broken(name, error) from error


def _near_file(name: str, folder: str) -> str:
    """What to do about a module that is not there."""
    if name.endswith(".py"):
        return _as_import(name)
    there = sorted({path.stem for path in Path(folder).glob("*.py")})
    close = difflib.get_close_matches(name.partition(".")[0], there, _MOST_SUGGESTIONS)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "correct the name, or say where it is with --app-dir"


def _as_import(path: str) -> str:
    """How to name the module in a file."""
    file = Path(path.removesuffix(".py"))
    if file.is_absolute() or ".." in file.parts:
        return f"write {file.name}:NAME, and --app-dir {file.parent}"
    stem = ".".join(file.parts).strip(".")
    return f"write {stem}:NAME, as in an import, not the path of the file"


def _broken(name: str, error: BaseException) -> LoadError:
    """The user's module raised while it was imported: that part of the traceback is theirs."""
    frames = traceback.extract_tb(error.__traceback__)
    here = {__file__, importlib.__file__}
    own = [frame for frame in frames if frame.filename not in here and "<frozen" not in frame[0]]
    text = "".join([
        "Traceback (most recent call last):\n",
        *traceback.format_list(own),
        *traceback.format_exception_only(error),
    ])  # fmt: skip
    return LoadError(f"{name!r} raised {type(error).__name__} while it was imported: mend it", text)


def _attribute(holder: object, name: str, target: str) -> object:
    try:
        return getattr(holder, name)
    except AttributeError:
        where = getattr(holder, "__name__", type(holder).__name__)
        msg = f"{where} has nothing called {name!r} ({target}): {_candidates(holder, name)}"
        raise LoadError(msg) from None


def _candidates(holder: object, name: str) -> str:
    own = {key: value for key, value in vars(holder).items() if not key.startswith("_")}
    apps = [key for key, value in own.items() if isinstance(value, Chasqui)]
    if apps:
        return f"its app is {' or '.join(apps)}"
    near = difflib.get_close_matches(name, own, 1)
    handlers = [key for key, value in own.items() if _could_be(value, holder)]
    listed = [*near, *(each for each in handlers if each not in near)][:_MOST_SUGGESTIONS]
    return f"did you mean {' or '.join(listed)}?" if listed else "define it, or name another"


def _could_be(value: object, holder: object) -> bool:
    is_own = getattr(value, "__module__", None) == getattr(holder, "__name__", "")
    return is_own and inspect.isfunction(value) and takes_one(value)


def _checked(target: str, found: Any) -> Loaded:  # noqa: ANN401 -- whatever the user's module has
    match found:
        case Chasqui():
            if not found.tasks and not found.has_fallback:
                msg = f"the app {target} has no tasks: decorate functions with @app.task, and "
                raise LoadError(msg + "import their modules where the app is")
            return Loaded(target, found, None)
        case Task():
            msg = f"{target} is one task: name the app it belongs to"
        case Worker():
            msg = f"{target} is a Worker, which the command makes itself: name its handler or app"
        case type():
            msg = f"{target} is a class: name a function of one Job, or an app (Chasqui)"
        case _ if not callable(found):
            kind = type(found).__name__
            msg = f"{target} is of type {kind}: name a function of one Job, or an app (Chasqui)"
        case _ if not takes_one(found):
            shape = inspect.signature(found)
            msg = (
                f"{target}{shape} cannot be a handler, which takes one argument, the Job: change "
                "it, or make it a task of an app (Chasqui)"
            )
        case _:
            return Loaded(target, None, found)
    raise LoadError(msg)
