"""What only the blocking twin meets: threads, forks, signals in the middle of a call."""

import signal
import socket
import subprocess
import sys
import threading

import pytest

from chasquimq.broker.call import call
from chasquimq.errors import ConnectionFailedError, ShutdownError
from tests.support.eventually import eventually_sync
from tests.support.flavours import blocking_connection, short_options
from tests.support.proxy import proxy_before

pytestmark = pytest.mark.servers("valkey")


def echo(text):
    return call("ECHO", text, read=bytes.decode)


@pytest.fixture
def proxy(server):
    with proxy_before(server.port) as made:
        yield made


class Background:
    """A call in another thread, and how it ended."""

    def __init__(self, work):
        self.answer = self.error = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.answer = self._work()
        except Exception as error:  # noqa: BLE001 -- told to the test
            self.error = error

    def join(self, timeout=5):
        self._thread.join(timeout)
        assert not self._thread.is_alive()
        return self


def test_closing_in_one_thread_wakes_a_call_that_waits_in_another(proxy):
    shared = blocking_connection(proxy.url, short_options(response_timeout_ms=60_000))
    shared.ready()
    proxy.hold_answers()
    waiting = Background(lambda: shared.run(echo("never answered")))
    eventually_sync(lambda: proxy.count(b"never answered"))
    shared.close()
    assert isinstance(waiting.join().error, ShutdownError)
    proxy.pass_answers()


def test_closing_in_one_thread_wakes_an_opening_in_another(proxy):
    shared = blocking_connection(proxy.url, short_options(connect_timeout_ms=60_000))
    proxy.hold_answers()
    waiting = Background(shared.ready)
    eventually_sync(lambda: proxy.count(b"SETNAME"))
    shared.close()
    assert isinstance(waiting.join().error, ShutdownError)
    proxy.pass_answers()


def test_closing_in_one_thread_wakes_a_socket_that_is_being_opened_in_another():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"redis://127.0.0.1:{full.getsockname()[1]}"
        fillers = [socket.socket() for _ in range(2)]  # the backlog: later ones are not answered
        for filler in fillers:
            filler.settimeout(0)
            filler.connect_ex(full.getsockname())
        options = short_options(connect_timeout_ms=60_000, patience_ms=60_000)
        shared = blocking_connection(url, options)
        waiting = Background(shared.ready)
        eventually_sync(lambda: shared._links)  # noqa: SLF001 -- nothing outside shows a socket that waits
        shared.close()
        assert isinstance(waiting.join().error, ShutdownError)
        for filler in fillers:
            filler.close()


def test_a_thread_does_not_wait_longer_for_its_turn_than_a_call_may_take(proxy):
    shared = blocking_connection(proxy.url, short_options(patience_ms=300))
    shared.ready()
    proxy.hold_answers()
    first = Background(lambda: shared.run(call("ECHO", "1", read=bytes, block_ms=60_000)))
    eventually_sync(lambda: proxy.count(b"ECHO"))
    with pytest.raises(ConnectionFailedError, match=r"within 0\.3 s"):
        shared.run(echo("2"))
    proxy.pass_answers()
    assert first.join().answer == b"1"
    shared.close()


def test_after_a_close_calls_are_possible_again_once_it_is_reopened(server):
    shared = blocking_connection(server.url)
    shared.ready()
    shared.close()
    with pytest.raises(ShutdownError):
        shared.run(echo("too early"))
    shared.reopen()
    assert shared.run(echo("again")) == "again"
    shared.close()


class Interrupted(Exception):  # noqa: N818 -- what a signal handler may raise, a time limit say
    pass


def test_a_call_cut_short_by_a_signal_does_not_leave_its_answer_to_the_next(proxy):
    shared = blocking_connection(proxy.url)
    shared.ready()

    main = threading.get_ident()

    def interrupt(*_):
        raise Interrupted

    def send_signal():
        eventually_sync(lambda: proxy.count(b"first"))
        signal.pthread_kill(main, signal.SIGUSR1)

    earlier = signal.signal(signal.SIGUSR1, interrupt)
    proxy.hold_answers()
    try:
        helper = threading.Thread(target=send_signal)
        helper.start()
        with pytest.raises(Interrupted):
            shared.run(echo("first"))
        helper.join()
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    proxy.pass_answers()
    assert shared.run(echo("second")) == "second"
    shared.close()


FORK = """
import os, sys, threading
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import call
from chasquimq.broker.options import ConnectionOptions
from chasquimq.broker.url import parse_url

def client_id(connection):
    return connection.run(call("CLIENT", "ID", read=int))

shared = BlockingConnection(parse_url(sys.argv[1]), ConnectionOptions(), slot_key=b"{fork}")
before = client_id(shared)

# Another thread is in the middle of a call, and so holds the lock, when the fork happens.
busy = threading.Thread(
    target=lambda: shared.run(call("BLPOP", "{fork}nothing", 1, read=bool, block_ms=1_000))
)
busy.start()
while not shared._lock.locked():
    pass
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, str(client_id(shared)).encode())
    os._exit(0)
childs = int(os.read(read, 100))
os.wait()
busy.join()
after = client_id(shared)
print(before == after, childs != before)
"""


def test_a_forked_child_opens_its_own_socket_even_if_a_thread_was_in_a_call(server):
    done = subprocess.run(
        [sys.executable, "-c", FORK, server.url],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")


FORKED_QUEUE = """
import os, sys
from chasquimq import SyncQueue

queue = SyncQueue(sys.argv[2], redis_url=sys.argv[1])
queue.add_bulk([{"name": "before the fork", "data": 0}])
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        for _ in range(20):
            queue.add_bulk([{"name": "child", "data": number}] * 2)
        queue.close()
        os._exit(0)
    children.append(child)
for _ in range(20):
    queue.add_bulk([{"name": "parent", "data": -1}] * 2)
for child in children:
    os.waitpid(child, 0)
print(queue.counts().waiting)
queue.close()
"""


def test_no_job_is_lost_when_a_queue_is_used_on_both_sides_of_a_fork(server, queue_name):
    done = subprocess.run(
        [sys.executable, "-c", FORKED_QUEUE, server.url, queue_name],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{1 + 4 * 20 * 2}\n", "")
