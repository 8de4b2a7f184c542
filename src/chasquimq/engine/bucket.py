"""Pure: a token bucket on a clock that the caller reads, for a limit that is one worker's own."""


class Bucket:
    """At most `most` tokens, refilled evenly over `duration_ms`; full at first."""

    def __init__(self, most: int, duration_ms: int, *, now_us: int) -> None:
        """Begin full."""
        self._most = most
        self._per_us = most / (duration_ms * 1_000)
        self._tokens = float(most)
        self._since_us = now_us

    def __repr__(self) -> str:
        """Show what was there when it was last looked at."""
        return f"<Bucket {self._tokens:.1f}/{self._most}>"

    def whole(self, now_us: int) -> int:
        """How many tokens can be spent now."""
        self._refill(now_us)
        return int(self._tokens)

    def spend(self, count: int) -> None:
        """Take out tokens that `whole` said were there."""
        self._tokens -= count

    def wait_ms(self, now_us: int) -> int:
        """How long until there is a token, 1 at least; 0 if there is one."""
        self._refill(now_us)
        if self._tokens >= 1:
            return 0
        return max(1, -int(-(1 - self._tokens) / self._per_us // 1_000))

    def _refill(self, now_us: int) -> None:
        gained = max(0, now_us - self._since_us) * self._per_us
        self._tokens = min(self._most, self._tokens + gained)
        self._since_us = now_us
