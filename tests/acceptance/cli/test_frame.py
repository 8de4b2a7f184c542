"""What holds for every command: help, exit codes, secrets, and how quickly it starts."""

import importlib
import json
import subprocess
import sys

import click
import pytest

from chasquimq.cli.main import COMMANDS, command
from tests.acceptance.cli.conftest import environment


def paths(group=command, prefix=()):
    """Every command with its path, aliases too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*prefix, name), found
        if isinstance(found, click.Group):
            yield from paths(found, (*prefix, name))


EVERY = dict(paths())
LEAVES = {path: found for path, found in EVERY.items() if not isinstance(found, click.Group)}


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_explains_itself_with_an_example_that_names_it(path):
    context = click.Context(EVERY[path], info_name=" ".join(["chasqui", *path]))
    text = EVERY[path].get_help(context)
    assert EVERY[path].help
    assert "\nExample" in text
    aliases = {"list": "ls", "remove": "rm"} if path[0] == "repeatable" else {}
    name = " ".join(aliases.get(word, word) for word in path)
    assert f"chasqui {name}" in text.partition("\nExample")[2]


# What a command has no use for: `server` has its own, tables of the pipeline are files.
WITHOUT = {
    **{path: {"--redis-url"} for path in LEAVES if path[0] == "server"},
    **{("pipeline", name): {"--redis-url"} for name in ("report", "rebuild", "compact")},
}


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_takes_a_url_and_speaks_json(path):
    options = [each for each in LEAVES[path].params if isinstance(each, click.Option)]
    names = {name for each in options for name in each.opts}
    assert {"--redis-url", "--json"} - names == WITHOUT.get(path, set())
    assert [each.opts for each in options if not each.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_the_one_its_module_has(name):
    module = importlib.import_module(f"chasquimq.cli.{COMMANDS[name].module}")
    assert module.command.name == name


def run(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "chasquimq", *arguments],
        check=False, capture_output=True, text=True, timeout=30, env=environment(**variables),
    )  # fmt: skip


def test_help_lists_every_command():
    shown = run("--help")
    assert shown.returncode == 0
    for name, entry in COMMANDS.items():
        assert f"  {name} " in shown.stdout
        assert entry.help in " ".join(shown.stdout.split())


GROUPS = [path for path, found in EVERY.items() if isinstance(found, click.Group)]


@pytest.mark.parametrize("path", [(), *GROUPS], ids=lambda path: " ".join(path) or "chasqui")
def test_without_a_command_the_help_is_shown_as_help_and_the_usage_is_wrong(path):
    shown, help_page = run(*path), run(*path, "--help")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == help_page.stdout
    assert len(shown.stderr.splitlines()) > 10


def test_help_tells_every_exit_code():
    told = " ".join(run("--help").stdout.split()).partition("Exit codes: ")[2].partition(". ")[0]
    assert [int(part.split()[0]) for part in told.split(", ")] == [0, 1, 2, 3, 4, 130]


def test_help_imports_neither_the_engine_nor_what_it_stands_on():
    program = (
        "import sys, json; from chasquimq.cli.main import entry; entry(['--help']); "
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True, capture_output=True, text=True, timeout=30, env=environment(),
    )  # fmt: skip
    loaded = set(json.loads(done.stderr))
    assert not loaded & {"asyncio", "hiredis", "msgpack", "rich", "chasquimq.names"}
    assert {name for name in loaded if name.startswith("chasquimq.")} == {
        "chasquimq.cli", "chasquimq.cli.main", "chasquimq.cli.options", "chasquimq.cli.problems",
        "chasquimq.errors",
    }  # fmt: skip


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_a_sentence_says_what_to_install(missing, tmp_path):
    (tmp_path / f"{missing}.py").write_text(
        f"raise ModuleNotFoundError('no {missing}', name='{missing}')"
    )
    done = run("inspect", "q", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        f"chasqui: the command line needs {missing}, which is not installed: "
        "run  pip install click rich\n"
    )


def test_a_server_that_is_away_is_exit_code_three():
    done = run("inspect", "q", CHASQUI_REDIS_URL="redis://127.0.0.1:1")
    assert done.returncode == 3
    assert done.stderr.startswith("chasqui: redis: cannot connect to redis://127.0.0.1:1")
    assert (
        "name another with --redis-url or CHASQUI_REDIS_URL, or run: chasqui server" in done.stderr
    )
    assert "embedded://" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "url", ["redis://ada:hunter2@127.0.0.1:1", "redis://ada:hunter2@:x", "ftp://ada:hunter2@h"]
)
def test_a_password_is_never_shown(url):
    done = run("inspect", "q", "--redis-url", url)
    assert done.returncode in (2, 3)
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["inspect"], "Missing argument 'QUEUE'"),
        (["inspect", "a{b"], "contains a brace"),
        (["watch", "q", "--interval-ms", "0"], "--interval-ms"),
        (["inspect", "q", "--redis-url", "ftp://h"], "redis_url: the scheme 'ftp' is not known"),
        (["events", "q", "--from", "x"], "'--from': 'x' is no place: write $, 0, or the id"),
        (["events", "q", "--event", "odd"], "no event 'odd': choose from waiting, delayed, active"),
        (["inspct", "q"], "No such command 'inspct': did you mean inspect?"),
        (["worker", "tasks:app", "-p", "9" * 30], "99 processes are too many: use 1,024 or fewer"),
        (["worker", "tasks:app", "-p", "1025"], "1025 processes are too many"),
        (["worker", "tasks:app", "-p", "9" * 5_000], "…' is not a whole number from 1 on"),
        (["dlq", "peak", "q"], "No such command 'peak': did you mean peek?"),
    ],
)
def test_wrong_usage_is_exit_code_two_and_one_line(arguments, told):
    done = run(*arguments, CHASQUI_REDIS_URL="redis://127.0.0.1:1")
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


# Enough of an argument for each command that talks to a server to begin.
ARGUMENTS = {
    "QUEUE": "q", "[NAME]": "x", "NAME": "x", "[DATA]": "1", "JOB_ID": "j1", "JOB_ID...": "j1",
    "ID": "1-0", "KEY": "k", "QUEUE...": "q", "SOURCE...": "rows.csv",
}  # fmt: skip
MORE = {
    ("repeatable", "add"): ["--every", "1s"],
    ("delayed", "reschedule"): ["--delay", "1s"],
    ("pipeline", "backfill"): ["--queue", "q"],
}
TALKING = [
    path for path in LEAVES if path != ("worker",) and "--redis-url" not in WITHOUT.get(path, ())
]


def asked(path, url):
    """How a command ends that talks to this server."""
    context = click.Context(LEAVES[path])
    metavars = [each.make_metavar(context) for each in LEAVES[path].params
                if isinstance(each, click.Argument)]  # fmt: skip
    given = [ARGUMENTS[name] for name in metavars if name in ARGUMENTS]
    yes = ["--yes"] if any("--yes" in each.opts for each in LEAVES[path].params) else []
    return run(*path, *given, *MORE.get(path, ()), *yes, CHASQUI_REDIS_URL=url)


@pytest.mark.parametrize("path", TALKING, ids=" ".join)
def test_a_server_in_the_memory_of_the_command_itself_is_refused(path):
    """What was said to be added, or gone, would be so for nobody else."""
    done = asked(path, "embedded://")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("chasqui: ")
    assert "keeps jobs in the memory of one process" in done.stderr
    assert "chasqui server start" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# What these bring into being may be the first that there is.
MAKING = {("add",), ("repeatable", "add"), ("pause",), ("pipeline", "backfill")}


@pytest.mark.parametrize("path", [path for path in TALKING if path not in MAKING], ids=" ".join)
def test_a_directory_that_is_not_there_is_refused_and_not_made(path, tmp_path):
    """It is mistyped: an empty server in it would answer that there is nothing."""
    mistyped = tmp_path / "mistyped"
    done = asked(path, f"embedded://{mistyped}")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr == (
        f"chasqui: config: embedded://{mistyped} names a directory that does not exist: check the"
        " path; chasqui add, chasqui worker and chasqui server start make it [CMQ-004]\n"
    )
    assert not mistyped.exists()


@pytest.mark.parametrize("path", sorted(MAKING - {("pipeline", "backfill")}), ids=" ".join)
def test_a_directory_is_made_by_what_may_come_first(path, tmp_path):
    done = asked(path, f"embedded://{tmp_path / 'new'}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new").is_dir()


def test_the_url_may_stand_before_the_command_and_the_one_behind_it_wins():
    first = run("--redis-url", "redis://127.0.0.1:1", "inspect", "q")
    second = run("--redis-url", "redis://127.0.0.1:1", "inspect", "q", "--redis-url",
                 "redis://127.0.0.1:2")  # fmt: skip
    assert "127.0.0.1:1:" in first.stderr
    assert "127.0.0.1:2:" in second.stderr


def test_the_version_is_told():
    assert run("--version").stdout.startswith("chasqui, version ")
