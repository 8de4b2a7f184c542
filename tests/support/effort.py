"""How hard properties are tried: a little, the same way every time, or for long and at random.

`CHASQUI_FUZZ=long` (what `make fuzz` sets) asks for the second. Failures print what brings them
about: the steps of a state machine, the values of a property, and a blob for
`@reproduce_failure`.
"""

import os
from typing import TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")

IS_LONG = os.environ.get("CHASQUI_FUZZ") == "long"


def effort(little: T, much: T) -> T:
    """The one that was asked for."""
    return much if IS_LONG else little


def load_profile() -> None:
    """Make this effort the default of every property; one may still say otherwise."""
    # A shared machine may pause for longer than any deadline.
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    settings.register_profile(
        "little", deadline=None, derandomize=True, database=None, suppress_health_check=slow
    )
    settings.register_profile(
        "much", deadline=None, print_blob=True, max_examples=20_000, suppress_health_check=slow
    )
    settings.load_profile(effort("little", "much"))
