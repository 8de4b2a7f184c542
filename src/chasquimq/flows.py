"""`FlowProducer`: says that there are no flows of parent and child jobs here."""

from chasquimq.errors import NotSupportedError


class FlowProducer:
    """Not supported: a queue knows no parents and children.

    It is here so that code written for another binding fails where it asks for one, with a remedy,
    and not at its import.
    """

    def __init__(self, *_arguments: object, **_options: object) -> None:
        """Refuse, whatever the arguments: `NotSupportedError`."""
        msg = (
            "FlowProducer: flows of parent and child jobs are not supported; add the next job from "
            "the handler of the one before, or wait for results with Queue.wait_for_result"
        )
        raise NotSupportedError(msg)
