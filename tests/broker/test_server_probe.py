"""What a connection learns about its server, how it logs in, and what it never tells anybody."""

import asyncio
import logging

import pytest

from chasquimq import Queue
from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import call
from chasquimq.broker.url import parse_url
from chasquimq.errors import ConnectionFailedError, RedisError, ServerTooOldError
from tests.support.eventually import eventually
from tests.support.flavours import FLAVOURS, SLOT_KEY, blocking_connection, callers, short_options
from tests.support.proxy import proxy_before

SECRET = "s3cret-Paßwort"  # noqa: S105 -- of servers that live as long as a test


@pytest.fixture(params=FLAVOURS)
async def dial(request):
    async with callers(request.param) as open_one:
        yield open_one


@pytest.fixture
def own(start_server):
    """A server of the test's own, with a user `app` besides the open default one."""
    made = start_server("valkey")
    made.client().execute_command("ACL", "SETUSER", "app", "on", f">{SECRET}", "~*", "+@all")
    return made


def closed_to_strangers(server):
    server.client().config_set("requirepass", SECRET)
    return server


def whoami():
    return call("ACL", "WHOAMI", read=bytes.decode)


def as_user(url, user, password="s3cret-Pa%C3%9Fwort"):  # noqa: S107 -- of the test's own server
    return url.replace("redis://", f"redis://{user}:{password}@")


# --- what the server can do


async def test_the_modern_commands_are_found_where_they_are_and_only_there(server, dial):
    info = await dial(server.url).ready()
    found = (info.has_xackdel, info.has_claim, info.has_idmp)
    assert found == (server.is_modern,) * 3


async def test_a_server_tells_its_name_version_role_and_the_number_of_the_connection(server, dial):
    caller = dial(server.url)
    info = await caller.ready()
    assert info.product == server.name.partition("-")[0]
    assert info.version[:2] == server.version
    assert info.is_primary
    assert info.eviction_policy == "noeviction"
    assert info.client_id == await caller.run(call("CLIENT", "ID", read=int))
    assert str(info).startswith(f"{info.product} {server.version[0]}.")


async def test_asking_what_the_server_can_do_leaves_no_key(server, dial, queue_name):
    slot_key = f"{{chasqui:{queue_name}}}".encode()
    await dial(server.url, slot_key=slot_key).ready()
    assert server.client().keys("*probe*") == []


class OldServer(asyncio.Protocol):
    """Answers `INFO` as an old server would, and nothing else.

    A fake, and the only one: no server that old can be had as a binary.
    """

    facts = ""

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        for request in data.split(b"*")[1:]:
            if b"INFO" in request:
                text = self.facts.encode()
                self._transport.write(b"$%d\r\n%b\r\n" % (len(text), text))
            else:
                self._transport.write(b"-ERR unknown command\r\n")


