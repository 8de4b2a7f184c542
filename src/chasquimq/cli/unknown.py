"""Says that a queue is not known, where an empty answer may be that to a mistyped name."""

from chasquimq.broker.survey import Depths, depths
from chasquimq.cli.options import Session
from chasquimq.cli.problems import Refusal
from chasquimq.cli.render import remark
from chasquimq.cli.run import reading, run
from chasquimq.wire.keys import QueueKeys

_UNKNOWN = "nothing is known of {queue}: see  chasqui queues  for those there are"


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
