"""`chasqui worker` in real processes: what it runs, when it ends, and who takes its place."""

import json
import os
import pathlib
import re
import shlex
import signal
import socket
import textwrap
import urllib.request
from contextlib import ExitStack, suppress

import pytest

from chasquimq import SyncQueue
from chasquimq.config import LEAST_LEASE_MS
from tests.support.eventually import eventually_sync
from tests.support.program import Program
from tests.support.servers import free_port

pytestmark = pytest.mark.servers("valkey")  # processes and files, no matter of the server

LEASE_MS = str(LEAST_LEASE_MS)
TASKS = """
import asyncio, ctypes, gc, multiprocessing, os, pathlib, signal, time
from chasquimq import Chasqui, Job

app = Chasqui("QUEUE")


@app.task
async def hello(to="world"):
    print(f"hello {to} from {os.getpid()}", flush=True)


@app.task
async def hold(job: Job, until):
    print(f"holding {job.attempt} in {os.getpid()}", flush=True)
    while not pathlib.Path(until).exists():
        await asyncio.sleep(0.01)
    print("held", flush=True)


@app.task
def die(job: Job):
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print("lives again", flush=True)


def outlive(until):
    while not pathlib.Path(until).exists():
        time.sleep(0.01)


@app.task
async def fork_and_die(job: Job, how, until):
    if job.attempt > 1:
        print(f"goes on in {os.getpid()}", flush=True)
    elif how == "python":
        multiprocessing.get_context("fork").Process(target=outlive, args=(until,)).start()
        os.kill(os.getpid(), signal.SIGKILL)
    elif ctypes.PyDLL(None).fork():  # of which Python hears nothing
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        outlive(until)
        os._exit(0)


@app.task
async def grow(megabytes):
    app.ballast = bytearray(megabytes * 1_048_576)
    print(f"is large: {os.getpid()}", flush=True)


@app.task
async def loaded():
    print(f"{gc.get_freeze_count()} objects are left alone", flush=True)


@app.task
async def fail():
    raise ValueError("broken")


async def handle(job):
    print(f"handled {job.name} {job.data}", flush=True)


def plainly(job):
    print(f"plainly {job.name}", flush=True)


def two(job, more): ...


number = 5
"""


@pytest.fixture
def folder(tmp_path, queue_name):
    (tmp_path / "tasks.py").write_text(TASKS.replace("QUEUE", queue_name))
    return tmp_path


@pytest.fixture
def chasqui(folder, server):
    """Start the command line in the folder with `tasks.py`."""
    started = []

    def start(*arguments, **env):
        env = {"CHASQUI_REDIS_URL": server.url, **env}
        started.append(Program(*arguments, cwd=folder, env=env))
        return started[-1]

    yield start
    for program in started:
        program.close()


@pytest.fixture
def queue(server, queue_name):
    with SyncQueue(queue_name, redis_url=server.url) as queue:
        yield queue


def free_ports(count):
    """The first of so many ports in a row that nobody uses."""
    while True:
        first = free_port()
        with suppress(OSError, OverflowError), ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def pids(lines):
    return {int(line.rpartition(" ")[2]) for line in lines}


def is_alive(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


# --- in one process


def test_an_app_is_run_and_a_banner_says_what_and_where(chasqui, queue, server):
    queue.add("hello", {"to": "ada"})
    worker = chasqui("worker", "tasks:app")
    worker.until("hello ada")
    worker.until("(hello) done in")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0
    banner = worker.lines[:6]
    assert banner[0].startswith("chasqui worker ")
    assert banner[1:] == [
        "  handler    tasks:app (die, fail, fork_and_die, grow, hello, hold, loaded)",
        f"  queue      {queue.name}",
        f"  server     {server.url}",
        "  processes  1",
        "Ctrl+C to stop, twice to stop at once",
    ]


def test_what_was_loaded_before_the_first_job_is_left_alone_by_the_collector(chasqui, queue):
    queue.add("loaded", None)
    worker = chasqui("worker", "tasks:app", "--burst")
    assert worker.ended() == 0
    assert int(re.search(r"(\d+) objects are left alone", worker.text)[1]) > 1_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["tasks:handle"], "handled x [1]"), (["tasks:plainly", "-q"], "plainly x")],
)
def test_a_function_of_one_job_is_run_for_the_queue_that_is_named(chasqui, queue, arguments, said):
    queue.add("x", [1])
    worker = chasqui("worker", *arguments, queue.name, "--burst")
    assert worker.ended() == 0
    assert said in worker.text


