"""Reads a `redis_url`: which servers, how to reach them, as whom, and which database.

| URL | means |
|---|---|
| `redis://user:password@host:6379/2` | one server; `rediss://` with TLS; also `valkey(s)://` |
| `host:6379` | the same as `redis://host:6379` |
| `unix://user:password@/run/valkey.sock?db=2` | one server, by the absolute path of its socket |
| `redis+sentinel://user:password@h1:26379,h2/service/2` | the primary that sentinels name |
| `redis-cluster://h1:7000,h2:7001` | a cluster, entered at any of these nodes |
| `embedded://` | a server of our own, in memory, private to this process |
| `embedded:///var/lib/jobs`, `embedded://./jobs`, `embedded://~/jobs` | with its data kept there |

`tls=True` turns a scheme into its TLS form. A relative directory is resolved when it is parsed, so
a later change of the working directory does not move the data. TLS options are spelled as redis-py
spells them (`ssl_ca_certs`, ...), plus `ssl_server_name`.

Written by hand rather than on `urllib.parse`: that one repeats the password in some of its errors,
and here no error may. What could be a misplaced piece of a password is not shown either.
"""

import ipaddress
import os
import re
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

from chasquimq.broker.target import SCHEME_SUFFIXES, Address, Target, TargetKind, TlsSettings

__all__ = [
    "DEFAULT_URL",
    "LAST_PORT",
    "URL_VARIABLE",
    "Address",
    "Target",
    "TargetKind",
    "TlsSettings",
    "parse_url",
]

DEFAULT_URL = "redis://127.0.0.1:6379"
URL_VARIABLE = "CHASQUI_REDIS_URL"


_PLAIN_NAMES = {"redis": False, "rediss": True, "valkey": False, "valkeys": True}
_SCHEMES: dict[str, tuple[TargetKind, bool]] = {
    f"{name}{suffix}": (kind, has_tls)
    for kind, suffix in SCHEME_SUFFIXES.items()
    for name, has_tls in _PLAIN_NAMES.items()
} | {"unix": (TargetKind.UNIX, False), "embedded": (TargetKind.EMBEDDED, False)}
"""Every scheme, the kind of target it names and whether it asks for TLS."""

_DEFAULT_PORTS = {TargetKind.TCP: 6379, TargetKind.SENTINEL: 26379, TargetKind.CLUSTER: 6379}

LAST_PORT = 65_535


def parse_url(url: str | None, *, tls: bool = False) -> Target:
    """Read `url`; None means `CHASQUI_REDIS_URL`, else `redis://127.0.0.1:6379`.

    Raises `ValueError` naming the part that is wrong, the rule and the remedy, never a password;
    and `TypeError` for anything but text. Nothing is connected to or looked up.
    """
    origin = "redis_url"
    if url is None:
        origin = URL_VARIABLE
        url = os.environ.get(URL_VARIABLE) or DEFAULT_URL
    try:
        return _parse(_text(url).strip(), tls=tls)
    except _UrlError as error:
        msg = f"{origin}: {error}"
    # Outside the handler, so that what it caught, perhaps with the password, is not `__context__`.
    raise ValueError(msg)


class _UrlError(Exception):
    """A fault in the URL, told without its secrets."""


def _text(url: object) -> str:
    if isinstance(url, str):
        return url
    msg = f"redis_url is a {type(url).__name__}: pass text such as {DEFAULT_URL!r}, or None"
    raise TypeError(msg)


def _refuse(problem: str, remedy: str) -> NoReturn:
    message = f"{problem}; {remedy}"
    raise _UrlError(message)


def _shown(value: str) -> str:
    """Quote `value` for a message, cut where somebody pasted a novel."""
    longest = 60
    return repr(value if len(value) <= longest else f"{value[:longest]}...")


def _parse(text: str, *, tls: bool) -> Target:
    if not text:
        _refuse("the URL is empty", f"write {DEFAULT_URL}, or None for the default")
    if not text.isprintable():
        _refuse("the URL holds a character that cannot be printed", "percent-encode it")
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "redis", text
    kind, has_tls = _kind(scheme.lower())
    authority, path, query = _split(rest, kind)
    options = _options(query)
    if kind is TargetKind.EMBEDDED:
        target = _embedded(authority, path, options)
    elif kind is TargetKind.UNIX:
        target = _unix(authority, path, options)
    else:
        return _remote(kind, authority, path, options, has_tls=has_tls or tls)
    if tls:
        _refuse(f"tls=True does not go with {scheme}://", "it never leaves the machine: drop tls")
    _refuse_rest(options, has_tls=False)
    return target


