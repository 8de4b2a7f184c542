"""Carries out steps: yields of calls, each answered before the next is chosen."""

from typing import TypeVar

from chasquimq.broker.blocking import BlockingConnection
from chasquimq.broker.call import Steps
from chasquimq.broker.connection import Connection
from chasquimq.errors import ChasquiError

T = TypeVar("T")


async def drive(connection: Connection, steps: Steps[T]) -> T:
    """Carry out steps over an asyncio connection; an error of a call is thrown into the steps."""
    try:
        call = next(steps)
        while True:
            try:
                answer = await connection.run(call)
            except ChasquiError as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


def drive_blocking(connection: BlockingConnection, steps: Steps[T]) -> T:
    """The same over a blocking connection."""
    try:
        call = next(steps)
        while True:
            try:
                answer = connection.run(call)
            except ChasquiError as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
