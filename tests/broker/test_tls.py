"""TLS against a real server, with certificates made for the occasion.

Of the servers that the suite knows only Debian's build of Redis 7.0 speaks TLS.
"""

import asyncio
import ssl
from dataclasses import dataclass

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from chasquimq import Queue, Worker
from chasquimq.broker.call import call, together
from chasquimq.errors import ConnectionFailedError
from tests.support.eventually import eventually
from tests.support.flavours import FLAVOURS, callers, short_options
from tests.support.servers import free_port

SERVER = "redis-7.0"


@pytest.fixture(params=FLAVOURS)
async def dial(request):
    async with callers(request.param) as open_one:
        yield open_one


@dataclass(frozen=True)
class Papers:
    """Files that a client may show or trust."""

    ca: str
    stranger_ca: str
    certificate: str
    key: str
    locked_key: str


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def papers(authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "stranger.pem")
    client = authority.issue_cert("client@example.org")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    client.private_key_pem.write_to_path(folder / "client.key")
    private = serialization.load_pem_private_key(client.private_key_pem.bytes(), password=None)
    (folder / "locked.key").write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.BestAvailableEncryption(b"a password"),
        )
    )
    names = ("ca.pem", "stranger.pem", "client.pem", "client.key", "locked.key")
    return Papers(*(str(folder / name) for name in names))


@pytest.fixture
def start_tls(start_server, authority, papers, tmp_path):
    """`start_tls(ask_for_certificate="yes")`; gives the server and its port for TLS."""

    def start(ask_for_certificate="no"):
        issued = authority.issue_cert("localhost")
        certificate, key, port = tmp_path / "s.pem", tmp_path / "s.key", free_port()
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        own = start_server(
            SERVER,
            *("--tls-port", str(port), "--tls-ca-cert-file", papers.ca),
            *("--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
            *("--tls-auth-clients", ask_for_certificate),
        )
        return own, port

    return start


def url(port, host="localhost", **options):
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"rediss://{host}:{port}?{query}"


def ping():
    return call("PING", read=bytes.decode)


async def refusal(caller):
    with pytest.raises(ConnectionFailedError) as caught:
        await caller.ready()
    return str(caught.value)


async def test_a_certificate_of_an_unknown_authority_is_refused_with_the_remedies(start_tls, dial):
    _, port = start_tls()
    error = await refusal(dial(url(port)))
    assert "its certificate is not trusted" in error
    assert "ssl_ca_certs" in error
    assert "ssl_cert_reqs=none" in error


async def test_the_authority_may_be_named_in_the_url(start_tls, dial, papers):
    _, port = start_tls()
    assert await dial(url(port, ssl_ca_certs=papers.ca)).run(ping()) == "PONG"


async def test_another_authority_than_the_named_one_is_not_trusted(start_tls, dial, papers):
    _, port = start_tls()
    error = await refusal(dial(url(port, ssl_ca_certs=papers.stranger_ca)))
    assert "its certificate is not trusted" in error


async def test_a_certificate_for_another_name_is_refused_with_that_name(start_tls, dial, papers):
    _, port = start_tls()
    error = await refusal(dial(url(port, "127.0.0.1", ssl_ca_certs=papers.ca)))
    assert "127.0.0.1" in error
    assert "ssl_server_name" in error


@pytest.mark.parametrize(
    "option", [{"ssl_server_name": "localhost"}, {"ssl_check_hostname": "false"}]
)
async def test_the_name_in_the_certificate_may_be_given_or_left_unchecked(
    start_tls, dial, papers, option
):
    _, port = start_tls()
    caller = dial(url(port, "127.0.0.1", ssl_ca_certs=papers.ca, **option))
    assert await caller.run(ping()) == "PONG"


@pytest.mark.parametrize(
    ("options", "name"), [({}, "localhost"), ({"ssl_server_name": "queue.test"}, "queue.test")]
)
async def test_a_server_that_has_many_names_is_told_which_one_is_meant(
    authority, dial, papers, options, name
):
    """SNI, as a proxy before several servers needs it. This one notes the name and hangs up."""
    told = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "queue.test").configure_cert(context)
    context.sni_callback = lambda _, name, __: told.append(name)

    async def hang_up(_, writer):
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        await refusal(dial(url(port, ssl_ca_certs=papers.ca, **options)))
    assert set(told) == {name}


