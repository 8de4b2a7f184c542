"""Whatever stands on a command line, it ends with an exit code and a message of ours.

What runs until it is stopped, starts Spark or starts a server is fuzzed up to that moment.
"""

import contextlib
import importlib
import io
import sys

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chasquimq.broker import embedded_hold
from chasquimq.cli import backfill, events, fleet, logs, pipeline, triage, watch
from chasquimq.cli.main import COMMANDS, command, entry
from chasquimq.cli.problems import NOT_DONE, UNREACHABLE, USAGE, Refusal
from chasquimq.cli.serving import Ending, Shift
from chasquimq.cli.supervisor import Supervisor
from chasquimq.events import QueueEvents
from tests.support.effort import effort

# What names another server is fuzzed as a text of its own, and connects to nobody.
ELSEWHERE = {"--redis-url"}

anything = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
words = st.one_of(
    st.sampled_from((*COMMANDS, "ls", "peek", "show", "--help", "--json", "--limit", "-1", "q",
                     "", "--delay", "99999999999999d", "--redis-url", "redis://h:1:2")),
    anything,
)  # fmt: skip
# Words that some option or argument takes, so that what is behind its own check is reached, too.
likely = st.one_of(
    st.sampled_from(("q", "job", "waiting", "delayed", "failed", "completed", "1", "0", "-1", "25",
                     "9" * 30, "1ms", "10s", "99999999999999d", "2090-01-31T08:00:00Z", "12:00",
                     "fixed:1s", "exponential:100ms", "1" * 5_000, "Europe/Berlin" * 1_000,
                     "{" * 1_000, '{"q":' * 1_000, "a=b", "spark.master=local[x]", "{}",
                     '{"a": 1}', "[1]", "null", "1e999", "* * * * *", "@daily",
                     "61 * * * *", "Europe/Madrid", "Mars/Base", "skip",
                     "fire-all:3", "unrecoverable", "1-1", "0-0", "{", "a}b", "n" * 300,
                     "i" * 2_000, "-", "--", "--all", "é\u200b\n")),
    anything,
)  # fmt: skip


# By its whole name there stands a function.
SPARK_SESSION = importlib.import_module("chasquimq.spark.session")
HANDLERS = st.sampled_from(("os:getcwd", "json:loads", "tasks:handle", "tasks:x", "none:x", "a/b:c",
                            ":", "..:x"))  # fmt: skip


def leaves():
    """Every command, with the words that lead to it."""
    for name in sorted(COMMANDS):
        found = command.get_command(click.Context(command), name)
        if isinstance(found, click.Group):
            yield from (((name, part), each) for part, each in found.commands.items())
        else:
            yield (name,), found


LEAVES = dict(leaves())


@st.composite
def command_lines(draw, path):
    """A command, its arguments, and some of its options, in any order."""
    parts = []
    for each in LEAVES[path].params:
        if isinstance(each, click.Argument):
            value = HANDLERS | likely if each.name == "target" else likely
            parts += [[draw(value)] for _ in range(draw(st.integers(0, 2)) if each.nargs else 0)]
        elif each.opts[-1] not in ELSEWHERE and draw(st.booleans()):
            # A wait is as long as it says.
            value = st.sampled_from(("1ms", "0", "x")) if each.name == "wait" else likely
            parts.append([each.opts[-1]] if each.is_flag else [each.opts[-1], draw(value)])
    return [*path, *(word for part in draw(st.permutations(parts)) for word in part)]


class Unheard(QueueEvents):
    """The events of a queue that tells none, and ends."""

    async def __anext__(self):
        raise StopAsyncIteration


async def leave(shift):
    """What a shift does when it was told to stop before it began."""
    for queue in shift._queues:  # noqa: SLF001 -- in its place
        await queue.close()
    return Ending.STOPPED


async def look_after_nobody(supervisor):
    return 0


def refuse_to_start(*_, **__):
    msg = "here it would start"
    raise Refusal(msg)


def stop_short(patch):
    """Leave out what runs on, starts Spark or a server, and the log of a process of its own."""
    patch.setattr(Shift, "run", leave)
    patch.setattr(Supervisor, "run", look_after_nobody)
    patch.setattr(fleet, "_run", refuse_to_start)
    patch.setattr(SPARK_SESSION, "session", refuse_to_start)
    for module in (pipeline, backfill, triage):
        patch.setattr(module, "started", refuse_to_start)
    patch.setattr(watch, "_looks", lambda count: range(1))
    patch.setattr(events, "QueueEvents", Unheard)
    patch.setattr(embedded_hold, "start", lambda directory: True)
    patch.setattr(logs, "set_up", lambda level, *, as_json: None)
    patch.setattr(sys, "path", sys.path.copy())  # to which `worker` adds


def ended(line):
    """The exit code and what was told of a command line; what is no mistake of a user raises."""
    told = io.StringIO()
    with (
        contextlib.redirect_stdout(told),
        contextlib.redirect_stderr(told),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("sys.stdin", io.StringIO())  # for `-`, and where it asks
        stop_short(patch)
        code = entry(line)
    return code, told.getvalue()


@settings(max_examples=effort(200, 3_000))
@given(line=st.lists(words, max_size=5))
def test_any_words_end_with_an_exit_code_where_nobody_listens(line):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHASQUI_REDIS_URL", "redis://127.0.0.1:1")
        code, told = ended(line)
        assert code in {0, NOT_DONE, USAGE, UNREACHABLE}
        assert "Traceback" not in told


@pytest.fixture
def somewhere(start_server, tmp_path, monkeypatch):
    """A server and a folder that may come to look like anything."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.py").write_text("def handle(job): pass\n")
    monkeypatch.setenv("CHASQUI_REDIS_URL", start_server().url)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
@settings(
    max_examples=effort(25, 2_000), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_use_of_a_command_ends_with_an_exit_code(somewhere, path, data):
    line = data.draw(command_lines(path))
    code, told = ended(line)
    assert code in {0, NOT_DONE, USAGE}
    assert "Traceback" not in told