@pytest.mark.parametrize(
    ("facts", "shown", "needed"),
    [
        ("redis_version:6.0.20\r\n", "redis 6.0.20", "redis 6.2 or newer"),
        ("redis_version:7.2.4\r\nvalkey_version:7.1.0\r\n", "valkey 7.1.0", "valkey 7.2 or newer"),
    ],
    ids=["redis", "valkey"],
)
async def test_a_server_that_is_too_old_is_refused_with_what_is_needed(dial, facts, shown, needed):
    loop = asyncio.get_running_loop()
    old = type("Old", (OldServer,), {"facts": facts})
    listener = await loop.create_server(old, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    with pytest.raises(ServerTooOldError) as caught:
        await dial(url).ready()
    assert f"the server is {shown}" in str(caught.value)
    assert needed in str(caught.value)
    assert "upgrade" in str(caught.value)
    listener.close()


async def test_a_server_that_evicts_is_warned_about_once_however_many_connections_there_are(
    own, dial, caplog
):
    own.client().config_set("maxmemory-policy", "allkeys-lru")
    for _ in range(3):
        await dial(own.url).ready()
    [warning] = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "allkeys-lru" in warning.getMessage()
    assert "noeviction" in warning.getMessage()
    assert own.url in warning.getMessage()


async def test_a_server_that_does_not_evict_is_not_warned_about(own, dial, caplog):
    await dial(own.url).ready()
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_user_who_may_not_ask_for_facts_can_still_work(own, dial):
    own.client().execute_command("ACL", "SETUSER", "app", "-info", "-client")
    info = await dial(as_user(own.url, "app")).ready()
    assert str(info) == "redis (version hidden)"
    assert info.is_primary


# --- who we are


async def test_a_missing_password_is_named_as_the_problem(own, dial):
    with pytest.raises(
        ConnectionFailedError, match="wants a password and none was given"
    ) as caught:
        await dial(closed_to_strangers(own).url).ready()
    assert ":password@" in str(caught.value)
    assert "credential_provider" in str(caught.value)


@pytest.mark.parametrize("user", ["", "app"])
async def test_a_wrong_password_is_named_as_the_problem_and_not_shown(own, dial, user):
    url = as_user(closed_to_strangers(own).url, user, "wr0ng")
    with pytest.raises(ConnectionFailedError, match=r"refused the login: WRONGPASS") as caught:
        await dial(url).ready()
    assert "wr0ng" not in str(caught.value)
    assert "***" in str(caught.value)
    assert "disabled: check user and password" in str(caught.value)


async def test_the_password_of_the_url_logs_in_the_default_user(own, dial):
    caller = dial(as_user(closed_to_strangers(own).url, ""))
    assert await caller.run(whoami()) == "default"


async def test_the_user_and_password_of_the_url_log_in_that_user(own, dial):
    caller = dial(as_user(closed_to_strangers(own).url, "app"))
    assert await caller.run(whoami()) == "app"


async def test_a_user_and_password_work_over_a_unix_socket(own, dial):
    url = own.socket_url.replace("unix://", "unix://app:s3cret-Pa%C3%9Fwort@")
    assert await dial(url).run(whoami()) == "app"


# --- credentials that are asked for


class Provider:
    """A credential provider that notes what it was asked."""

    def __init__(self, *answers):
        self.asked = []
        self._answers = answers or (("app", SECRET),)

    async def __call__(self, endpoint):
        self.asked.append(endpoint)
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


async def test_a_provider_is_asked_before_every_login_reconnects_too(own, dial):
    provider = Provider()
    with proxy_before(closed_to_strangers(own).port) as proxy:
        caller = dial(proxy.url, short_options(credential_provider=provider))
        assert await caller.run(whoami()) == "app"
        proxy.cut()
        assert await caller.run(whoami()) == "app"
        assert provider.asked == [f"127.0.0.1:{proxy.port}"] * 2


async def test_a_provider_is_told_none_where_there_is_no_host(own, dial):
    provider = Provider()
    caller = dial(own.socket_url, short_options(credential_provider=provider))
    assert await caller.run(whoami()) == "app"
    assert provider.asked == [None]


async def test_a_provider_outranks_what_the_url_says(own, dial):
    url = as_user(own.url, "somebody", "else")
    caller = dial(url, short_options(credential_provider=Provider()))
    assert await caller.run(whoami()) == "app"


async def test_a_provider_may_say_that_no_login_is_needed(own, dial):
    caller = dial(own.url, short_options(credential_provider=Provider((None, None))))
    assert await caller.run(whoami()) == "default"


async def test_a_password_that_was_changed_is_fetched_anew_after_a_break(own, dial):
    provider = Provider(("app", SECRET), ("app", "old"), ("app", "renewed"))
    with proxy_before(own.port) as proxy:
        caller = dial(proxy.url, short_options(credential_provider=provider))
        await caller.ready()
        own.client().execute_command("ACL", "SETUSER", "app", "resetpass", ">renewed")
        proxy.cut()
        assert await caller.run(whoami()) == "app"
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ValueError("the vault is shut"), "credential_provider failed: ValueError: the vault is"),
        (asyncio.CancelledError(), "credential_provider failed: CancelledError"),
        ("app:" + SECRET, r"credential_provider returned a str: return \(user, password\)"),
        (("app", SECRET, "x"), "credential_provider returned a tuple: return"),
        (("app", SECRET.encode()), "credential_provider must return text or None"),
        (("app", None), "credential_provider returned a user without a password"),
    ],
    ids=["raises", "cancelled", "text", "three", "bytes", "user-only"],
)
async def test_what_is_wrong_with_a_provider_is_said_without_what_it_returned(
    own, dial, answer, problem
):
    caller = dial(own.url, short_options(credential_provider=Provider(answer)))
    with pytest.raises(ConnectionFailedError, match=problem) as caught:
        await caller.ready()
    assert SECRET not in str(caught.value)


