"""Pure: the delay before the next attempt, from the queue's curve and the job's own rules."""

import random

from chasquimq.config import RetryConfig
from chasquimq.wire.retry import BackoffKind, BackoffSpec


def backoff_ms(
    failures: int, curve: RetryConfig, override: BackoffSpec | None, chance: random.Random
) -> int:
    """Milliseconds to wait after the `failures`-th failed run (from 1).

    The base is capped, then a random part between minus and plus the jitter is added, and the sum
    is kept between 0 and the cap. What a job's own rules leave open comes from the curve; a kind of
    growth that we do not know counts as exponential.
    """
    if override is None:
        base, growth = curve.initial_backoff_ms, BackoffKind.EXPONENTIAL
        cap, multiplier, jitter = curve.max_backoff_ms, curve.multiplier, curve.jitter_ms
    else:
        base, growth = override.delay_ms, override.growth
        cap = curve.max_backoff_ms if override.max_delay_ms is None else override.max_delay_ms
        multiplier = curve.multiplier if override.multiplier is None else override.multiplier
        jitter = curve.jitter_ms if override.jitter_ms is None else override.jitter_ms
    capped = min(cap, base if growth is BackoffKind.FIXED else _grown(base, multiplier, failures))
    spread = chance.randint(-jitter, jitter) if jitter else 0
    return max(0, min(cap, int(capped) + spread))


def _grown(base: int, multiplier: float, failures: int) -> float:
    try:
        return base * multiplier ** (max(1, failures) - 1)
    except OverflowError:
        return float("inf") if base else 0.0
