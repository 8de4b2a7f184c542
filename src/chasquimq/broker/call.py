"""`Call`: requests as ready bytes plus how to read their replies, free of any I/O.

Everything the broker can ask of a server is a function that returns a `Call`. The asyncio
connection and its blocking twin only carry calls out, so the two can never disagree about what is
sent.
"""

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from hiredis import HiredisError, Reader, ReplyError

from chasquimq.errors import RedisError, ServerReplyError

if TYPE_CHECKING:
    from chasquimq.broker.scripts import Script

T = TypeVar("T")

# What hiredis makes of RESP2: bytes, int, None, a list of these, or a ReplyError.
Reply: TypeAlias = Any
Argument: TypeAlias = bytes | str | int

# How servers before Redis 7 report that a command was refused inside a script.
_REFUSED_IN_SCRIPT = re.compile(
    r"ERR Error running script \(call to f_\w+\): @user_script:(?P<line>\d+): "
    r"(?:@user_script: \d+: )?-?(?P<told>[A-Z]+ .*)",
    re.DOTALL,
)
MEANINGLESS = (TypeError, ValueError, LookupError, AttributeError, OverflowError)
"""What comes of reading a reply that is none which the request can have."""
_WRONG_TYPE = "WRONGTYPE"
_OF_A_QUEUE = b"{chasqui:"
_MOST_NAMED = 6
# How a server says that a stream, or its group, does not exist.
_MISSING = re.compile(r"NOGROUP |ERR no such key")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One or more requests that travel together, and the function that reads their replies.

    `repeatable` says that carrying the call out twice has the effect of carrying it out once: only
    such a call is sent again when a connection breaks before its reply. `insistent` says that who
    asks must be told the truth: a refusal of what is sent again says nothing about what was sent
    first, so it is sent on until the server says more. `block_ms` is how long the server may hold
    the reply back on purpose. `scripts` are loaded when the server has lost them.
    """

    requests: Sequence[bytes]
    parse: Callable[[list[Reply]], T]
    repeatable: bool = True
    insistent: bool = False
    block_ms: int = 0
    scripts: "tuple[Script, ...]" = ()


# Several calls in a row, each chosen in the light of the reply before: `reply = yield call`.
Steps: TypeAlias = Generator[Call[Any], Any, T]


class Objection(Exception):  # noqa: N818 -- what it carries is the error
    """Ends steps, amid their replies, with an error that is about what the caller wants.

    Raised as it is, a `ValueError` would be taken for a reply that means nothing.
    """

    def __init__(self, error: Exception) -> None:
        """The caller is told `error`."""
        super().__init__(error)
        self.error = error


def command(*arguments: Argument) -> bytes:
    """One request in RESP. For cold paths; hot ones keep a prepared template beside their code."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        data = argument if type(argument) is bytes else str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def bulks(values: Iterable[bytes]) -> bytes:
    """RESP bulk strings, to be joined into a prepared request."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(value), value) for value in values])


def call(
    *arguments: Argument, read: Callable[[Reply], T], repeatable: bool = True, block_ms: int = 0
) -> Call[T]:
    """A call of a single command, whose one reply is read by `read`."""
    return Call(
        (command(*arguments),),
        lambda replies: read(checked(replies[0])),
        repeatable=repeatable,
        block_ms=block_ms,
    )


def together(calls: Sequence[Call[T]]) -> Call[list[T]]:
    """Several calls as one pipeline; their answers in the same order."""
    sizes = [len(each.requests) for each in calls]

    def parse(replies: list[Reply]) -> list[T]:
        answers, at = [], 0
        for each, size in zip(calls, sizes, strict=True):
            answers.append(each.parse(replies[at : at + size]))
            at += size
        return answers

    return Call(
        [request for each in calls for request in each.requests],
        parse,
        repeatable=all(each.repeatable for each in calls),
        insistent=any(each.insistent for each in calls),
        block_ms=sum(each.block_ms for each in calls),
        scripts=tuple({script for each in calls for script in each.scripts}),
    )


def checked(reply: Reply) -> Reply:
    """The reply itself, or the server's refusal raised as `ServerReplyError`."""
    if isinstance(reply, ReplyError):
        raise ServerReplyError(told(reply))
    return reply