async def test_a_provider_that_does_not_answer_is_not_waited_for(own, dial):
    async def never(_):
        await asyncio.Event().wait()

    caller = dial(own.url, short_options(credential_provider=never, connect_timeout_ms=100))
    with pytest.raises(ConnectionFailedError, match=r"credential_provider took more than 0\.1 s"):
        await caller.ready()


async def test_a_blocking_connection_asks_on_the_loop_that_the_provider_belongs_to(own):
    loops = []

    async def provider(_):
        loops.append(asyncio.get_running_loop())
        return "app", SECRET

    mine = asyncio.get_running_loop()
    options = short_options(credential_provider=provider)
    shared = BlockingConnection(parse_url(own.url), options, slot_key=SLOT_KEY, loop=mine)
    assert await asyncio.to_thread(shared.run, whoami()) == "app"
    assert loops == [mine]
    shared.close()


async def test_a_blocking_connection_says_so_when_the_task_that_asks_is_cancelled(own):
    async def provider(_):
        asyncio.current_task().cancel()  # as a loop that ends does to all its tasks
        await asyncio.sleep(0)

    options = short_options(credential_provider=provider, reconnect_max_attempts=1)
    for loop in (asyncio.get_running_loop(), None):
        shared = BlockingConnection(parse_url(own.url), options, slot_key=SLOT_KEY, loop=loop)
        with pytest.raises(ConnectionFailedError, match="credential_provider was cancelled"):
            await asyncio.to_thread(shared.run, whoami())
        shared.close()


async def test_a_blocking_connection_can_ask_even_in_a_thread_that_runs_a_loop(own):
    shared = blocking_connection(own.url, short_options(credential_provider=Provider()))
    assert shared.run(whoami()) == "app"  # on the loop's own thread, as a careless user would
    shared.close()


# --- what is never told


async def test_no_password_is_ever_in_a_log_a_repr_or_an_error(own, dial, caplog, queue_name):
    caplog.set_level(logging.DEBUG)
    told = []
    with proxy_before(closed_to_strangers(own).port) as proxy:
        options = short_options(patience_ms=200)
        for url in (as_user(proxy.url, "app"), as_user(proxy.url, "app", SECRET + "wrong")):
            caller = dial(url, options)
            for upset in (proxy.cut, proxy.refuse, proxy.accept):
                upset()
                try:
                    await caller.run(whoami())
                except RedisError as error:
                    told += [str(error), repr(error), repr(error.__cause__)]
                told.append(repr(caller))
        queue = Queue(queue_name, redis_url=as_user(proxy.url, "app"))
        told.append(repr(queue))
    told += [record.getMessage() for record in caplog.records]
    told += [str(record.__dict__) for record in caplog.records]
    assert len(told) > 10
    assert [text for text in told if SECRET in text or "s3cret" in text] == []


async def test_a_password_that_a_server_repeats_is_not_passed_on(start_server, dial):
    own = start_server("valkey", "--rename-command", "AUTH", "ENTER")
    reply = await asyncio.to_thread(raw_reply, own, "AUTH", "app", SECRET)
    assert SECRET in reply  # or the test would prove nothing
    with pytest.raises(ConnectionFailedError, match="refused the login") as caught:
        await dial(as_user(own.url, "app")).ready()
    assert SECRET not in str(caught.value)
    assert "***" in str(caught.value)


def raw_reply(own, *words):
    try:
        return str(own.client().execute_command(*words))
    except Exception as error:  # noqa: BLE001 -- its text is the reply
        return str(error)


async def test_a_connection_shows_in_the_servers_list_under_its_name(own, dial):
    await dial(own.url).ready()
    names = [client["name"] for client in own.client().client_list()]
    await eventually(lambda: "chasquimq" in names)
