"""Carries out steps: yields of calls, each answered before the next is chosen.

What steps make of replies that mean nothing is a `RedisError`, as it is for a single call. What
they raise before the first reply, and an `Objection`, is for the caller and passes.
"""

from typing import TypeVar

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import MEANINGLESS, Objection, Steps, not_understood
from chasquimq.broker.connection import Connection
from chasquimq.errors import ChasquiError

T = TypeVar("T")


async def drive(connection: Connection, steps: Steps[T]) -> T:
    """Carry out steps over an asyncio connection; an error of a call is thrown into the steps."""
    has_heard = False
    try:
        call = next(steps)
        while True:
            try:
                answer = await connection.run(call)
                has_heard = True
            except ChasquiError as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    except Objection as objection:
        raise objection.error from None
    except MEANINGLESS as error:
        if not has_heard:
            raise
        raise not_understood(error) from error
    finally:
        steps.close()  # now, not when the traceback of a cancellation is forgotten


def drive_blocking(connection: BlockingConnection, steps: Steps[T]) -> T:
    """The same over a blocking connection."""
    has_heard = False
    try:
        call = next(steps)
        while True:
            try:
                answer = connection.run(call)
                has_heard = True
            except ChasquiError as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    except Objection as objection:
        raise objection.error from None
    except MEANINGLESS as error:
        if not has_heard:
            raise
        raise not_understood(error) from error
    finally:
        steps.close()  # now, not when the traceback of a cancellation is forgotten
