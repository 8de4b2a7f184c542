"""Leases shorter than a user may choose, for tests that wait until one is out."""

from chasquimq.config import ConsumerConfig


def with_lease(config: ConsumerConfig, lease_ms: int | None) -> ConsumerConfig:
    """The same config, in which the lease has been set behind the back of its rule; None: as is.

    A lease this short may run out under a busy worker that lives: only for tests in which that does
    no harm.
    """
    if lease_ms is not None:
        object.__setattr__(config, "claim_min_idle_ms", lease_ms)
    return config
