"""Says where to connect: the value that a `redis_url` is read into.

Its text and its repr hold no secret, so it can be logged as it is.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import quote


class TargetKind(StrEnum):
    """The ways there are to reach a server."""

    TCP = "tcp"
    UNIX = "unix"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Address:
    """A host, without the brackets of IPv6, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """`host:port`, with IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How the server's certificate is checked, and which one we show."""

    verify: bool = True
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    check_hostname: bool = True
    """Always False where `verify` is."""
    server_name: str | None = None
    """The name to ask for and to check, where it is not the host's."""


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """One server, or the several ways to find it."""

    kind: TargetKind
    addresses: tuple[Address, ...] = ()
    path: str | None = None
    """Of the socket, where `kind` is UNIX."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: TlsSettings | None = None
    service: str | None = None
    """The name under which sentinels know the primary."""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    """For the sentinels themselves; `username` and `password` are for the primary."""
    directory: str | None = None
    """Absolute, of the embedded server's data; None keeps them in memory."""

    def __repr__(self) -> str:
        """Show the URL without its secrets."""
        return f"<Target {self.safe_text}>"

    @property
    def endpoint(self) -> str:
        """The first address as `host:port`, else the socket's path, else `embedded`."""
        if self.addresses:
            return str(self.addresses[0])
        return self.path or "embedded"

    @property
    def safe_text(self) -> str:
        """The URL in its plainest spelling, every password replaced by `***`."""
        if self.kind is TargetKind.EMBEDDED:
            return f"embedded://{quote(self.directory or '')}{self._safe_options()}"
        user = "" if self.password is None else f"{quote(self.username or '', safe='')}:***@"
        if self.kind is TargetKind.UNIX:
            return f"unix://{user}{quote(self.path or '')}{self._safe_options()}"
        scheme = ("rediss" if self.tls else "redis") + SCHEME_SUFFIXES[self.kind]
        hosts = ",".join(str(address).replace("%", "%25") for address in self.addresses)
        service = "" if self.service is None else f"/{quote(self.service, safe='')}"
        database = f"/{self.database}" if self.database else ""
        return f"{scheme}://{user}{hosts}{service}{database}{self._safe_options()}"

    def _safe_options(self) -> str:
        tls = self.tls or TlsSettings()
        given = {
            "db": str(self.database) if self.database and not self.addresses else None,
            "sentinel_username": self.sentinel_username,
            "sentinel_password": "***" if self.sentinel_password is not None else None,
            "ssl_cert_reqs": None if tls.verify else "none",
            "ssl_check_hostname": "false" if tls.verify and not tls.check_hostname else None,
            "ssl_ca_certs": tls.ca_file,
            "ssl_certfile": tls.cert_file,
            "ssl_keyfile": tls.key_file,
            "ssl_server_name": tls.server_name,
        }
        pairs = [f"{name}={quote(text, safe='/*')}" for name, text in given.items() if text]
        return f"?{'&'.join(pairs)}" if pairs else ""


SCHEME_SUFFIXES = {
    TargetKind.TCP: "",
    TargetKind.SENTINEL: "+sentinel",
    TargetKind.CLUSTER: "-cluster",
}
