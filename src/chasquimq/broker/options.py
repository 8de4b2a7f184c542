"""How a connection behaves: time limits, reconnects, credentials, and the pace of attempts."""

import asyncio
import inspect
import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from chasquimq.broker.server import Credentials
from chasquimq.broker.url import Target, TlsSettings
from chasquimq.errors import ConnectionFailedError

CredentialProvider: TypeAlias = Callable[[str | None], Awaitable[tuple[str | None, str | None]]]


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Limits that keep every call finite."""

    credential_provider: CredentialProvider | None = field(default=None, repr=False)
    """Asked for `(user, password)` before every login, reconnects too. Default: the URL's."""

    reconnect_max_attempts: int | None = None
    """Failed attempts in a row before giving up; None goes on for as long as the caller waits."""

    connect_timeout_ms: int = 10_000
    """How long opening a socket and logging in may take."""

    response_timeout_ms: int = 15_000
    """How long a reply may stay away, beyond a block that was asked for."""

    patience_ms: int = 30_000
    """How long one call may wait for a broken connection to come back before it fails."""

    client_name: str = "chasquimq"
    """What `CLIENT LIST` shows."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        attempts = self.reconnect_max_attempts
        if attempts is not None and (isinstance(attempts, bool) or attempts < 1):
            msg = f"reconnect_max_attempts is {attempts!r}: use a whole number from 1, or None"
            raise ValueError(msg)


_FIRST_PAUSE_MS = 50
_LONGEST_PAUSE_MS = 5_000


def reconnect_pause_ms(attempt: int, chance: random.Random) -> float:
    """Exponential and capped, with half of it random so that a fleet does not return in step."""
    ceiling: float = min(_LONGEST_PAUSE_MS, _FIRST_PAUSE_MS * 2.0 ** min(attempt - 1, 16))
    return ceiling / 2 + chance.uniform(0, ceiling / 2)


async def provided_credentials(provider: CredentialProvider, endpoint: str | None) -> Credentials:
    """Ask a provider; whatever goes wrong there is a `ConnectionFailedError` that says so.

    So is a cancellation of something that the provider waits for, unless it is us who are
    cancelled, too.
    """
    try:
        answer: object = provider(endpoint)
        if inspect.isawaitable(answer):
            answer = await answer
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        msg = f"credential_provider failed: {type(error).__name__}: {error}"
        raise ConnectionFailedError(msg) from error
    if not isinstance(answer, tuple) or len(answer) != 2:  # noqa: PLR2004 -- a pair
        msg = f"credential_provider returned a {type(answer).__name__}: return (user, password)"
        raise ConnectionFailedError(msg)
    user, password = answer
    if not isinstance(user, str | None) or not isinstance(password, str | None):
        msg = "credential_provider must return text or None for user and password"
        raise ConnectionFailedError(msg)
    if user is not None and password is None:
        msg = "credential_provider returned a user without a password: return both, or (None, None)"
        raise ConnectionFailedError(msg)
    return Credentials(user, password)


def ssl_context(settings: TlsSettings) -> ssl.SSLContext:
    """Verification on unless the URL turned it off. Files are read anew, so they may be renewed."""
    name, file = "ssl_ca_certs", settings.ca_file
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file:
            name, file = "ssl_certfile or ssl_keyfile", settings.cert_file
            # Without a password of ours OpenSSL would ask for one on the terminal, and wait.
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
    except (OSError, ValueError) as error:
        msg = f"{name} cannot be used ({file}): {error}; name a readable, unencrypted PEM file"
        raise ConnectionFailedError(msg) from error
    if not settings.check_hostname:
        context.check_hostname = False
    if not settings.verify:
        context.verify_mode = ssl.CERT_NONE
    return context


def url_credentials(target: Target, *, for_sentinel: bool = False) -> Credentials | None:
    """The credentials written in the URL for the server, or for its sentinels, if there are any."""
    if for_sentinel:
        username, password = target.sentinel_username, target.sentinel_password
    else:
        username, password = target.username, target.password
    return None if password is None else Credentials(username, password)