def _kind(scheme: str) -> tuple[TargetKind, bool]:
    if scheme in _SCHEMES:
        return _SCHEMES[scheme]
    shown = f"{scheme!r} " if re.fullmatch(r"[a-z][a-z0-9+.-]{0,31}", scheme) else ""
    _refuse(f"the scheme {shown}is not known", f"use one of {', '.join(sorted(_SCHEMES))}")


def _split(rest: str, kind: TargetKind) -> tuple[str, str, str]:
    """Give authority, path with its slash, and query. A stray `@` may be the tail of a password."""
    if "#" in rest:
        _refuse("the URL holds a '#'", "percent-encode it as %23, in a password too")
    location, _, query = rest.partition("?")
    authority, slash, path = location.partition("/")
    has_free_path = kind in (TargetKind.UNIX, TargetKind.EMBEDDED)
    if "@" in query or ("@" in path and not has_free_path):
        problem = "there is an '@' behind the host part"
        remedy = "percent-encode / as %2F, ? as %3F and @ as %40, in a password too"
        _refuse(problem, remedy)
    return authority, slash + path, query


def _decoded(text: str, part: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        _refuse(f"the {part} is not UTF-8 once decoded", "percent-encode UTF-8 bytes")
    if "\0" in decoded:
        _refuse(f"the {part} holds a zero byte (%00)", "remove it")
    return decoded


_BOTH = "sentinel_username, sentinel_password"
_OPTIONS = ("db", *_BOTH.split(", "), "ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile",
            "ssl_keyfile", "ssl_check_hostname", "ssl_server_name")  # fmt: skip


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, equals, text = pair.partition("=")
        if not equals:
            # Not shown: it may be the rest of a password that holds an '&'.
            _refuse(
                "a part of the query has no '='", "write name=value, and %26 for '&' in a value"
            )
        if "sentinel_password" in options and name not in _OPTIONS:
            _refuse(
                "what follows sentinel_password is no option", "write %26 for '&' in a password"
            )
        if name in options:
            _refuse(f"the option {_shown(name)} is given twice", "give it once")
        options[name] = _decoded(text, f"option {_shown(name)}")
        if not options[name]:
            _refuse(f"the option {_shown(name)} is empty", f"write {name}=..., or leave it out")
    return options


def _refuse_rest(options: dict[str, str], *, has_tls: bool) -> None:
    for name in options:
        if name.startswith("ssl_") and not has_tls:
            _refuse(f"the option {_shown(name)} needs TLS", "use rediss:// or tls=True")
        known = ", ".join(_OPTIONS).replace(_BOTH, f"{_BOTH} (both with +sentinel)")
        remedy = f"use {known}; a user and a password go before the host"
        _refuse(f"the option {_shown(name)} is not known here", remedy)


def _embedded(authority: str, path: str, options: dict[str, str]) -> Target:
    if "@" in authority:
        _refuse("an embedded server takes no user or password", "write embedded:///directory")
    database = _database(None, options.pop("db", None))
    if not authority + path:
        return Target(TargetKind.EMBEDDED, database=database)
    remedy = "write embedded:///absolute/dir, embedded://./dir, embedded://~/dir or embedded://"
    if authority not in ("", ".", "..", "~"):
        shown = f" {_shown(authority)}" if ":" not in authority else ""
        _refuse(f"embedded:// has no host, and{shown} stands in its place", remedy)
    given = _decoded(authority + path, "directory")
    try:
        # Not resolve(): links are followed when the directory is used, not when it is named.
        directory = os.path.abspath(Path(given).expanduser())  # noqa: PTH100
    except (RuntimeError, OSError):
        _refuse(f"the directory {_shown(given)} is relative to one that is not there", remedy)
    if not directory.strip(os.sep):
        _refuse(f"the directory is {directory!r}, the root of everything", remedy)
    return Target(TargetKind.EMBEDDED, directory=directory, database=database)


def _unix(authority: str, path: str, options: dict[str, str]) -> Target:
    userinfo, _, host = authority.rpartition("@")
    if host or not path.strip("/"):
        problem = "unix:// needs the absolute path of a socket, and no host"
        _refuse(problem, "write unix:///run/valkey.sock, with three slashes")
    username, password = _credentials(userinfo)
    return Target(
        TargetKind.UNIX,
        path=_decoded(path, "path of the socket"),
        username=username,
        password=password,
        database=_database(None, options.pop("db", None)),
    )


def _remote(
    kind: TargetKind, authority: str, path: str, options: dict[str, str], *, has_tls: bool
) -> Target:
    userinfo, _, hosts = authority.rpartition("@")
    username, password = _credentials(userinfo)
    addresses = tuple(_address(text, _DEFAULT_PORTS[kind]) for text in hosts.split(","))
    if kind is TargetKind.TCP and len(addresses) > 1:
        remedy = "use redis+sentinel:// or redis-cluster:// for several"
        _refuse(f"{len(addresses)} addresses are given where one is meant", remedy)
    service = None
    sentinel: tuple[str | None, str | None] = (None, None)
    path = path.removeprefix("/")
    if kind is TargetKind.SENTINEL:
        name, _, path = path.partition("/")
        service = _decoded(name, "service")
        if not service:
            problem = "the service that the sentinels watch is missing"
            _refuse(problem, "write redis+sentinel://host:26379/mymaster")
        sentinel = options.pop("sentinel_username", None), options.pop("sentinel_password", None)
        if sentinel[0] and not sentinel[1]:
            _refuse("sentinel_username comes without sentinel_password", "give both")
    database = _database(path or None, options.pop("db", None))
    if kind is TargetKind.CLUSTER and database:
        _refuse(f"the database is {database}, and a cluster has only 0", "leave it out")
    settings = _tls(options) if has_tls else None
    _refuse_rest(options, has_tls=has_tls)
    return Target(
        kind,
        addresses=addresses,
        username=username,
        password=password,
        database=database,
        tls=settings,
        service=service,
        sentinel_username=sentinel[0],
        sentinel_password=sentinel[1],
    )


def _credentials(userinfo: str) -> tuple[str | None, str | None]:
    """Give user and password. A lone word is refused: clients disagree on which it is."""
    user, colon, password = userinfo.partition(":")
    if user and not password:
        problem = "the user stands alone" if not colon else "the password is empty"
        _refuse(f"{problem} before the '@'", "write user:password@host or :password@host")
    return _decoded(user, "user") or None, _decoded(password, "password") or None


def _address(text: str, default_port: int) -> Address:
    remedy = f"write host:{default_port}, or [::1]:{default_port} for IPv6"
    if text.startswith("["):
        host, bracket, tail = text[1:].partition("]")
        host = _decoded(host, "host")
        if not bracket or (tail and not tail.startswith(":")) or not _is_ipv6(host):
            _refuse(f"the host {_shown(host)} in brackets is not an IPv6 address", remedy)
        port = tail[1:] if tail else None
    else:
        host, colon, tail = text.partition(":")
        port = tail if colon else None
        if ":" in tail:
            _refuse("there is more than one ':' in an address", remedy)
        if not host:
            _refuse("the host is empty", remedy)
        if re.search(r"[\s\[\]%\\\"'<>]", host) or not _is_host(host):
            _refuse(f"the host {_shown(host)} is not a host name", remedy)
    if port is None:
        return Address(host, default_port)
    if not _is_number(port):
        # Not shown: in `redis://user:password` the '@host' is missing and this is the password.
        _refuse("the port is not a number", f"{remedy}; a password is followed by @host")
    if not 1 <= int(port) <= LAST_PORT:
        _refuse(f"the port {int(port)} is not between 1 and {LAST_PORT}", remedy)
    return Address(host, int(port))


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _is_host(host: str) -> bool:
    """Tell whether the resolver will take it; it raises `UnicodeError` for an overlong label."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", text) is not None


def _database(in_path: str | None, in_query: str | None) -> int:
    given = [text for text in (in_path, in_query) if text is not None]
    for text in given:
        if not _is_number(text):
            _refuse(f"the database {_shown(text)} is not a number", "write /2 or ?db=2")
    numbers = {int(text) for text in given}
    if len(numbers) > 1:
        _refuse(f"the database is {in_path} and also db={in_query}", "give it once")
    return numbers.pop() if numbers else 0


def _tls(options: dict[str, str]) -> TlsSettings:
    requirement = options.pop("ssl_cert_reqs", "required").lower()
    if requirement not in ("none", "required"):
        problem = f"ssl_cert_reqs is {_shown(requirement)}"
        _refuse(problem, "write required, or none to accept any certificate")
    verify = requirement == "required"
    check_hostname = _flag("ssl_check_hostname", options.pop("ssl_check_hostname", str(verify)))
    if check_hostname and not verify:
        problem = "ssl_check_hostname is on while ssl_cert_reqs is none"
        _refuse(problem, "a name can be checked only in a verified certificate: drop one")
    settings = TlsSettings(
        verify=verify,
        ca_file=options.pop("ssl_ca_certs", None),
        cert_file=options.pop("ssl_certfile", None),
        key_file=options.pop("ssl_keyfile", None),
        check_hostname=check_hostname,
        server_name=options.pop("ssl_server_name", None),
    )
    if settings.key_file and not settings.cert_file:
        _refuse("ssl_keyfile comes without ssl_certfile", "give the certificate too")
    return settings


def _flag(name: str, text: str) -> bool:
    if text.lower() in ("true", "yes", "1"):
        return True
    if text.lower() in ("false", "no", "0"):
        return False
    _refuse(f"{name} is {_shown(text)}", "write true or false")
