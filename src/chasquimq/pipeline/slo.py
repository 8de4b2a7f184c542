"""What a user promises: so many jobs of a hundred done within a time."""

from dataclasses import dataclass

from chasquimq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Slo:
    """A job is good if it completed within `within_ms` of being added; `target` of all should be.

    Burn is the share of jobs that were not good over the share that may be: 1 spends the budget
    exactly, 2 twice as fast.
    """

    within_ms: int = 60_000
    target: float = 0.99

    def __post_init__(self) -> None:
        """Refuse what no job or every job would keep."""
        if self.within_ms < 1:
            msg = f"the SLO's time is {self.within_ms} ms: use 1 or more"
            raise ConfigError(msg)
        if not 0 < self.target < 1:
            msg = f"the SLO's target is {self.target}: use a share between 0 and 1, such as 0.99"
            raise ConfigError(msg)
