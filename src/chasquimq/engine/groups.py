"""Says why a queue that another group reads is refused."""


def other_group(queue: str, group: str) -> str:
    """Why a queue that another group reads is refused."""
    return (
        f"queue {queue!r} is read by group {group!r}: two groups on one queue "
        f"would lose jobs; use group={group!r}, or destroy that group first"
    )