def test_a_burst_ends_when_nothing_waits_runs_or_is_due_and_leaves_what_is_for_later(
    chasqui, queue
):
    for _ in range(3):
        queue.add("hello", None)
    queue.add("hello", None, delay_ms=1)
    later = queue.add("hello", None, delay_ms=3_600_000)
    worker = chasqui("worker", "tasks:app", "--burst")
    assert worker.ended() == 0
    assert len(worker.until("hello world from")) == 4
    assert "nothing waits, is in flight or is due: done; 1 delayed for later" in worker.text
    assert queue.get_job_state(later.id) == "delayed"


def test_a_burst_in_several_processes_ends_when_all_is_done(chasqui, queue):
    queue.add_bulk([{"name": "hello", "data": {"to": number}} for number in range(50)])
    worker = chasqui("worker", "tasks:app", "--burst", "-p", "2", "-c", "5")
    assert worker.ended() == 0
    assert len(worker.until("hello ")) >= 50
    assert queue.counts().waiting == 0


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("delay_ms", [0, 1])
def test_a_burst_on_a_paused_queue_with_jobs_ends_and_says_why(chasqui, queue, processes, delay_ms):
    queue.pause()
    queue.add("hello", None, delay_ms=delay_ms)
    worker = chasqui("worker", "tasks:app", "--burst", "-p", processes)
    assert worker.ended() == 1
    worker.until(
        f"chasqui: paused with jobs to run: '{queue.name}'; "
        f"resume with: chasqui resume {queue.name}"
    )
    assert "hello world" not in worker.text
    queue.resume()
    assert chasqui("worker", "tasks:app", "--burst", "-p", processes).ended() == 0


def test_a_burst_on_a_paused_queue_without_jobs_is_done(chasqui, queue):
    queue.pause()
    assert chasqui("worker", "tasks:app", "--burst").ended() == 0


def test_a_job_that_fails_is_a_dead_letter_with_its_traceback_and_does_not_end_the_worker(
    chasqui, queue
):
    queue.add("fail", None, attempts=1)
    queue.add("unheard-of", None)
    worker = chasqui("worker", "tasks:app", "--burst")
    assert worker.ended() == 0
    letters = {letter["name"]: letter for letter in queue.peek_dlq()}
    assert 'raise ValueError("broken")' in letters["fail"]["traceback"]
    assert "no task is named 'unheard-of'; this app has die, fail" in letters["unheard-of"]["error"]


