"""What becomes of calls when the connection breaks, the server stops, pauses, loads or resigns.

Every scenario is run on both kinds of connection, and every one has limits of a few seconds at the
most: that none of them hangs is part of each promise.
"""

import asyncio
import time

import pytest
import redis

from chasquimq.broker.call import call, together
from chasquimq.broker.scripts import parse_script
from chasquimq.errors import (
    ConnectionFailedError,
    OutcomeUnknownError,
    ServerReplyError,
)
from tests.support.eventually import eventually
from tests.support.flavours import FLAVOURS, callers, connection, short_options
from tests.support.proxy import proxy_before
from tests.support.servers import free_port

SERVERS = ("valkey", "redis-8.6")


@pytest.fixture(params=SERVERS)
def own(request, start_server):
    return start_server(request.param)


@pytest.fixture
def valkey(start_server):
    return start_server("valkey")


@pytest.fixture
def proxy(own):
    with proxy_before(own.port) as made:
        yield made


@pytest.fixture(params=FLAVOURS)
async def dial(request):
    async with callers(request.param) as open_one:
        yield open_one


def echo(text):
    return call("ECHO", text, read=bytes.decode)


def increment(key="counter"):
    """Not to be sent twice."""
    return call("INCR", key, read=int, repeatable=False)


async def hits_the_wall(caller, *, within_s=5):
    """The error that a call ends with, in good time."""
    started = time.monotonic()
    with pytest.raises(ConnectionFailedError) as caught:
        await caller.run(echo("anyone?"))
    assert time.monotonic() - started < within_s
    return str(caught.value)


# --- the connection breaks while a call is under way


async def test_a_repeatable_call_whose_answer_was_lost_is_sent_again(proxy, dial):
    caller = dial(proxy.url)
    await caller.ready()
    proxy.cut_after(b"hello")
    assert await caller.run(echo("hello")) == "hello"
    assert proxy.count(b"hello") == 2
    assert proxy.connections == 2


async def test_a_repeatable_call_that_never_arrived_is_sent_again(proxy, dial):
    caller = dial(proxy.url)
    await caller.ready()
    proxy.cut_before(b"hello")
    assert await caller.run(echo("hello")) == "hello"


async def test_an_answer_that_broke_off_in_the_middle_is_no_answer(proxy, dial):
    caller = dial(proxy.url)
    await caller.ready()
    proxy.cut_after(b"hello", answer_bytes=7)
    assert await caller.run(echo("hello")) == "hello"
    assert proxy.count(b"hello") == 2


@pytest.mark.parametrize("arrives", [True, False], ids=["carried-out", "never-arrived"])
async def test_a_call_that_must_not_be_repeated_ends_with_outcome_unknown(
    own, proxy, dial, arrives
):
    caller = dial(proxy.url)
    await caller.ready()
    (proxy.cut_after if arrives else proxy.cut_before)(b"INCR")
    with pytest.raises(OutcomeUnknownError, match="may or may not have been carried out") as caught:
        await caller.run(increment())
    assert f"127.0.0.1:{proxy.port}" in str(caught.value)
    assert proxy.count(b"INCR") == 1
    assert own.client().get("counter") == (b"1" if arrives else None)
    assert await caller.run(increment()) == (2 if arrives else 1)


async def test_each_of_many_calls_under_way_ends_in_its_own_way(proxy):
    shared = connection(proxy.url)
    await shared.ready()
    proxy.hold_answers()
    repeatable = [asyncio.ensure_future(shared.run(echo(f"r{n}"))) for n in range(50)]
    others = [asyncio.ensure_future(shared.run(increment(f"o{n}"))) for n in range(50)]
    await eventually(lambda: proxy.count(b"INCR") == 50)
    proxy.cut()
    proxy.pass_answers()
    assert await asyncio.gather(*repeatable) == [f"r{n}" for n in range(50)]
    ends = await asyncio.gather(*others, return_exceptions=True)
    assert all(isinstance(end, OutcomeUnknownError) for end in ends)
    assert proxy.connections == 2
    assert proxy.count(b"INCR") == 50
    await shared.close()


async def test_a_call_that_had_not_left_yet_is_sent_again_whatever_it_is(own, proxy):
    shared = connection(proxy.url)
    await shared.ready()
    running = asyncio.ensure_future(shared.run(increment()))
    await asyncio.sleep(0)  # it waits for this turn's write
    shared._link.abort("broken in the same turn")  # noqa: SLF001 -- no network is that exact
    assert await running == 1
    assert own.client().get("counter") == b"1"
    await shared.close()


