"""What a `redis_url` may say, what it may not, and that no password is ever repeated."""

# ruff: noqa: S106 -- passwords are the subject

import dataclasses
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chasquimq.broker.url import (
    DEFAULT_URL,
    URL_VARIABLE,
    Address,
    Target,
    TargetKind,
    TlsSettings,
    parse_url,
)

SECRET = "S3cr3t"  # noqa: S105 -- what must never be seen

LOCAL = Target(TargetKind.TCP, addresses=(Address("127.0.0.1", 6379),))


def tcp(host: str = "h", port: int = 6379, **fields: object) -> Target:
    """A target of one server."""
    return dataclasses.replace(
        Target(TargetKind.TCP, addresses=(Address(host, port),)),
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", tcp()),
        ("redis://h/", tcp()),
        ("REDIS://h:7000/3", tcp(port=7000, database=3)),
        ("redis://h?db=3", tcp(database=3)),
        ("redis://h/3?db=3", tcp(database=3)),
        ("  redis://h\n", tcp()),
        ("h", tcp()),
        ("h:7000/3", tcp(port=7000, database=3)),
        ("redis:6379", tcp("redis")),
        ("valkey://h", tcp()),
        ("valkeys://h", tcp(tls=TlsSettings())),
        ("rediss://h", tcp(tls=TlsSettings())),
        ("redis://[::1]", tcp("::1")),
        ("redis://[::1]:7000/1", tcp("::1", 7000, database=1)),
        ("redis://[fe80::1%25eth0]:7000", tcp("fe80::1%eth0", 7000)),
        ("redis://bücher.example", tcp("bücher.example")),
        ("redis://ada:pw@h", tcp(username="ada", password="pw")),
        ("redis://:pw@h", tcp(password="pw")),
        ("redis://:p@w@h", tcp(password="p@w")),
        ("redis://:@h", tcp()),
        ("redis://@h", tcp()),
        ("redis://a%40b:p%2Fw%3A%3F%23%C3%A9@h", tcp(username="a@b", password="p/w:?#é")),
        ("ada:pw@h:7000", tcp(port=7000, username="ada", password="pw")),
    ],
)
def test_one_server_is_read_from_its_url(url: str, expected: Target) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("unix:///run/v.sock", Target(TargetKind.UNIX, path="/run/v.sock")),
        ("unix:///run/v.sock?db=2", Target(TargetKind.UNIX, path="/run/v.sock", database=2)),
        ("unix:///a%20b@c.sock", Target(TargetKind.UNIX, path="/a b@c.sock")),
        (
            "unix://ada:pw@/v.sock",
            Target(TargetKind.UNIX, path="/v.sock", username="ada", password="pw"),
        ),
        ("embedded://", Target(TargetKind.EMBEDDED)),
        ("embedded://?db=4", Target(TargetKind.EMBEDDED, database=4)),
        ("embedded:///var/jobs", Target(TargetKind.EMBEDDED, directory="/var/jobs")),
        ("embedded:///a%20b/../c@d/", Target(TargetKind.EMBEDDED, directory="/c@d")),
    ],
)
def test_a_server_on_this_machine_is_read_from_its_url(url: str, expected: Target) -> None:
    assert parse_url(url) == expected


def test_a_relative_embedded_directory_is_resolved_when_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert parse_url("embedded://./jobs").directory == str(tmp_path / "jobs")
    assert parse_url("embedded://../jobs").directory == str(tmp_path.parent / "jobs")
    assert parse_url("embedded://~/jobs").directory == "/home/ada/jobs"


def test_a_relative_directory_is_refused_when_the_working_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ValueError, match=r"'\./jobs' is relative to one that is not there"):
        parse_url("embedded://./jobs")


def test_sentinels_are_read_with_service_database_and_both_kinds_of_credentials() -> None:
    url = (
        "rediss+sentinel://ada:pw@s1:7001,s2,[::1]/my%2Fmaster/2"
        "?sentinel_username=watch&sentinel_password=se%40cret&ssl_ca_certs=/ca.pem"
    )
    assert parse_url(url) == Target(
        TargetKind.SENTINEL,
        addresses=(Address("s1", 7001), Address("s2", 26379), Address("::1", 26379)),
        username="ada",
        password="pw",
        database=2,
        tls=TlsSettings(ca_file="/ca.pem"),
        service="my/master",
        sentinel_username="watch",
        sentinel_password="se@cret",
    )