def test_options_of_the_worker_are_passed_on(chasqui, queue):
    job = queue.add("x", [1])
    worker = chasqui(
        "worker", "tasks:handle", queue.name, "--burst", "--store-results", "--max-attempts", "1",
        "--result-ttl-ms", "60000", "--shutdown-deadline-secs", "5", "--no-scheduler",
        "--no-events", "--no-promoter", "--claim-min-idle-ms", "5000", "--group", "default",
        "--no-uvloop", "--log-level", "warning",
    )  # fmt: skip
    assert worker.ended() == 0
    assert queue.get_outcome(job.id).status == "ok"
    assert worker.lines[6:] == ["handled x [1]"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_first_signal_lets_running_jobs_end_and_the_second_does_not(
    chasqui, queue, folder, processes
):
    queue.add("hold", {"until": str(folder / "go")})
    first = chasqui("worker", "tasks:app", "-p", processes)
    first.until("holding 1")
    first.send(signal.SIGTERM)
    first.until("once more to stop at once")
    (folder / "go").touch()
    assert first.ended() == 0
    assert "held" in first.lines

    queue.add("hold", {"until": str(folder / "never")})
    second = chasqui("worker", "tasks:app", "-p", processes)
    second.until("holding 1")
    second.send(signal.SIGINT)
    second.until("once more to stop at once")
    second.send(signal.SIGINT)
    assert second.ended() == 0
    assert "SIGINT again: stopping now" in second.text
    assert second.lines.count("held") == 0

    (folder / "never").touch()
    third = chasqui("worker", "tasks:app", "--burst")  # it was handed back, its run counted
    assert third.ended() == 0
    third.until("holding 2")


# --- in several


def test_a_child_that_is_killed_is_replaced_and_the_work_goes_on(chasqui, queue):
    worker = chasqui("worker", "tasks:app", "-p", "2", "--claim-min-idle-ms", LEASE_MS)
    worker.until("on queue", 2)
    queue.add("die", None)
    worker.until("a process ended with SIGKILL")
    worker.until("lives again")
    worker.until("on queue", 3)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0


@pytest.mark.parametrize("how", ["python", "c"])
def test_a_dead_process_is_noticed_while_one_that_its_handler_forked_lives(
    chasqui, queue, folder, how
):
    worker = chasqui("worker", "tasks:app", "--max-jobs", "100", "--claim-min-idle-ms", LEASE_MS)
    queue.add("fork_and_die", {"how": how, "until": str(folder / "go")})
    try:
        worker.until("a process ended with SIGKILL")
        worker.until("goes on in")
    finally:
        (folder / "go").touch()
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0


def test_a_process_is_replaced_after_its_number_of_jobs(chasqui, queue):
    worker = chasqui("worker", "tasks:app", "--max-jobs", "2", "-c", "1")
    for number in range(4):
        queue.add("hello", {"to": number})
    seen = pids(worker.until("hello ", 4))
    worker.until("another takes its place", 2)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0
    assert len(seen) == 2
    assert "a process ended with" not in worker.text


def test_a_process_is_replaced_when_it_has_grown_too_large(chasqui, queue):
    worker = chasqui("worker", "tasks:app", "--max-memory-mb", "150")
    queue.add("grow", {"megabytes": 200})
    [grown] = pids(worker.until("is large: "))
    worker.until("another takes its place")
    queue.add("hello", None)
    assert pids(worker.until("hello world")) != {grown}


@pytest.mark.parametrize("more", [["-p", "1"], ["-p", "2"], ["--engine", "spark"]])
def test_a_lease_that_is_too_short_is_refused_with_the_rule_and_the_remedy(chasqui, more):
    worker = chasqui("worker", "tasks:app", "--claim-min-idle-ms", "1", *more)
    assert worker.ended() == 2
    [line] = worker.lines
    assert f"claim_min_idle_ms must be {LEASE_MS} or more; got 1: " in line
    assert "leave it out for 30000" in line


def test_a_limit_of_memory_that_is_reached_before_the_first_job_is_refused(chasqui, queue):
    queue.add("hello", None)
    worker = chasqui("worker", "tasks:app", "--max-memory-mb", "5")
    assert worker.ended() == 2
    [line] = worker.lines
    assert re.search(r"--max-memory-mb is 5, but .* uses \d+ MB before its first job: allow", line)
    assert queue.counts().waiting == 1


GROWS = """
import threading

def grow_by_itself():
    app.ballast = b"x" * 200_000_000
    time.sleep(1.5)  # longer than the supervised process takes to look
    print("has been large for a while", flush=True)

threading.Timer(0.5, grow_by_itself).start()
"""


def test_a_process_that_grows_without_a_run_stays(chasqui, queue, folder):
    """Another would grow as well, and none would ever run a job."""
    with (folder / "tasks.py").open("a") as source:
        source.write(GROWS)
    worker = chasqui("worker", "tasks:app", "--max-memory-mb", "150")
    worker.until("has been large for a while")
    assert "takes its place" not in worker.text
    queue.add("hello", None)
    worker.until("hello world")
    worker.until("this process has run 1 jobs")


def test_children_end_when_their_parent_is_killed(chasqui, queue, folder):
    worker = chasqui("worker", "tasks:app", "-p", "2")
    queue.add("hold", {"until": str(folder / "go")})
    queue.add("hold", {"until": str(folder / "go")})
    worker.until("on queue", 2)
    children = {int(pid) for pid in re.findall(r"\[(\d+)\] worker c-", worker.text)}
    worker.until("holding", 2)
    worker.send(signal.SIGKILL)
    worker.until("the supervisor is gone", 2)
    (folder / "go").touch()
    eventually_sync(lambda: not any(map(is_alive, children)))
    assert queue.counts() == queue.counts().__class__(waiting=0, active=0, delayed=0, dead=0)
    assert worker.ended() == -signal.SIGKILL


def test_a_signal_to_every_process_at_once_is_still_the_first(chasqui, queue, folder):
    """As a service manager sends it: to the whole group."""
    queue.add("hold", {"until": str(folder / "go")})
    worker = chasqui("worker", "tasks:app", "-p", "2")
    [holder] = pids(worker.until("holding 1"))
    os.kill(holder, signal.SIGTERM)
    worker.send(signal.SIGTERM)
    worker.until("once more to stop at once", 2)
    (folder / "go").touch()
    assert worker.ended() == 0
    assert "held" in worker.lines


def test_a_password_is_in_no_command_line(chasqui, server, folder):
    client = server.client()
    client.execute_command("ACL", "SETUSER", "guest", "on", ">pass-phrase", "~*", "&*", "+@all")
    try:
        url = server.url.replace("redis://", "redis://guest:pass-phrase@")
        worker = chasqui("worker", "tasks:app", "-p", "1", CHASQUI_REDIS_URL=url)
        [line] = worker.until("on queue")
        child = int(re.search(r"\[(\d+)\]", line)[1])
        parent = int(pathlib.Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
        for pid in (parent, child):
            for shown in ("cmdline", "comm"):
                assert "pass-phrase" not in pathlib.Path(f"/proc/{pid}/{shown}").read_text()
        assert not any("pass-phrase" in each for each in worker.lines)
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
    finally:
        client.execute_command("ACL", "DELUSER", "guest")


# --- reloading


def test_an_edit_starts_the_worker_anew_and_a_mistake_waits_for_its_correction(
    chasqui, queue, folder
):
    source = folder / "tasks.py"
    good = source.read_text()
    worker = chasqui("worker", "tasks:app", "--reload")
    queue.add("hello", None)
    worker.until("hello world")

    source.write_text(good.replace("hello {to}", "good day {to}"))
    worker.until("tasks.py changed: starting anew")
    worker.until("on queue", 2)
    queue.add("hello", None)
    worker.until("good day world")

    source.write_text(good.replace("app = Chasqui", "app = = Chasqui"))
    worker.until("'tasks' cannot be imported: invalid syntax (")
    worker.until("app = = Chasqui")
    worker.until("waiting for a change of the source")

    source.write_text(good.replace("hello {to}", "at last {to}"))
    queue.add("hello", None)
    worker.until("at last world")
    worker.send(signal.SIGINT)
    assert worker.ended() == 0
    assert "Traceback" not in worker.text


def test_reloading_begins_with_a_mistake_too(chasqui, queue, folder):
    source = folder / "tasks.py"
    good = source.read_text()
    source.write_text("import nothing_of_this_name\n")
    worker = chasqui("worker", "tasks:app", "--reload")
    worker.until("waiting for a change of the source")
    source.write_text(good)
    worker.until("on queue")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0


# --- mistakes: one line, and what to do


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("tasks", "'tasks' names no handler: write MODULE:NAME"),
        ("tasks:", "write MODULE:NAME"),
        ("taks:app", "there is no module 'taks' in .*: did you mean tasks?"),
        ("tasks.py:app", "write tasks:NAME, as in an import, not the path of the file"),
        ("./tasks:app", "'./tasks' is the path of a file: write tasks:NAME, as in an import"),
        ("./sub/tasks.py:app", "write sub.tasks:NAME, as in an import"),
        ("../tasks.py:app", "write tasks:NAME, and --app-dir \\.\\."),
        (".tasks:app", "write tasks:NAME, as in an import"),
        ("nowhere.tasks:app", "there is no module 'nowhere' .*with --app-dir"),
        ("tasks:application", "tasks has nothing called 'application' .*: its app is app"),
        ("tasks:number", "tasks:number is of type int: name a function of one Job"),
        ("tasks:two", r"tasks:two\(job, more\) cannot be a handler, which takes one argument"),
        ("tasks:hello", "tasks:hello is one task: name the app"),
        ("tasks:Chasqui", "tasks:Chasqui is a class"),
        ("tasks:handle", "which queue\\? name it: chasqui worker tasks:handle QUEUE"),
    ],
)
def test_a_mistaken_target_is_told_in_one_line(chasqui, target, told, processes):
    worker = chasqui("worker", target, "-p", processes)
    assert worker.ended() == 2
    assert "Traceback" not in worker.text
    [line] = [line for line in worker.lines if re.search(told, line)]
    assert line.startswith(("chasqui: ", "Error: "))


