"""Real servers for every test that asks, a queue of its own for each test, and the guards."""

import re
import secrets
import signal

import pytest

from tests.support.effort import load_profile
from tests.support.guards import leaks_of_all, leftover_tasks, sweep_keys
from tests.support.servers import (
    Server,
    ServerBinary,
    known_servers,
    open_servers,
    reference_python,
)

KNOWN = pytest.StashKey[dict[str, ServerBinary]]()
LONGEST_ID = 200


def pytest_addoption(parser):
    parser.addoption(
        "--servers",
        metavar="NAME,...",
        help="run on these servers only (see scripts/servers.py); default: all that are there",
    )


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in its background so, and all that tests start would ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    load_profile()
    known = known_servers()
    if asked := config.getoption("servers"):
        names = [name.strip() for name in asked.split(",")]
        for name in names:
            if name not in known:
                message = f"--servers: unknown server {name!r}, choose from {', '.join(known)}"
                raise pytest.UsageError(message)
            if known[name].path is None:
                message = f"--servers: {name} cannot be had: {known[name].reason}"
                raise pytest.UsageError(message)
        known = {name: known[name] for name in names}
    config.stash[KNOWN] = known


def pytest_generate_tests(metafunc):
    """Run a test that asks for `server` once on each server that is there."""
    if "server" not in metafunc.fixturenames:
        return
    known = metafunc.config.stash[KNOWN]
    marker = metafunc.definition.get_closest_marker("servers")
    wanted = marker.args if marker else tuple(known)
    there = [name for name in wanted if name in known and known[name].path]
    if there:
        metafunc.parametrize("server", there, ids=there, indirect=True)
        return
    names = ", ".join(wanted)
    skip = pytest.mark.skip(reason=f"runs on {names} only, which this run does not have")
    metafunc.parametrize("server", [pytest.param(names, id=names, marks=skip)], indirect=True)


def pytest_make_parametrize_id(val, argname):
    """Name a long value by its length: a test's name goes to the programs that it starts."""
    # pytest puts it into their environment, and Linux takes 128 KiB of one variable at the most.
    if isinstance(val, (bytes, str)) and len(val) > LONGEST_ID:
        return f"{argname}-of-{len(val)}"
    return None


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.section("servers")
    for server in config.stash[KNOWN].values():
        if server.path is None:
            terminalreporter.line(f"{server.name}: NOT TESTED, {server.reason}", yellow=True)
        else:
            terminalreporter.line(f"{server.name}: {server.version}")


@pytest.fixture(scope="session")
def _running_servers():
    running: dict[str, Server] = {}
    yield running
    for server in running.values():
        server.close()


@pytest.fixture
def server(request, _running_servers):
    """A real server, shared by all tests of this process: leave it as you found it."""
    name = request.param
    if name not in _running_servers:
        _running_servers[name] = Server(request.config.stash[KNOWN][name])
    return _running_servers[name]


@pytest.fixture
def start_server(request):
    """Start a server of the test's own, which it may pause, kill and restart.

    `start_server(name, *arguments)`; without a name the one that `server` has, else the first.
    """
    known = request.config.stash[KNOWN]
    started: list[Server] = []

    def start(name: str | None = None, *arguments: str) -> Server:
        if name is None and "server" in request.fixturenames:
            name = request.getfixturevalue("server").name
        if name is None:
            name = next((server.name for server in known.values() if server.path), None)
        if name not in known or known[name].path is None:
            pytest.skip(f"needs the server {name}, which this run does not have")
        started.append(Server(known[name], arguments))
        return started[-1]

    yield start
    for own in started:
        own.close()


@pytest.fixture(scope="session")
def reference():
    """The Python of an environment that holds the reference engine."""
    python = reference_python()
    if python.path is None:
        pytest.skip(f"the reference engine is not there: {python.reason}")
    return python.path


@pytest.fixture
def queue_name(request):
    """A queue name no other test has; derive further names from it by adding to its end."""
    promise = re.sub(r"[^a-z0-9]+", "-", request.function.__name__.removeprefix("test_").lower())
    return f"{promise[:40]}-{secrets.token_hex(4)}"


@pytest.fixture(autouse=True)
def _no_key_left_behind(request):
    """After a test every key of its queue is permanent by kind or expires; then all are removed.

    No others are there: a test keeps to its queue, and to those whose names begin as its own.
    """
    if "server" not in request.fixturenames:
        yield
        return
    server = request.getfixturevalue("server")
    name = request.getfixturevalue("queue_name")
    yield
    client = server.client()
    leaked = sweep_keys(client, name)
    strange = client.keys() if client.dbsize() else []
    client.flushall()
    assert not leaked, f"keys without a time to live: {leaked}"
    assert not strange, f"keys of no queue of the test: {strange[:9]}"


@pytest.fixture(autouse=True)
def _no_key_left_behind_elsewhere(request, _running_servers):
    """Nor is there a key that never expires on any server that a test, or its module, started.

    What such a server holds besides, under names of no queue, is the test's own affair.
    """
    if "start_server" in request.fixturenames:
        # Set up before this guard, so that its servers are there when the guard looks.
        request.getfixturevalue("start_server")
    yield
    leaked = leaks_of_all(open_servers() - {*_running_servers.values()})
    assert not leaked, f"keys without a time to live: {leaked}"


@pytest.fixture
async def _no_task_left_behind_in_loop():
    yield
    leftover = await leftover_tasks()
    assert not leftover, f"tasks still pending after the test: {leftover}"


@pytest.fixture(autouse=True)
def _no_task_left_behind(request):
    """After an async test, and after its fixtures have closed, its loop has no task pending."""
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("_no_task_left_behind_in_loop")