@pytest.mark.parametrize("name", ["redis", "valkey", "rediss", "valkeys"])
def test_clusters_and_sentinels_have_the_same_aliases_as_one_server(name: str) -> None:
    tls = TlsSettings() if name.endswith("ss") or name == "valkeys" else None
    nodes = (Address("a", 7000), Address("b", 6379))
    cluster = Target(TargetKind.CLUSTER, addresses=nodes, tls=tls)
    assert parse_url(f"{name}-cluster://a:7000,b/0") == cluster
    watched = Target(TargetKind.SENTINEL, addresses=(Address("a", 26379),), service="m", tls=tls)
    assert parse_url(f"{name}+sentinel://a/m") == watched


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ssl_cert_reqs=required", TlsSettings()),
        ("ssl_cert_reqs=none", TlsSettings(verify=False, check_hostname=False)),
        ("ssl_check_hostname=False", TlsSettings(check_hostname=False)),
        ("ssl_check_hostname=1", TlsSettings()),
        ("ssl_ca_certs=/a%20b&ssl_server_name=n", TlsSettings(ca_file="/a b", server_name="n")),
        ("ssl_certfile=/c&ssl_keyfile=/k", TlsSettings(cert_file="/c", key_file="/k")),
    ],
)
def test_tls_options_are_spelled_as_redis_py_spells_them(query: str, expected: TlsSettings) -> None:
    assert parse_url(f"rediss://h?{query}").tls == expected


@pytest.mark.parametrize(
    "url",
    ["rediss://h", "redis://h", "RediSS://h", "Redis://h", "h", "h:6379", "valkey://h"],
)
def test_tls_true_keeps_rediss_swaps_redis_and_prefixes_a_bare_address(url: str) -> None:
    assert parse_url(url, tls=True) == tcp(tls=TlsSettings())


def test_tls_true_reaches_clusters_and_sentinels_too() -> None:
    assert parse_url("redis-cluster://h", tls=True).tls == TlsSettings()
    assert parse_url("redis+sentinel://h/m", tls=True).tls == TlsSettings()


def test_no_url_means_the_environment_and_then_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    assert parse_url(None) == LOCAL == parse_url(DEFAULT_URL)
    monkeypatch.setenv(URL_VARIABLE, "")
    assert parse_url(None) == LOCAL
    monkeypatch.setenv(URL_VARIABLE, "redis://h/5")
    assert parse_url(None) == tcp(database=5)
    assert parse_url("redis://127.0.0.1") == LOCAL


