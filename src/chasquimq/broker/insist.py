"""What both kinds of connection decide alike about a call: when to send it again, when to give up.

Free of I/O: `Conduct.insist` yields what should be done next and is told how it went. The asyncio
connection and its blocking twin only do it. How to get to a server is in `access.py`.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from hiredis import ReplyError

from chasquimq.broker.access import Access, L, LinkLostError, Pause, Step
from chasquimq.broker.call import Call, Reply, command, understood
from chasquimq.broker.refusal import Cure, Refusal, refusals
from chasquimq.broker.scripts import Script
from chasquimq.broker.url import Address, TargetKind
from chasquimq.errors import (
    ChasquiError,
    ConnectionFailedError,
    OutcomeUnknownError,
    ReplyTooLargeError,
    ServerReplyError,
    ShutdownError,
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send requests over a live link (opened if need be) and come back with the replies."""

    requests: Sequence[bytes]
    block_ms: int = 0


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop using the link of the last exchange."""

    reason: str


Action: TypeAlias = Exchange | Leave | Step[L]
Insisting: TypeAlias = Generator[Action[L], Any, list[Reply]]

# After so many immediate corrections of one call something keeps changing: slow down.
_QUICK_CURES = 2


class Conduct(Generic[L]):
    """The decisions about calls on one connection; knows no socket."""

    def __init__(self, access: Access[L]) -> None:
        """`access` knows the way to the server."""
        self._access = access

    def insist(
        self, call: Call[Any], first: list[Reply] | LinkLostError | None = None
    ) -> Insisting[L]:
        """Send again what was not carried out, until all is answered or time is up.

        `first` is how a first attempt went, if there was one. The driver throws what goes wrong
        into the generator: `LinkLostError` when a link breaks, `ConnectionFailedError` when none
        can be had in time. A call that was lost on its way at least once, and never answered, does
        not end with the latter, which would mean that nothing was sent. Nor does an insistent call,
        once its answer was lost, end with a refusal.
        """
        effort = _Effort(call)
        outcome = first
        try:
            while effort.todo:
                if outcome is None:
                    outcome = yield from self._attempt(effort)
                if isinstance(outcome, LinkLostError):
                    yield from self._after_loss(effort, outcome)
                else:
                    effort.note(outcome)
                    yield from self._cure(effort)
                    if effort.doubt is not None and not effort.todo:
                        yield from self._disbelieve(effort)
                outcome = None
                effort.attempt += 1
        except (ConnectionFailedError, ShutdownError, ServerReplyError) as error:
            raise self._honest(error, effort) from error.__cause__
        return effort.answers

    def _attempt(self, effort: "_Effort") -> Generator[Action[L], Any, list[Reply] | LinkLostError]:
        try:
            replies: list[Reply] = yield Exchange(effort.requests(), effort.call.block_ms)
        except LinkLostError as lost:
            return lost
        return replies

    def _after_loss(
        self, effort: "_Effort", lost: LinkLostError, asked: Sequence[int] | None = None
    ) -> Generator[Action[L], Any, None]:
        """Note what was lost: the requests `asked`, or all that were to be sent."""
        self._access.last_problem = str(lost)
        if lost.too_large and effort.call.repeatable:
            raise ReplyTooLargeError(str(lost))
        if lost.sent:
            effort.doubt = lost
            effort.doubted.update(effort.todo if asked is None else asked)
            if not effort.call.repeatable:
                raise self._outcome_unknown(lost)
        # The first loss is not the call's fault, later ones may be: some request or reply may be
        # what breaks the link each time.
        if effort.attempt:
            yield Pause(self._access.pause_ms(effort.attempt))

    def _cure(self, effort: "_Effort") -> Generator[Action[L], Any, None]:
        """Prepare for sending refused requests again."""
        access = self._access
        refused = self._refused(effort)
        cures = {each.cure for each in refused}
        if refused:
            access.last_problem = refused[0].text
        if Cure.MOVE in cures:
            access.topology.moved_to(_destination(refused, Cure.MOVE))
            yield Leave("the slot moved to another node")
        elif Cure.RECONNECT in cures:
            access.topology.forget_owner()
            yield Leave("the server takes no writes any more")
        elif Cure.LOAD_SCRIPTS in cures:
            try:
                yield from self._load(effort.call.scripts)
            except ServerReplyError as error:
                yield from self._wait_for_better(effort, error)
                effort.todo = [each.index for each in refused]
                return
        if Cure.ASK in cures:
            yield from self._ask(effort, refused)
            refused = self._refused(effort)
        effort.todo = [each.index for each in refused]
        if refused and (cures & {Cure.WAIT, Cure.RECONNECT} or effort.attempt >= _QUICK_CURES):
            yield Pause(access.pause_ms(effort.attempt + 1))

    def _disbelieve(self, effort: "_Effort") -> Generator[Action[L], Any, None]:
        """Send on what is refused now, and may have been carried out when its answer was lost."""
        if not effort.call.insistent:
            return
        try:
            understood(effort.call, effort.answers)
        except ServerReplyError as error:
            effort.todo = effort.refused_in_doubt()
            if effort.todo:
                yield from self._wait_for_better(effort, error)

    def _wait_for_better(
        self, effort: "_Effort", error: ServerReplyError
    ) -> Generator[Action[L], Any, None]:
        """Let the server change its mind, if the call is to be insisted on; else raise."""
        if effort.doubt is None or not effort.call.insistent:
            raise error
        self._access.last_problem = error.message
        try:
            yield Pause(self._access.pause_ms(effort.attempt + 1), is_apart=True)
        except ConnectionFailedError:  # there was one all the while
            since = f"refused again and again: {error.message}"
            raise self._outcome_unknown(effort.doubt, since) from None

    def _refused(self, effort: "_Effort") -> list[Refusal]:
        host = self._access.address.host if self._access.address else ""
        found = refusals(effort.answers, effort.todo, host)
        if self._access.target.kind is TargetKind.CLUSTER:
            return found
        return [each for each in found if each.cure not in (Cure.MOVE, Cure.ASK)]

    def _load(self, scripts: Sequence[Script]) -> Generator[Action[L], Any, None]:
        """Give the server its scripts again; a server that will not have them says why."""
        try:
            replies = yield Exchange([script.load_request() for script in scripts])
        except LinkLostError:
            return
        for reply in replies:
            if isinstance(reply, ReplyError) and not refusals([reply], [0], ""):
                raise ServerReplyError(str(reply))

    def _ask(self, effort: "_Effort", refused: list[Refusal]) -> Generator[Action[L], Any, None]:
        """Put requests to the node that is taking the slot over; it may not know our scripts."""
        asked = [each.index for each in refused if each.cure is Cure.ASK]
        loads = [script.load_request() for script in effort.call.scripts]
        requests = [*loads]
        for index in asked:
            requests += (command("ASKING"), effort.call.requests[index])
        destination = _destination(refused, Cure.ASK)
        try:
            replies = yield from self._access.visit(destination, requests)
        except LinkLostError as lost:
            yield from self._after_loss(effort, lost, asked)
        except (ChasquiError, OSError) as error:
            # Not reached, so nothing was sent: the owner of the slot will say where to go next.
            self._access.last_problem = str(error)
        else:
            leaves, answers = replies[len(loads) :: 2], replies[len(loads) + 1 :: 2]
            for index, leave, answer in zip(asked, leaves, answers, strict=True):
                # Who may not ask is sent back to the owner, which sends it here: it must be told,
                # unless the slot has come here meanwhile, and the request was carried out.
                is_denied = isinstance(leave, ReplyError) and not refusals([leave], [0], "")
                is_sent_back = bool(refusals([answer], [0], destination.host))
                effort.answers[index] = leave if is_denied and is_sent_back else answer

    def _honest(self, error: ChasquiError, effort: "_Effort") -> ChasquiError:
        """The error itself, unless it would claim too much about a call that was sent."""
        if effort.doubt is None or isinstance(error, OutcomeUnknownError):
            return error
        if isinstance(error, ServerReplyError) and not effort.call.insistent:
            return error
        if isinstance(error, ShutdownError):
            return ShutdownError(
                f"{error.message} while a request was under way: it may or may not have been "
                "carried out"
            )
        return self._outcome_unknown(effort.doubt, error.message)

    def _outcome_unknown(self, lost: LinkLostError, since: str = "") -> OutcomeUnknownError:
        """The error for a call that may have been carried out and must not be repeated blindly."""
        return OutcomeUnknownError(
            f"the connection to {self._access.target.safe_text} broke ({lost}) after the request "
            "was sent: it may or may not have been carried out; look before you repeat it"
            + (f" (since then: {since})" if since else "")
        )


class _Effort:
    """How far one call has come."""

    __slots__ = ("answers", "attempt", "call", "doubt", "doubted", "todo")

    def __init__(self, call: Call[Any]) -> None:
        self.call = call
        self.answers: list[Reply] = [None] * len(call.requests)
        self.todo = list(range(len(call.requests)))
        self.attempt = 0
        self.doubt: LinkLostError | None = None
        # The requests that may have been carried out without our knowing.
        self.doubted: set[int] = set()

    def requests(self) -> list[bytes]:
        return [self.call.requests[index] for index in self.todo]

    def note(self, replies: Sequence[Reply]) -> None:
        for index, reply in zip(self.todo, replies, strict=True):
            self.answers[index] = reply

    def refused_in_doubt(self) -> list[int]:
        return [at for at in sorted(self.doubted) if isinstance(self.answers[at], ReplyError)]


def _destination(refused: list[Refusal], cure: Cure) -> Address:
    address = next(each.address for each in refused if each.cure is cure)
    assert address is not None  # noqa: S101 -- every redirection names an address
    return address
