"""Says that a queue is not known, where an empty answer may be that to a mistyped name."""

from chasquimq.broker.survey import Depths, FoundQueues, depths, queues
from chasquimq.broker.target import TargetKind
from chasquimq.broker.url import parse_url
from chasquimq.cli.options import Session
from chasquimq.cli.problems import Refusal
from chasquimq.cli.render import remark
from chasquimq.cli.run import reading, run
from chasquimq.wire.keys import QueueKeys

_UNKNOWN = "nothing is known of {queue}: see  chasqui queues  for those there are"
# Enough to find the one that was meant; on a large server not all keys are looked at.
_MOST_NAMES = 10
_MOST_KEYS = 100_000


def look_at(session: Session, queue: str, group: str = "default") -> Depths:
    """How deep the queue is, and whether there is anything of it."""
    keys = QueueKeys(queue)

    async def look() -> Depths:
        async with reading(session, keys.tag) as reader:
            return await reader.ask(depths(keys, group))

    return run(look())


def tell_if_unknown(queue: str, found: Depths) -> None:
    """Say so on stderr, in one line."""
    if not found.is_known:
        remark(_UNKNOWN.format(queue=queue))


def remark_if_unknown(session: Session, queue: str) -> None:
    """Look, and say so; for commands that found nothing, which is an answer and no mistake."""
    tell_if_unknown(queue, look_at(session, queue))


def refusal(session: Session, queue: str, message: str) -> Refusal:
    """What to raise when something was not found: that the queue is not there is the reason."""
    is_known = look_at(session, queue).is_known
    return Refusal(message if is_known else _UNKNOWN.format(queue=queue))


def refuse_unknown(session: Session, queue: str, remedy: str) -> None:
    """Raise if there is nothing of a queue, where going on would leave something behind."""
    if look_at(session, queue).is_known:
        return
    msg = f"nothing is known of {queue}: {_there(session)}; check the name, or {remedy}"
    raise Refusal(msg)


def _there(session: Session) -> str:
    """Which queues there are, as far as one look shows."""

    async def look() -> FoundQueues:
        async with reading(session) as reader:
            return await reader.walk(queues(most_keys=_MOST_KEYS))

    found = run(look())
    shown, more = ", ".join(found.names[:_MOST_NAMES]), len(found.names) - _MOST_NAMES
    if more > 0:
        return f"there are {shown} and {more} more, see chasqui queues"
    # In a cluster the other nodes were not looked at.
    if found.is_complete and parse_url(session.redis_url).kind is not TargetKind.CLUSTER:
        return f"there are {shown}" if shown else "there are no queues"
    return f"there are {shown} and perhaps others" if shown else "see chasqui queues"