def test_an_app_without_tasks_is_told(chasqui, folder):
    (folder / "empty.py").write_text("from chasquimq import Chasqui\napp = Chasqui()\n")
    worker = chasqui("worker", "empty:app")
    assert worker.ended() == 2
    [line] = worker.lines
    assert line.startswith("chasqui: the app empty:app has no tasks: decorate functions with")


def test_what_a_module_raises_is_shown_with_the_lines_of_the_user_only(chasqui, folder):
    (folder / "broken.py").write_text("def explode():\n    1 / 0\n\nexplode()\n")
    worker = chasqui("worker", "broken:app")
    assert worker.ended() == 2
    assert worker.lines[-1] == (
        "chasqui: 'broken' raised ZeroDivisionError while it was imported: mend it"
    )
    assert "    1 / 0" in worker.lines
    assert "importlib" not in worker.text
    assert "loading.py" not in worker.text


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_server_that_is_not_there_is_exit_code_3(chasqui, processes):
    worker = chasqui("worker", "tasks:app", "-p", processes, "--redis-url", "redis://127.0.0.1:1")
    assert worker.ended() == 3
    [line] = worker.lines
    assert "cannot connect to redis://127.0.0.1:1" in line


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_server_in_the_memory_of_the_process_is_refused(chasqui, processes):
    worker = chasqui("worker", "tasks:app", "-p", processes, "--redis-url", "embedded://")
    assert worker.ended() == 2
    [line] = worker.lines
    assert "keeps jobs in the memory of one process" in line
    assert "name a directory, as in embedded:///" in line
    assert "chasqui server start" in line