def understood(call: Call[T], replies: list[Reply]) -> T:
    """What the replies of a call mean; those that mean nothing are a `RedisError`.

    A server of ours never gives such replies; something that only looks like one may. Where a key
    holds something else, which the server does not name, the error names it.
    """
    try:
        return call.parse(replies)
    except ServerReplyError as error:
        if error.kind != _WRONG_TYPE:
            raise
        raise _located(error, call.requests, replies) from None
    except MEANINGLESS as error:
        raise not_understood(error) from error


def _located(
    error: ServerReplyError, requests: Sequence[bytes], replies: list[Reply]
) -> ServerReplyError:
    """The same error with the keys that it can be about: those of the requests that were refused.

    Of a transaction the last reply holds the refusal, which is then about any of its requests.
    """
    pairs = zip(requests, replies, strict=False)
    refused = [request for request, reply in pairs if isinstance(reply, ReplyError)]
    keys = list(dict.fromkeys(key for each in refused or requests for key in _keys_in(each)))
    if not keys:
        return error
    named = ", ".join(key.decode("utf-8", "backslashreplace") for key in keys[:_MOST_NAMED])
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    place = named if len(keys) == 1 else f"one of {named}{more}"
    return ServerReplyError(f"{error.message} (the key is {place})")


def _keys_in(request: bytes) -> list[bytes]:
    """The keys of a queue that a request names: a script says how many it has."""
    reader = Reader()
    reader.feed(request)
    try:
        words = reader.gets()
    except HiredisError:
        return []
    if not isinstance(words, list):
        return []
    if words[0] == b"EVALSHA":
        words = words[3 : 3 + int(words[2])]
    return [word for word in words if word.startswith(_OF_A_QUEUE)]


def not_understood(error: Exception) -> RedisError:
    """What is told of replies whose reading raised this.

    Who reads may be wrong as well as who wrote, and nothing tells the two apart: both are named,
    and the error itself is the cause of what is raised.
    """
    return RedisError(
        "the server's answer is none that the request can have, or we misread it: "
        f"{type(error).__name__}: {error}"
    )


def unless_missing(reply: Reply) -> Reply | None:
    """The reply, or None if it was refused because there is no such key or group.

    Any other refusal is raised: one who may not look must not be told that nothing is there.
    """
    if isinstance(reply, ReplyError) and _MISSING.match(str(reply)):
        return None
    return checked(reply)


def told(error: ReplyError) -> str:
    """What the server said, its own word for the refusal first, as new servers put it.

    Old ones hide the refusal of a command inside a script (`NOGROUP`, `OOM`, `READONLY`) behind
    `ERR Error running script`.
    """
    text = str(error)
    found = _REFUSED_IN_SCRIPT.fullmatch(text)
    return f"{found['told']} script: on @user_script:{found['line']}." if found else text


def unraised(call: Call[T]) -> Call[T | RedisError]:
    """The same call, whose refusal is an answer: it must not hide those of its neighbours.

    Nor must a reply that means nothing.
    """

    def parse(replies: list[Reply]) -> T | RedisError:
        try:
            return understood(call, replies)
        except RedisError as error:
            return error

    return Call(
        call.requests,
        parse,
        repeatable=call.repeatable,
        block_ms=call.block_ms,
        scripts=call.scripts,
    )


def all_checked(replies: list[Reply]) -> list[Reply]:
    """All replies of a pipeline, or the first refusal among them raised."""
    for reply in replies:
        checked(reply)
    return replies


def none_refused(replies: list[Reply]) -> None:
    """Nothing, of calls that are sent for what they do; the first refusal among them raised."""
    all_checked(replies)
