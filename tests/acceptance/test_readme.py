"""What README and docs show runs as it stands: programs in a file, fragments one by one."""

import ast
import asyncio
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

import chasquimq
from chasquimq import Queue, Worker

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRAGMENT_PAGES = (
    "delayed",
    "engine",
    "errors",
    "getting-started",
    "jobs",
    "managing",
    "metrics",
    "operations",
    "recurring",
    "results-and-events",
    "retries-and-dlq",
    "workers",
    "tasks",
)


def fences(path: Path, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(path.read_text()) if found == language]


def is_program(text: str) -> bool:
    return "asyncio.run(" in text or "__main__" in text


def run_pasted(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    pasted = folder / "pasted.py"
    pasted.write_text(text)
    unset = {key: value for key, value in os.environ.items() if key != "CHASQUI_REDIS_URL"}
    return subprocess.run(
        [sys.executable, "-W", "error", pasted.name],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=folder,
        env=unset,
    )


def test_the_readmes_program_works_pasted_as_it_is(tmp_path):
    [program] = fences(README, "python")
    done = run_pasted(program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Welcome, Ada!\n", "")


def test_the_readmes_program_is_the_quickstart_example():
    [program] = fences(README, "python")
    example = ast.parse((ROOT / "examples" / "quickstart.py").read_text())
    del example.body[0]  # its docstring
    assert ast.unparse(ast.parse(program)) == ast.unparse(example)


def test_the_make_targets_and_extras_that_pages_name_exist():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = set(phony[1].split())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named_targets, named_extras = set(), set()
    for page in [README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        text = page.read_text()
        named_targets |= set(re.findall(r"(?:^\s*|`)make ([\w-]+)", text, re.MULTILINE))
        for group in re.findall(r"pip install[^\n]*'\.\[([\w,-]+)\]", text):
            named_extras |= set(group.split(","))
    assert {"demo", "test", "check"} <= named_targets <= targets
    assert {"embedded"} <= named_extras <= set(extras)


def test_the_first_program_of_getting_started_works_pasted_as_it_is(tmp_path):
    first = fences(ROOT / "docs" / "getting-started.md", "python")[0]
    done = run_pasted(first, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "welcome to ada@example.com\n", "")


def test_the_program_of_the_engine_page_works_pasted_as_it_is(tmp_path):
    [program] = [text for text in fences(ROOT / "docs" / "engine.md", "python") if is_program(text)]
    done = run_pasted(program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'HELLO'\n", "")


def test_the_two_programs_of_getting_started_work_together(tmp_path):
    pages = fences(ROOT / "docs" / "getting-started.md", "python")
    worker, add = [text for text in pages if "__main__" in text]
    (tmp_path / "worker.py").write_text(worker)
    (tmp_path / "add.py").write_text(add)
    name, _, value = (
        fences(ROOT / "docs" / "getting-started.md", "sh")[0]
        .strip()
        .removeprefix("export ")
        .partition("=")
    )
    env = {**os.environ, name: value}
    with subprocess.Popen(
        [sys.executable, "worker.py"], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    ) as working:
        added = subprocess.run(
            [sys.executable, "add.py"],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        lines = iter(working.stderr.readline, "")
        assert any("welcome to ada@example.com" in line for line in lines)
        working.send_signal(signal.SIGTERM)
        for _ in lines:
            pass
    assert working.returncode == 0
    assert re.fullmatch(r"[0-9A-Z]{26}\n", added.stdout)


def test_the_shell_of_getting_started_goes_as_it_says(tmp_path):
    [app] = [text for text in fences(ROOT / "docs" / "getting-started.md", "python")
             if "@app.task" in text]  # fmt: skip
    (tmp_path / "tasks.py").write_text(app)
    export, tour = fences(ROOT / "docs" / "getting-started.md", "sh")
    name, _, value = export.strip().removeprefix("export ").partition("=")

    def chasqui(line):
        return subprocess.run(
            [sys.executable, "-m", "chasquimq", *shlex.split(line, comments=True)[1:]],
            cwd=tmp_path, env={**os.environ, name: value, "COLUMNS": "80"}, input="",
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout  # fmt: skip

    worker, good, bad, peek, show, replay = tour.splitlines()
    chasqui(good)
    letter = chasqui(bad).split()[1]
    assert "welcome, ada\n" in chasqui(worker.partition("#")[0] + "--burst")
    assert letter in chasqui(peek)
    assert "unknown 'too'" in chasqui(show.replace("ID", letter))
    assert chasqui(replay.partition("#")[0] + "--yes") == "replayed 1 of 1 entries\n"


@pytest.fixture
async def world(queue_name):
    """What the fragments of a page take for granted: a queue, a worker that echoes, its URL."""
    url = "embedded://"

    async def echo(job):
        return job.data

    worker = Worker(queue_name, echo, redis_url=url, store_results=True, handle_signals=False)
    working = asyncio.create_task(worker.run())
    async with Queue(queue_name, redis_url=url) as queue:
        names = {name: getattr(chasquimq, name) for name in chasquimq.__all__}
        yield {**names, "queue": queue, "url": url, "__name__": "page"}
        await worker.close()
        await working


@pytest.mark.parametrize("page", FRAGMENT_PAGES)
async def test_the_fragments_of_a_page_run_one_after_the_other(page, world):
    fragments = [
        text for text in fences(ROOT / "docs" / f"{page}.md", "python") if not is_program(text)
    ]
    assert fragments, "the page shows no fragment: take it off the list"
    for text in fragments:
        code = compile(
            textwrap.dedent(text), f"{page}.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        made = eval(code, world)  # noqa: S307 -- our own documentation
        if inspect.isawaitable(made):
            async with asyncio.timeout(20):
                await made
    for name, value in world.items():
        if isinstance(value, Queue) and name != "queue":
            with suppress(chasquimq.ChasquiError):
                await value.close()


def test_every_page_with_python_is_checked_here():
    shown = {
        path.stem
        for path in (ROOT / "docs").glob("*.md")
        if any(not is_program(text) for text in fences(path, "python"))
    }
    others = {"testing", "wire-format"}  # fixtures and bytes, not fragments of this kind
    others |= {"spark", "pipeline"}  # run in tests/spark, which has a session
    others |= {"cli"}  # what `worker --help` shows, and run with it
    assert shown - others == set(FRAGMENT_PAGES)