def test_an_app_with_a_server_of_its_own_in_memory_is_refused(chasqui, folder):
    (folder / "private.py").write_text(
        "from chasquimq import Chasqui\n"
        "app = Chasqui('q', redis_url='embedded://')\n\n\n@app.task\ndef x(): ...\n"
    )
    worker = chasqui("worker", "private:app")
    assert worker.ended() == 2
    assert "keeps jobs in the memory of one process" in worker.text


def test_the_url_of_the_command_line_goes_before_that_of_the_app(chasqui, folder, queue, server):
    text = (folder / "tasks.py").read_text()
    (folder / "tasks.py").write_text(
        text.replace(f'Chasqui("{queue.name}")',
                     f'Chasqui("{queue.name}", redis_url="redis://127.0.0.1:1")')
    )  # fmt: skip
    queue.add("hello", None)
    worker = chasqui("--redis-url", server.url, "worker", "tasks:app", "--burst")
    assert worker.ended() == 0
    assert "hello world" in worker.text


def test_a_module_is_found_in_another_folder(chasqui, folder, queue):
    (folder / "deeper").mkdir()
    (folder / "tasks.py").rename(folder / "deeper" / "jobs.py")
    queue.add("hello", None)
    worker = chasqui("worker", "jobs:app", "--app-dir", "deeper", "--burst")
    assert worker.ended() == 0
    assert "hello world" in worker.text


def test_the_help_explains_the_command(chasqui):
    shown = chasqui("worker", "--help")
    assert shown.ended() == 0
    for word in ("MODULE:NAME [QUEUE]", "--processes", "--reload", "--burst", "Examples:"):
        assert word in shown.text


def test_the_app_that_the_help_shows_runs_the_job_that_it_shows(chasqui, folder, queue_name):
    shown = chasqui("worker", "--help")
    assert shown.ended() == 0
    source = shown.text.partition("whose jobs wait in the queue named default:")[2]
    app, _, rest = source.partition("Data is an object of arguments by name: ")
    # In a queue of this test, not in `default`, which all would share.
    source = textwrap.dedent(app).replace("Chasqui()", f"Chasqui({queue_name!r})")
    (folder / "shown.py").write_text(source)
    [_, verb, default, *job] = shlex.split(rest.splitlines()[0])
    assert (verb, default) == ("add", "default")
    assert chasqui("add", queue_name, *job).ended() == 0
    worker = chasqui("worker", "shown:app", "--burst")
    assert worker.ended() == 0
    assert "welcome, ada" in worker.lines


