"""Starts Spark for a command, quietly, or takes the session that already runs."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from chasquimq.cli.options import Function
from chasquimq.cli.problems import Refusal

_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Batches of a queue are small for Spark: its 200 would be mostly empty.
    "spark.sql.shuffle.partitions": "8",
    # Else every column of every plan notes where in our source it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


def spark_options(function: Function) -> Function:
    """Add the options of Spark; `started` reads them."""
    found = (
        click.option("--conf", multiple=True, metavar="KEY=VALUE",
                     help="A setting of Spark, such as spark.master=local[4]. May be repeated."),
        click.option("--verbose", is_flag=True, help="Let Spark say what it does."),
    )  # fmt: skip
    for option in reversed(found):
        function = option(function)
    return function


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


@contextlib.contextmanager
def started(given: dict[str, Any]) -> Iterator[Any]:
    """A session with the options of the command; one that ran before is used, and runs on."""
    settings = _SETTINGS | pairs(given["conf"], "--conf", "spark.master=local[4]")
    try:
        from chasquimq.spark.session import running, session  # noqa: PLC0415 -- may not be there
    except ImportError as error:
        msg = f"the pipeline needs Spark ({error}): pip install 'chasquimq[spark]', and Java 17"
        raise Refusal(msg) from None
    if (before := running()) is not None:
        yield before
        return
    with contextlib.nullcontext() if given["verbose"] else _muted():
        spark = session("chasqui pipeline", settings)
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Let what is started now write to nowhere: Java says much before it can be told not to."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