async def test_a_server_that_hung_up_on_an_idle_connection_is_noticed_before_the_next_call(
    own, dial
):
    caller = dial(own.url)
    await caller.ready()
    own.client().execute_command("CLIENT", "KILL", "TYPE", "normal")
    await caller.hears_something()
    assert await caller.run(increment()) == 1


async def test_a_call_that_breaks_every_connection_is_given_up_and_not_hammered(proxy, dial):
    caller = dial(proxy.url, short_options(patience_ms=700))
    await caller.ready()
    proxy.cut_after(b"poison", times=1_000)
    with pytest.raises(OutcomeUnknownError, match="may or may not"):
        await caller.run(echo("poison"))
    assert 3 <= proxy.count(b"poison") <= 10
    assert await caller.run(echo("innocent")) == "innocent"


# --- the server is gone


async def test_calls_go_on_when_the_server_was_killed_and_comes_back(own, dial):
    caller = dial(own.url)
    answers = []
    stop = asyncio.Event()

    async def keep_calling():
        while not stop.is_set():
            text = f"call {len(answers)}"
            answers.append(await caller.run(echo(text)) == text)

    calling = asyncio.ensure_future(keep_calling())
    await eventually(lambda: len(answers) > 10)
    own.kill()
    before = len(answers)
    own.restart()
    await eventually(lambda: len(answers) > before + 10)
    stop.set()
    await calling
    assert all(answers)


async def test_patience_ends_with_an_error_that_names_the_url_without_its_password(own, dial):
    own.client().execute_command("ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all")
    url = own.url.replace("redis://", "redis://app:s3cret@")
    caller = dial(url, short_options(patience_ms=300))
    await caller.ready()
    own.kill()
    await caller.hears_something()
    error = await hits_the_wall(caller, within_s=2)
    assert f"redis://app:***@127.0.0.1:{own.port}" in error
    assert "0.3 s" in error
    assert "refused" in error
    assert "s3cret" not in error + repr(caller)


async def test_a_call_that_was_sent_before_patience_ended_does_not_claim_it_was_not(proxy, dial):
    caller = dial(proxy.url, short_options(patience_ms=300))
    await caller.ready()
    proxy.hold_answers()
    running = asyncio.ensure_future(caller.run(echo("in doubt")))
    await eventually(lambda: proxy.count(b"in doubt"))
    proxy.refuse()
    with pytest.raises(OutcomeUnknownError, match="since then: no connection to"):
        await running


async def test_attempts_are_counted_where_a_limit_is_set(proxy, dial):
    caller = dial(proxy.url, short_options(reconnect_max_attempts=3))
    await caller.ready()
    proxy.greet(b"-ERR not now\r\n")
    proxy.cut()
    await caller.hears_something()
    error = await hits_the_wall(caller)
    assert "ERR not now" in error
    assert proxy.connections == 1 + 3


async def test_a_first_connection_that_is_refused_fails_at_once_with_the_remedy(dial):
    url = f"redis://127.0.0.1:{free_port()}"
    error = await hits_the_wall(dial(url), within_s=3)
    assert error.startswith(f"redis: cannot connect to {url}: the connection was refused")
    assert "redis_url" in error
    assert "CHASQUI_REDIS_URL" in error
    assert "embedded://" in error


async def test_a_socket_path_that_is_not_there_fails_at_once(dial, tmp_path):
    error = await hits_the_wall(dial(f"unix://{tmp_path}/none.sock"), within_s=3)
    assert "none.sock" in error
    assert "No such file" in error


async def test_a_host_name_that_does_not_exist_fails_with_its_name(dial):
    error = await hits_the_wall(dial("redis://no-such-host.invalid"))
    assert "no-such-host.invalid" in error


# --- the server is there and silent


async def test_a_silent_server_costs_a_call_no_more_than_the_response_deadline(proxy, dial):
    caller = dial(proxy.url, short_options(response_timeout_ms=150))
    await caller.ready()
    proxy.hold_answers()
    started = time.monotonic()
    with pytest.raises(OutcomeUnknownError, match=r"no reply within 0\.15 s"):
        await caller.run(increment())
    assert 0.15 <= time.monotonic() - started < 1.5