def test_a_bad_url_from_the_environment_is_blamed_on_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(URL_VARIABLE, "http://h")
    with pytest.raises(ValueError, match=rf"^{URL_VARIABLE}: the scheme 'http' is not known"):
        parse_url(None)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "the URL is empty; write redis://"),
        ("http://h", "the scheme 'http' is not known; use one of embedded, redis, redis"),
        ("redis://h\x00", "a character that cannot be printed"),
        ("redis://h#1", "holds a '#'; percent-encode it as %23"),
        ("redis://", "the host is empty; write host:6379"),
        ("redis://:6379", "the host is empty"),
        ("redis:///2", "the host is empty"),
        ("redis-cluster://a,,b", "the host is empty"),
        ("redis://a b", "the host 'a b' is not a host name"),
        ("redis://a..b", r"the host 'a\.\.b' is not a host name"),
        ("redis://::1", r"more than one ':' .*\[::1\]:6379 for IPv6"),
        ("redis://[::1", "the host '::1' in brackets is not an IPv6 address"),
        ("redis://[::1]6379", "in brackets is not"),
        ("redis://[h]:1", "the host 'h' in brackets is not"),
        ("redis://h:", "the port is not a number; write host:6379"),
        ("redis://h:6379x", "the port is not a number"),
        ("redis://h:٣", "the port is not a number"),
        ("redis://h:0", "the port 0 is not between 1 and 65535"),
        ("redis://h:65536", "the port 65536 is not between 1 and 65535"),
        ("redis://a,b", r"2 addresses .* use redis\+sentinel:// or redis-cluster://"),
        ("redis://h/x", r"the database 'x' is not a number; write /2 or \?db=2"),
        ("redis://h/-1", "the database '-1' is not a number"),
        ("redis://h/1/2", "the database '1/2' is not a number"),
        ("redis://h?db=x", "the database 'x' is not a number"),
        ("redis://h/1?db=2", "the database is 1 and also db=2; give it once"),
        ("redis://h?db=1&db=1", "the option 'db' is given twice"),
        ("redis://h?db=", "the option 'db' is empty"),
        (
            "redis+sentinel://h/m?sentinel_password=a&b",
            "a part of the query has no '='; write name=",
        ),
        (
            "redis+sentinel://h/m?sentinel_password=a&b=c",
            "what follows sentinel_password is no option; write %26 for '&' in a password",
        ),
        (
            "redis+sentinel://h/m?sentinel_password=a&b=",
            "what follows sentinel_password is no option; write %26 for '&' in a password",
        ),
        ("redis://h?timeout=3", "the option 'timeout' is not known here; use db, "),
        ("redis://h?password=x", "a user and a password go before the host"),
        ("redis://h?sentinel_password=x", "'sentinel_password' is not known here"),
        ("redis://h?ssl_ca_certs=/x", "the option 'ssl_ca_certs' needs TLS; use rediss:// or tls"),
        ("redis://word@h", "the user stands alone before the '@'; write user:password@host"),
        ("redis://ada:@h", "the password is empty before the '@'"),
        ("redis://:%ff@h", "the password is not UTF-8"),
        ("redis://:%00@h", "the password holds a zero byte"),
        ("redis-cluster://h/1", "the database is 1, and a cluster has only 0"),
        ("redis-cluster://h?db=1", "the database is 1, and a cluster has only 0"),
        ("redis+sentinel://h", "the service that the sentinels watch is missing; write redis"),
        ("redis+sentinel://h//2", "the service that the sentinels watch is missing"),
        ("redis+sentinel://h/m/x", "the database 'x' is not a number"),
        ("redis+sentinel://h/m?sentinel_username=x", "without sentinel_password"),
        ("unix://", "needs the absolute path of a socket, and no host; write unix:///"),
        ("unix:///", "needs the absolute path"),
        ("unix://run/v.sock", "needs the absolute path"),
        ("unix:///v.sock?ssl_ca_certs=/x", "needs TLS"),
        ("embedded://jobs", r"has no host, and 'jobs' stands .* embedded://\./dir"),
        ("embedded:///", "the root of everything"),
        ("embedded:////", "the root of everything"),
        ("embedded://ada:pw@/x", "takes no user or password"),
        ("embedded:///x?ssl_ca_certs=/x", "needs TLS"),
        ("embedded:///x?size=1", "the option 'size' is not known here"),
        ("rediss://h?ssl_cert_reqs=optional", "ssl_cert_reqs is 'optional'; write required"),
        ("rediss://h?ssl_check_hostname=maybe", "ssl_check_hostname is 'maybe'; write true or"),
        ("rediss://h?ssl_cert_reqs=none&ssl_check_hostname=true", "is on while ssl_cert_reqs"),
        ("rediss://h?ssl_keyfile=/k", "ssl_keyfile comes without ssl_certfile"),
        (f"redis://{'h' * 500}", "the host 'h{60}...' is not a host name"),
    ],
)
def test_a_bad_url_is_told_by_its_part_its_rule_and_its_remedy(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=rf"^redis_url: .*{complaint}"):
        parse_url(url)


@pytest.mark.parametrize("url", ["unix:///v.sock", "embedded://", "embedded:///x"])
def test_tls_does_not_go_with_a_server_on_this_machine(url: str) -> None:
    with pytest.raises(ValueError, match=r"tls=True does not go with .*: drop tls"):
        parse_url(url, tls=True)


