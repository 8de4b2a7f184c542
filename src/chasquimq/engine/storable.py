"""Says which results a server can keep, before a finished job is settled with one that it cannot.

A server ends the connection on an argument over its `proto-max-bulk-len`, 512 MiB unless it says
otherwise. Sent again and again, such a result would make finished work run until its attempts are
used up, and every other call of the worker wait meanwhile.
"""

from chasquimq.errors import UnrecoverableError

MOST_RESULT_BYTES = 500 << 20
"""What is left to a result of the 512 MiB, with room for what travels beside it."""


def storable(result: bytes) -> bytes:
    """The same result; raises `UnrecoverableError` if it is too large: the work is done."""
    if len(result) > MOST_RESULT_BYTES:
        msg = (
            f"the handler's return value cannot be stored: it has {len(result)} bytes, and a "
            f"result may have {MOST_RESULT_BYTES}; store it elsewhere and return where it is"
        )
        raise UnrecoverableError(msg)
    return result