async def test_a_silent_server_costs_a_repeatable_call_no_more_than_its_patience(proxy, dial):
    options = short_options(response_timeout_ms=100, connect_timeout_ms=150, patience_ms=500)
    caller = dial(proxy.url, options)
    await caller.ready()
    proxy.hold_answers()
    started = time.monotonic()
    with pytest.raises(OutcomeUnknownError):
        await caller.run(echo("anyone?"))
    assert time.monotonic() - started < 2


async def test_a_server_silent_from_the_start_fails_within_the_connect_timeout(proxy, dial):
    proxy.hold_answers()
    caller = dial(proxy.url, short_options(connect_timeout_ms=150))
    error = await hits_the_wall(caller, within_s=2)
    assert "0.15 s" in error


async def test_a_read_that_blocks_on_purpose_may_take_longer_than_the_response_deadline(own, dial):
    caller = dial(own.url, short_options(response_timeout_ms=100))
    blocked = call("BLPOP", "nothing", 0.4, read=lambda reply: reply, block_ms=400)
    assert await caller.run(blocked) is None


async def test_a_read_that_blocks_on_purpose_has_a_deadline_of_its_own(proxy, dial):
    caller = dial(proxy.url, short_options(response_timeout_ms=100, patience_ms=200))
    await caller.ready()
    proxy.hold_answers()
    blocked = call("BLPOP", "k", 0.2, read=list, repeatable=False, block_ms=200)
    started = time.monotonic()
    with pytest.raises(OutcomeUnknownError, match="no reply within"):
        await caller.run(blocked)
    assert 0.3 <= time.monotonic() - started < 2


async def test_calls_behind_a_blocked_read_are_not_taken_for_a_silent_server(own):
    shared = connection(own.url, short_options(response_timeout_ms=150))
    await shared.ready()
    blocked = call("BLPOP", "nothing", 0.5, read=lambda reply: reply, block_ms=500)
    answers = await asyncio.gather(shared.run(blocked), shared.run(increment()))
    assert answers == [None, 1]
    assert shared.reconnects == 0
    await shared.close()


async def test_a_stopped_process_is_waited_for(own, proxy, dial):
    caller = dial(proxy.url, short_options(response_timeout_ms=150, connect_timeout_ms=150))
    await caller.ready()
    own.pause()
    running = asyncio.ensure_future(caller.run(echo("wake up")))
    await eventually(lambda: proxy.connections >= 3)  # the next ones hang in the handshake
    own.resume()
    assert await running == "wake up"


async def test_a_server_that_pauses_its_clients_is_waited_for(own, dial):
    caller = dial(own.url, short_options(response_timeout_ms=100, connect_timeout_ms=100))
    await caller.ready()
    own.client().execute_command("CLIENT", "PAUSE", 400, "ALL")
    assert await caller.run(call("SET", "k", "v", read=bytes.decode)) == "OK"


# --- the server has lost its scripts


BUMP = [
    parse_script(f"bump{n}", f"-- KEYS counter\nreturn redis.call('INCRBY', counter, {n})\n")
    for n in (1, 10, 100)
]


def bump(script):
    return script.call({"counter": "counter"}, {}, read=int)


async def test_a_flushed_script_is_loaded_again_and_runs_once(own, dial):
    caller = dial(own.url)
    for expected in (1, 2, 3):
        own.client().script_flush()
        assert await caller.run(bump(BUMP[0])) == expected


async def test_each_script_of_a_pipeline_runs_exactly_once_whichever_were_flushed(own, dial):
    caller = dial(own.url)
    one, ten, hundred = map(bump, BUMP)
    own.client().script_flush()
    await caller.run(ten)  # known again; the others are not
    answers = await caller.run(together([one, ten, hundred, ten, one]))
    assert sorted(answers) == sorted(set(answers))
    assert own.client().get("counter") == b"%d" % (10 + 1 + 10 + 100 + 10 + 1)


async def test_a_break_while_scripts_are_loaded_does_not_run_them_twice(own, proxy, dial):
    caller = dial(proxy.url)
    await caller.ready()
    proxy.cut_before(b"SCRIPT")
    proxy.cut_after(b"SCRIPT")
    assert await caller.run(bump(BUMP[0])) == 1
    assert proxy.count(b"SCRIPT") == 2
    assert own.client().get("counter") == b"1"


