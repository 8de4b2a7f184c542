"""Starts Spark for a command, quietly, or takes the session that already runs."""

import contextlib
import logging
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from typing import Any

import click

from chasquimq.cli.options import Function
from chasquimq.cli.problems import Refusal
from chasquimq.cli.render import remark

# What is kept of Java's words, and how long we wait for the last of them when it has ended.
_MOST_WORDS = 65_536
_LAST_WORDS_S = 1.0

_QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}

_TABLES = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Batches of a queue are small for Spark: its 200 would be mostly empty.
    "spark.sql.shuffle.partitions": "8",
    # Else every column of every plan notes where in our source it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


def pairs(given: tuple[str, ...], option: str, example: str) -> dict[str, str]:
    """The settings that an option with KEY=VALUE was given; `UsageError` if one is none."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            msg = f"{option} is {each!r}: use KEY=VALUE, such as {example}"
            raise click.UsageError(msg)
        found[name] = value
    return found


def _parsed(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    return pairs(given, "--conf", "spark.master=local[4]")


def spark_options(function: Function, *, only: str = "") -> Function:
    """Add the options of Spark, which `started` reads; `only` says when they are of use."""
    a, let = (f"{only}: a", f"{only}: let") if only else ("A", "Let")
    found = (
        click.option("--conf", multiple=True, metavar="KEY=VALUE", callback=_parsed,
                     help=f"{a} setting of Spark, such as spark.master=local[4]. May be repeated."),
        click.option("--verbose", is_flag=True, help=f"{let} Spark say what it does."),
    )  # fmt: skip
    for option in reversed(found):
        function = option(function)
    return function


def spark_settings(conf: dict[str, str], *, is_verbose: bool) -> dict[str, str]:
    """What `--conf` says, and what keeps Spark quiet unless it or `--verbose` says otherwise."""
    return conf if is_verbose else _QUIET | conf


def is_missing(path: str, given: dict[str, Any]) -> bool:
    """Whether a path is not there; False if only Spark, once it has started, can tell."""
    try:
        from chasquimq.pipeline.places import on_this_machine  # noqa: PLC0415 -- may not be there
        from chasquimq.spark.session import sees_files_here  # noqa: PLC0415
    except ImportError:
        return False  # which is told when Spark is started
    here = on_this_machine(path)
    return here is not None and sees_files_here(given["conf"]) and not here.exists()


@contextlib.contextmanager
def started(given: dict[str, Any]) -> Iterator[Any]:
    """A session with the options of the command; one that ran before is used, and runs on."""
    try:
        from chasquimq.spark.session import running  # noqa: PLC0415 -- may not be there
    except ImportError as error:
        msg = f"the pipeline needs Spark ({error}): pip install pyspark pyarrow, and Java 17"
        raise Refusal(msg) from None
    is_verbose = given["verbose"]
    with told_in_a_line(is_verbose=is_verbose):
        if (before := running()) is not None:
            yield before
            return
        config = _TABLES | spark_settings(given["conf"], is_verbose=is_verbose)
        remark("starting Spark, which takes some seconds")
        spark = start("chasqui pipeline", config, is_verbose=is_verbose)
        try:
            yield spark
        finally:
            spark.stop()


def start(
    app_name: str, config: dict[str, str], *, is_verbose: bool, is_heard: bool = False
) -> Any:  # noqa: ANN401 -- a session of Spark, which may not be installed
    """A new session; what is said while it starts is shown with `is_verbose` only.

    With `is_heard` all that is said later is shown, such as what handlers print in local tasks.
    """
    from chasquimq.spark.session import session  # noqa: PLC0415 -- an extra

    if is_verbose:
        return session(app_name, config)
    # Else it tells whoever logs to stderr of each connection to Java.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with _starting_quietly(is_heard=is_heard):
        return session(app_name, config)


@contextlib.contextmanager
def told_in_a_line(*, is_verbose: bool) -> Iterator[None]:
    """Raise what Spark fell over as a `Refusal`; with `--verbose` as it is, with all its traces."""
    from chasquimq.pipeline.problems import SPARKS, in_a_line, unlogged  # noqa: PLC0415 -- an extra

    if is_verbose:
        yield
        return
    try:
        with unlogged():
            yield
    except SPARKS as error:
        msg = f"Spark could not do it: {in_a_line(error)} (--verbose shows all that it says)"
        raise Refusal(msg) from error


@contextlib.contextmanager
def _starting_quietly(*, is_heard: bool) -> Iterator[None]:
    """Show nothing of what is said on stderr, and if Java does not start its reason.

    It says much before it can be told not to, and why it ended nowhere else.
    """
    from chasquimq.pipeline.problems import SPARKS, has_no_java, last_raised  # noqa: PLC0415

    said = bytearray()
    listener: threading.Thread | None = None
    try:
        with _stderr_into(said, is_heard=is_heard) as listener:
            yield
    except SPARKS as error:
        if listener is None or not has_no_java(error):
            raise
        listener.join(_LAST_WORDS_S)
        if (reason := last_raised(said.decode(errors="replace"))) is None:
            raise
        msg = f"Spark could not start: {reason} (--verbose shows all that it says)"
        raise Refusal(msg) from error


@contextlib.contextmanager
def _stderr_into(said: bytearray, *, is_heard: bool) -> Iterator[threading.Thread]:
    """Keep the end of what we and processes that are started meanwhile say on stderr.

    Those go on saying it into the same pipe when this is over: somebody has to listen, until the
    last of them is gone, and with `is_heard` to hand it on.
    """
    end = secrets.token_bytes()

    def listen() -> None:
        is_over = False
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while words := pipe.read(_MOST_WORDS):
                if is_over:
                    _show(words)
                    continue
                said.extend(words)
                if (at := said.find(end)) >= 0:
                    is_over = True
                    _show(said[at + len(end) :])
                    del said[at:]
                del said[:-_MOST_WORDS]

    sys.stderr.flush()
    kept, (reading, writing) = os.dup(2), os.pipe()
    listener = threading.Thread(target=listen, name="spark-stderr", daemon=True)
    listener.start()
    os.dup2(writing, 2)
    try:
        yield listener
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        if is_heard:
            os.write(writing, end)
        os.close(writing)


def _show(words: bytes | bytearray) -> None:
    left = memoryview(words)
    with contextlib.suppress(OSError):  # nobody reads it any more
        while left:
            left = left[os.write(2, left) :]