@pytest.mark.parametrize("url", [b"redis://h", 6379, object()])
def test_a_url_that_is_not_text_is_a_type_error(url: object) -> None:
    with pytest.raises(TypeError, match=f"redis_url is a {type(url).__name__}: pass text"):
        parse_url(url)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "endpoint", "safe_text"),
    [
        ("h:7000/2", "h:7000", "redis://h:7000/2"),
        ("redis://[::1]:7000", "[::1]:7000", "redis://[::1]:7000"),
        (f"valkeys://ada:{SECRET}@h", "h:6379", "rediss://ada:***@h:6379"),
        (f"redis://:{SECRET}@h", "h:6379", "redis://:***@h:6379"),
        ("redis-cluster://a:1,b:2", "a:1", "redis-cluster://a:1,b:2"),
        (
            f"redis+sentinel://a:{SECRET}@s/m/1?sentinel_password={SECRET}",
            "s:26379",
            "redis+sentinel://a:***@s:26379/m/1?sentinel_password=***",
        ),
        (f"unix://:{SECRET}@/v.sock?db=2", "/v.sock", "unix://:***@/v.sock?db=2"),
        ("embedded://", "embedded", "embedded://"),
        ("embedded:///a%20b?db=1", "embedded", "embedded:///a%20b?db=1"),
        ("rediss://h?ssl_cert_reqs=none", "h:6379", "rediss://h:6379?ssl_cert_reqs=none"),
    ],
)
def test_a_target_shows_itself_without_its_secrets(url: str, endpoint: str, safe_text: str) -> None:
    target = parse_url(url)
    assert target.endpoint == endpoint
    assert target.safe_text == safe_text
    assert repr(target) == str(target) == f"<Target {safe_text}>"


URL_PIECES = [
    *("redis://", "rediss://", "unix://", "embedded://", "redis+sentinel://", "redis-cluster://"),
    *("host", ":6379", "[::1]", ",", "/", "/2", "/name", "?db=1", "&", "ssl_ca_certs=/x", "@", "%"),
    *("%ff", "%00", "#", ":", "user:pw@", "~", ".", "..", " "),
]
pieces = st.lists(st.sampled_from(URL_PIECES) | st.text(max_size=4), max_size=8)
any_text = st.text() | pieces.map("".join)


@given(url=any_text, tls=st.booleans())
@example(url="redis://[fe80::1%ab]", tls=False)
def test_any_text_is_either_read_or_refused_with_a_value_error(url: str, *, tls: bool) -> None:
    try:
        target = parse_url(url, tls=tls)
    except ValueError as error:
        assert str(error).startswith("redis_url: ")  # noqa: PT017 -- either outcome is right
        assert error.__context__ is None  # noqa: PT017
    else:
        masked = {
            name: "***"
            for name in ("password", "sentinel_password")
            if getattr(target, name) is not None
        }
        assert parse_url(target.safe_text) == dataclasses.replace(target, **masked)  # type: ignore[arg-type]


passwords = st.builds(
    lambda before, after: f"{before}{SECRET}{after}",
    st.text(st.characters(exclude_characters="@", exclude_categories=["Cs"]), max_size=5),
    st.text(st.characters(exclude_characters="@", exclude_categories=["Cs"]), max_size=5),
)
schemes = st.sampled_from(
    ["redis://", "redis-cluster://", "redis+sentinel://", "unix://", "embedded://", "foo://", ""]
)
tails = st.sampled_from(
    ["h", "h:x", "h:99999", "h/x", "h?x=1", "h/m?db=x", "", "/v.sock", "/v?x=1", "a,b", "[", "h#"]
) | st.text(max_size=8)


@given(scheme=schemes, user=st.sampled_from(["", "ada"]), password=passwords, tail=tails)
@example(scheme="redis://", user="", password=f"{SECRET}/x", tail="h")
@example(scheme="redis://", user="", password=f"x/{SECRET}", tail="h")
@example(scheme="redis://", user="", password=f"x?{SECRET}", tail="h")
@example(scheme="embedded://", user="", password=f"x/{SECRET}", tail="/d")
@example(scheme="", user="", password=f"://{SECRET}", tail="h")
def test_a_password_is_never_repeated_even_when_it_is_not_encoded(
    scheme: str, user: str, password: str, tail: str
) -> None:
    for written in (password, quote(password, safe="")):
        url = f"{scheme}{user}:{written}@{tail}"
        try:
            shown = repr(parse_url(url))
        except ValueError as error:
            shown = str(error)
        assert SECRET not in shown


@pytest.mark.parametrize("url", [f"redis://ada:{SECRET}", f"ada:{SECRET}", f"redis://:{SECRET}"])
def test_a_password_whose_host_is_missing_is_not_shown_as_a_bad_port(url: str) -> None:
    with pytest.raises(ValueError, match="redis_url: ") as caught:
        parse_url(url)
    assert SECRET not in str(caught.value)