async def test_a_server_that_will_not_load_scripts_says_so_at_once(own, dial):
    own.client().execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-script")
    caller = dial(own.url.replace("redis://", "redis://app:pw@"))
    started = time.monotonic()
    with pytest.raises(ServerReplyError, match="NOPERM"):
        await caller.run(bump(BUMP[0]))
    assert time.monotonic() - started < 3


# --- the server is there and cannot serve


@pytest.fixture
def loading(start_server):
    """A server, and `reload()`, which begins to load its data, slowly, and returns meanwhile."""
    own = start_server("redis-8.6", "--enable-debug-command", "yes")
    raw = own.client()
    raw.execute_command("DEBUG", "POPULATE", 3_000)
    raw.config_set("key-load-delay", 150)
    raw.config_set("loading-process-events-interval-bytes", 1_024)

    async def reload():
        finished = asyncio.ensure_future(asyncio.to_thread(raw.execute_command, "DEBUG", "RELOAD"))
        with redis.Redis(port=own.port) as probe:
            await eventually(lambda: probe.info("persistence")["loading"])
        return finished

    return own, reload


async def test_a_server_that_loads_its_data_is_waited_for(loading, dial):
    own, reload = loading
    caller = dial(own.url)
    await caller.ready()
    reloading = await reload()
    assert await caller.run(increment()) == 1
    await reloading


async def test_a_first_connection_waits_for_a_server_that_loads_and_learns_what_it_can_do(
    loading, dial
):
    own, reload = loading
    reloading = await reload()
    info = await dial(own.url).ready()
    assert (info.has_xackdel, info.has_claim, info.has_idmp) == (True, True, True)
    await reloading


async def test_a_primary_that_was_demoted_is_waited_for_until_it_is_promoted_again(
    own, proxy, dial
):
    caller = dial(proxy.url)
    await caller.ready()
    own.client().replicaof("127.0.0.1", "1")
    running = asyncio.ensure_future(caller.run(increment()))
    await eventually(lambda: proxy.connections >= 3)
    assert proxy.count(b"INCR") == 1
    own.client().replicaof("NO", "ONE")
    assert await running == 1


async def test_a_blocked_read_survives_the_demotion_of_its_server(own, proxy, dial):
    caller = dial(proxy.url)
    await caller.ready()
    blocked = call("BLPOP", "list", 5, read=lambda reply: reply[1], block_ms=5_000)
    running = asyncio.ensure_future(caller.run(blocked))
    await eventually(lambda: own.client().info("clients")["blocked_clients"])
    own.client().replicaof("127.0.0.1", "1")
    await eventually(lambda: proxy.connections >= 2)
    own.client().replicaof("NO", "ONE")
    own.client().rpush("list", "there")
    assert await running == b"there"


async def test_a_script_on_a_demoted_server_runs_once_when_it_is_promoted_again(start_server, dial):
    old = start_server("redis-6.2")  # before 7.0 the refusal is inside an error of the script
    with proxy_before(old.port) as proxy:
        caller = dial(proxy.url)
        await caller.run(bump(BUMP[0]))
        old.client().replicaof("127.0.0.1", "1")
        running = asyncio.ensure_future(caller.run(bump(BUMP[0])))
        await eventually(lambda: proxy.connections >= 2)
        old.client().replicaof("NO", "ONE")
        assert await running == 2


async def test_a_primary_without_enough_replicas_is_waited_for(own, proxy, dial):
    caller = dial(proxy.url)
    await caller.ready()
    own.client().config_set("min-replicas-to-write", 1)
    running = asyncio.ensure_future(caller.run(increment()))
    await eventually(lambda: proxy.count(b"INCR") >= 2)
    own.client().config_set("min-replicas-to-write", 0)
    assert await running == 1


async def test_what_a_server_keeps_refusing_is_the_last_problem_when_patience_ends(own, dial):
    caller = dial(own.url, short_options(patience_ms=200))
    await caller.ready()
    own.client().config_set("min-replicas-to-write", 1)
    with pytest.raises(ConnectionFailedError, match="NOREPLICAS"):
        await caller.run(increment())


async def test_a_first_connection_to_a_replica_is_refused_with_the_reason(own, dial):
    own.client().replicaof("127.0.0.1", "1")
    error = await hits_the_wall(dial(own.url), within_s=3)
    assert "is a replica: name its primary or its sentinels" in error
