"""What both kinds of connection decide alike: when to send again, where to turn, when to give up.

Free of I/O: `Insistence.steps` yields what should be done next and is told how it went. The asyncio
connection and its blocking twin only do it.
"""

import logging
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from chasquimq.broker.call import Call, Reply, command
from chasquimq.broker.options import ConnectionOptions, reconnect_pause_ms
from chasquimq.broker.refusal import Cure, Refusal, refusals
from chasquimq.broker.server import Credentials, ServerInfo, handshake, warn_about_eviction
from chasquimq.broker.topology import Topology
from chasquimq.broker.url import Address, Target, TargetKind
from chasquimq.errors import ConnectionFailedError, OutcomeUnknownError, ServerTooOldError

log = logging.getLogger("chasquimq.broker")


class LinkLostError(Exception):
    """The socket is gone; what was pending may or may not have been carried out."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send requests over a live link (opened if need be) and come back with the replies."""

    requests: Sequence[bytes]
    block_ms: int = 0


@dataclass(frozen=True, slots=True)
class AskAt:
    """Send requests to another server, over a link of their own."""

    address: Address
    requests: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop using the present link."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Let some time pass."""

    ms: float


Action: TypeAlias = Exchange | AskAt | Leave | Pause
Insisting: TypeAlias = Generator[Action, Any, list[Reply]]

# After so many immediate corrections of one call something keeps changing: slow down.
_QUICK_CURES = 2


class Conduct:
    """The decisions of one connection; knows no socket."""

    def __init__(self, target: Target, options: ConnectionOptions, *, slot_key: bytes) -> None:
        """Calls must concern the slot of `slot_key`."""
        self.target = target
        self.options = options
        self.topology = Topology(target, slot_key)
        self.address: Address | None = None
        self.server: ServerInfo | None = None
        self.reconnects = 0
        self.last_problem = "no attempt was made"
        self._probe_key = slot_key + b":probe"
        self._chance = random.Random()  # noqa: S311 -- jitter, not secrets
        self._was_connected = False

    def insist(self, call: Call[Any], replies: list[Reply] | None) -> Insisting:
        """Send again what was not carried out, until all is answered or time is up.

        The driver throws `LinkLostError` into the generator when a link breaks, and stops asking
        when its patience ends by throwing `ConnectionFailedError`.
        """
        answers: list[Reply] = replies or [None] * len(call.requests)
        todo = list(range(len(call.requests)))
        if replies is not None:
            todo = yield from self._cure(call, answers, todo, attempt=0)
        attempt = 0
        while todo:
            attempt += 1
            try:
                again = yield Exchange([call.requests[i] for i in todo], call.block_ms)
            except LinkLostError as lost:
                if not call.repeatable:
                    raise self.outcome_unknown(lost) from None
                continue
            for index, reply in zip(todo, again, strict=True):
                answers[index] = reply
            todo = yield from self._cure(call, answers, todo, attempt=attempt)
        return answers

    def _cure(
        self, call: Call[Any], answers: list[Reply], among: list[int], *, attempt: int
    ) -> Generator[Action, Any, list[int]]:
        """Prepare for sending refused requests again; return which."""
        host = self.address.host if self.address else ""
        refused = [each for each in refusals(answers, host) if each.index in set(among)]
        cures = {each.cure for each in refused}
        if Cure.LOAD_SCRIPTS in cures:
            yield Exchange([script.load_request() for script in call.scripts])
        if Cure.MOVE in cures:
            self.topology.moved_to(_destination(refused, Cure.MOVE))
            yield Leave("the slot moved to another node")
        elif Cure.RECONNECT in cures:
            self.topology.forget_owner()
            yield Leave("the server is not a primary any more")
        if cures & {Cure.WAIT, Cure.RECONNECT} or (refused and attempt > _QUICK_CURES):
            yield Pause(reconnect_pause_ms(attempt + 1, self._chance))
        for each in refused:
            if each.cure is Cure.ASK:
                address = _destination([each], Cure.ASK)
                request = call.requests[each.index]
                replies = yield AskAt(address, [command("ASKING"), request])
                answers[each.index] = replies[1]
        return [each.index for each in refused if each.cure is not Cure.ASK]

    def greeting(self, credentials: Credentials | None) -> Call[ServerInfo]:
        """The handshake of a new link."""
        return handshake(
            credentials,
            database=self.target.database,
            client_name=self.options.client_name,
            probe_key=self._probe_key,
        )

    def accept(self, address: Address | None, info: ServerInfo) -> None:
        """Take a greeted link into use, or refuse it with `ConnectionFailedError`."""
        if not info.is_primary and self.target.kind is not TargetKind.CLUSTER:
            msg = f"{address or self.target.safe_text} is a replica: name its primary or sentinels"
            raise ConnectionFailedError(msg)
        if not self._was_connected:
            warn_about_eviction(info, self.target.safe_text)
        self.reconnects += self._was_connected
        self._was_connected = True
        self.address = address
        self.server = info

    def pause_after_failure(self, error: Exception, attempt: int) -> float:
        """How many ms to wait before attempt + 1; raises when there should be none.

        A connection that never worked is told at once: a wrong address should not look like a slow
        server.
        """
        self.topology.forget_owner()
        self.last_problem = str(error) or type(error).__name__
        if isinstance(error, ServerTooOldError):
            raise error
        limit = self.options.reconnect_max_attempts
        if not self._was_connected or (limit is not None and attempt >= limit):
            msg = (
                f"cannot connect to {self.target.safe_text}: {self.last_problem}; start a server "
                "there, name another with redis_url or CHASQUI_REDIS_URL, or use embedded://"
            )
            raise ConnectionFailedError(msg) from error
        log.warning("connection to %s failed (attempt %d): %s", self.target.safe_text, attempt,
                    self.last_problem)  # fmt: skip
        return reconnect_pause_ms(attempt, self._chance)

    def out_of_patience(self) -> ConnectionFailedError:
        """The error for a call that waited long enough for a broken connection."""
        msg = (
            f"no connection to {self.target.safe_text} within "
            f"{self.options.patience_ms / 1_000:g} s; last problem: {self.last_problem}"
        )
        return ConnectionFailedError(msg)

    def outcome_unknown(self, lost: Exception) -> OutcomeUnknownError:
        """The error for a call that may have been carried out and must not be repeated blindly."""
        msg = (
            f"the connection to {self.target.safe_text} broke ({lost}) after the request was sent: "
            "it may or may not have been carried out; look before you repeat it"
        )
        return OutcomeUnknownError(msg)


def _destination(refused: list[Refusal], cure: Cure) -> Address:
    address = next(each.address for each in refused if each.cure is cure)
    assert address is not None  # noqa: S101 -- every redirection names an address
    return address