# --- what it serves and how fast it goes


@pytest.mark.parametrize("processes", [1, 2])
def test_each_queue_of_each_process_serves_its_metrics_on_a_port_of_its_own(
    chasqui, queue, processes
):
    first = free_ports(2 * processes)
    worker = chasqui(
        "worker", "tasks:handle", queue.name, "-q", f"{queue.name}-b", "-p", str(processes),
        "--metrics-port", str(first), "--metrics-host", "127.0.0.1",
    )  # fmt: skip
    worker.until("on queue", 2 * processes)
    for port in range(first, first + 2 * processes):
        name = queue.name if (port - first) % 2 == 0 else f"{queue.name}-b"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            assert json.load(answer)["queue"] == name
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0


def test_a_process_that_takes_the_place_of_another_answers_on_its_port(chasqui, queue):
    first = free_ports(1)
    worker = chasqui("worker", "tasks:app", "--max-jobs", "1", "--metrics-port", str(first))
    queue.add("hello", None)
    worker.until("another takes its place")
    worker.until(f"http://127.0.0.1:{first}/metrics", 2)
    worker.until("on queue", 2)
    with urllib.request.urlopen(f"http://127.0.0.1:{first}/metrics", timeout=10) as answer:
        assert b"chasquimq" in answer.read()
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_metrics_without_their_library_are_refused_in_a_line(chasqui, queue, tmp_path, processes):
    stand_in = tmp_path / "without" / "prometheus_client.py"
    stand_in.parent.mkdir()
    stand_in.write_text("raise ModuleNotFoundError('no', name='prometheus_client')")
    worker = chasqui(
        "worker", "tasks:handle", queue.name, "-p", processes, "--metrics-port", "0",
        PYTHONPATH=str(stand_in.parent),
    )  # fmt: skip
    assert worker.ended() == 2
    assert "run python -m pip install prometheus-client" in worker.text
    assert "Traceback" not in worker.text


def test_ports_that_there_are_not_are_refused(chasqui, queue):
    worker = chasqui("worker", "tasks:handle", queue.name, "-q", "more", "--metrics-port", "65535")
    assert worker.ended() == 2
    assert "--metrics-port leaves no room" in worker.text


def test_a_rate_limit_of_the_command_line_holds(chasqui, queue):
    queue.add_bulk([{"name": "hello", "data": None} for _ in range(5)])
    worker = chasqui(
        "worker", "tasks:app", "--rate-limit-max", "2", "--rate-limit-duration", "1h",
        "--rate-limit-scope", "worker",
    )  # fmt: skip
    worker.until("hello world", 2)
    eventually_sync(lambda: queue.counts().waiting == 3)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0
    assert queue.counts().waiting == 3


@pytest.mark.parametrize(
    ("flag", "value"), [("--rate-limit-duration", "1h"), ("--rate-limit-scope", "worker")]
)
def test_half_a_rate_limit_is_refused_and_says_what_to_add(chasqui, queue, flag, value):
    worker = chasqui("worker", "tasks:app", flag, value)
    assert worker.ended() == 2
    assert f"{flag} limits nothing without a number of jobs: add --rate-limit-max N" in worker.text


def test_the_banner_of_several_processes_comes_before_the_first_line_of_any(chasqui, queue):
    worker = chasqui("worker", "tasks:app", "-p", "2")
    worker.until("on queue", 2)
    assert worker.lines[0].startswith("chasqui worker ")
    assert worker.lines[5] == "Ctrl+C to stop, twice to stop at once"
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_log_can_be_read_by_programs(chasqui, queue, processes):
    job = queue.add("hello", {"to": "ada"})
    worker = chasqui("worker", "tasks:app", "--burst", "--json", "--processes", processes)
    assert worker.ended() == 0
    greeting, *records = [json.loads(line) for line in worker.lines if line.startswith("{")]
    assert (greeting["queues"], greeting["processes"]) == ([queue.name], int(processes))
    assert any(f"job {job.id} (hello) done in" in each["message"] for each in records)
    assert {"time", "level", "process", "logger", "message"} <= records[0].keys()