async def test_the_check_can_be_turned_off(start_tls, dial):
    _, port = start_tls()
    assert await dial(url(port, "127.0.0.1", ssl_cert_reqs="none")).run(ping()) == "PONG"


async def test_a_server_that_asks_for_a_certificate_is_shown_ours(start_tls, dial, papers):
    _, port = start_tls(ask_for_certificate="yes")
    shown = {"ssl_certfile": papers.certificate, "ssl_keyfile": papers.key}
    assert await dial(url(port, ssl_ca_certs=papers.ca, **shown)).run(ping()) == "PONG"


async def test_a_server_that_asks_for_a_certificate_refuses_one_who_has_none(
    start_tls, dial, papers
):
    _, port = start_tls(ask_for_certificate="yes")
    error = await refusal(dial(url(port, ssl_ca_certs=papers.ca)))
    # The server hangs up at once, and whether its alert arrives before that is a matter of luck.
    assert "certificate required" in error or "name ours with ssl_certfile" in error


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
async def test_a_file_that_cannot_be_read_is_named_with_its_option(
    start_tls, dial, tmp_path, option
):
    _, port = start_tls()
    missing = tmp_path / "missing.pem"
    error = await refusal(dial(url(port, **{option: missing})))
    assert option in error
    assert str(missing) in error


async def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(
    start_tls, dial, papers
):
    _, port = start_tls()
    shown = {"ssl_certfile": papers.certificate, "ssl_keyfile": papers.locked_key}
    error = await refusal(dial(url(port, **shown)))
    assert "unencrypted" in error


async def test_a_plain_server_behind_a_tls_url_is_named_as_such(start_tls, dial):
    own, _ = start_tls()
    caller = dial(url(own.port), short_options(connect_timeout_ms=300))
    assert "if it is a plain server, use redis://" in await refusal(caller)


async def test_a_tls_server_behind_a_plain_url_is_named_as_such(start_tls, dial):
    _, port = start_tls()
    error = await refusal(dial(f"redis://localhost:{port}"))
    assert "if it wants TLS, use rediss://" in error


async def test_a_tls_connection_that_the_server_dropped_while_idle_is_noticed(
    start_tls, dial, papers
):
    own, port = start_tls()
    caller = dial(url(port, ssl_ca_certs=papers.ca))
    await caller.ready()
    own.client().execute_command("CLIENT", "KILL", "TYPE", "normal")
    await caller.hears_something()
    assert await caller.run(call("INCR", "counter", read=int, repeatable=False)) == 1


async def test_a_pipeline_larger_than_any_buffer_passes_through_tls(start_tls, dial, papers):
    _, port = start_tls()
    block = "x" * 1_000
    calls = [call("ECHO", f"{n}{block}", read=bytes.decode) for n in range(5_000)]
    answers = await dial(url(port, ssl_ca_certs=papers.ca)).run(together(calls))
    assert [answer.removesuffix(block) for answer in answers] == [str(n) for n in range(5_000)]


async def test_a_queue_and_a_worker_work_over_tls(start_tls, papers, queue_name):
    _, port = start_tls()
    plain = f"redis://localhost:{port}?ssl_ca_certs={papers.ca}"
    done = []

    async def handler(job):
        done.append(job.data)

    worker = Worker(queue_name, handler, redis_url=plain, tls=True, handle_signals=False)
    running = asyncio.ensure_future(worker.run())
    async with Queue(queue_name, redis_url=plain, tls=True) as queue:
        await queue.add_bulk([{"name": "work", "data": number} for number in range(20)])
        await eventually(lambda: len(done) == 20)
    await worker.close()
    await running
    assert sorted(done) == list(range(20))
