"""`AddOptions`: what a producer may say about one job, besides its payload."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from chasquimq import given
from chasquimq.wire.retry import BackoffSpec, RetryOverride

JobId: TypeAlias = str
"""The id of a job: a ULID, unless the caller chose it."""

_NAMES = ("id", "retry", "name")
_RETRY_NAMES = ("max_attempts", "backoff")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """Options of one add.

    With an `id` the job is added only if that id is not taken, in any process, until an hour after
    it was due. A `name` has 256 bytes at most; a longer one is refused when the job is added.
    """

    id: JobId | None = None
    """The job's id; None makes one."""
    retry: RetryOverride | None = None
    """The job's own retry rules, before those of its worker."""
    name: str = ""
    """The dispatch name."""

    def __post_init__(self) -> None:
        """Refuse what cannot be an id or a name."""
        if self.id is not None:
            given.text_id("id", self.id, "leave it out for a generated one")
        given.text("name", self.name)
        if self.retry is not None:
            given.check_kind("retry", self.retry, RetryOverride)

    @staticmethod
    def of(options: "AddOptions | Mapping[str, Any]") -> "AddOptions":
        """The options in a dict of the same names, nested likewise; `ValueError` for others."""
        if isinstance(options, AddOptions):
            return options
        if not isinstance(options, Mapping):
            msg = f"opts must be AddOptions or their dict, got {type(options).__name__}"
            raise TypeError(msg)
        given.check_keys("opts", options, _NAMES)
        named = {name: value for name, value in options.items() if value is not None}
        if isinstance(named.get("retry"), Mapping):
            named["retry"] = _retry_of(named["retry"])
        return AddOptions(**named)


OptionsLike: TypeAlias = AddOptions | Mapping[str, Any]
"""`AddOptions`, or a dict of the same names."""


def _retry_of(raw: Mapping[str, Any]) -> RetryOverride:
    given.check_keys("retry", raw, _RETRY_NAMES)
    backoff = raw.get("backoff")
    if isinstance(backoff, Mapping):
        backoff = BackoffSpec.from_dict(backoff)
    return RetryOverride(raw.get("max_attempts"), backoff)
