"""`RepeatableSpec`: a recurring job as a caller of the engine says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from chasquimq import given
from chasquimq.engine import cadence
from chasquimq.engine.options import JobId
from chasquimq.wire import repeat
from chasquimq.wire.repeat import MissedFiresPolicy, RepeatPattern, spec_key
from chasquimq.wire.retry import RetryOverride


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatableSpec:
    """A recurring job. `ValueError` or `TypeError` if a part of it cannot work."""

    job_name: str
    """The name of the jobs it fires."""
    pattern: RepeatPattern
    """When it fires."""
    payload: bytes
    """The payload of the jobs it fires."""
    key: str = ""
    """What it is stored under; empty derives one from the name and the pattern."""
    limit: int | None = None
    """Fires in all; None or 0 is no limit."""
    start_after_ms: given.InstantLike | None = None
    """No window before this; epoch milliseconds or a `datetime`."""
    end_before_ms: given.InstantLike | None = None
    """No window after this; epoch milliseconds or a `datetime`."""
    missed_fires: MissedFiresPolicy = field(default_factory=MissedFiresPolicy.skip)
    """What becomes of windows that nobody fired."""
    retry: RetryOverride | None = None
    """Ours. Retry rules that each fired job takes along."""
    job_id: JobId | None = None
    """Ours. Stands in place of the key in the ids of fired jobs."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        given.text("job_name", self.job_name)
        given.text("key", self.key)
        given.payload(self.payload)
        given.check_kind("pattern", self.pattern, RepeatPattern)
        given.check_kind("missed_fires", self.missed_fires, MissedFiresPolicy)
        cadence.check_pattern(self.pattern)
        if self.job_id is not None:
            given.text_id("job_id", self.job_id, "leave it out to use the key")

    @staticmethod
    def of(spec: "RepeatableSpec | Mapping[str, Any]") -> "RepeatableSpec":
        """The spec in a dict of the same names; `pattern` and `missed_fires` may be dicts too."""
        if isinstance(spec, RepeatableSpec):
            return spec
        if not isinstance(spec, Mapping):
            msg = f"spec must be a RepeatableSpec or its dict, got {type(spec).__name__}"
            raise TypeError(msg)
        given.check_keys("spec", spec, tuple(each.name for each in fields(RepeatableSpec)))
        named = {name: value for name, value in spec.items() if value is not None}
        if isinstance(named.get("pattern"), Mapping):
            named["pattern"] = RepeatPattern.from_dict(named["pattern"])
        if isinstance(named.get("missed_fires"), Mapping):
            named["missed_fires"] = MissedFiresPolicy.from_dict(named["missed_fires"])
        return RepeatableSpec(**named)

    def resolved_key(self) -> str:
        """What it is stored under: its key, or `<job name>::<signature of the pattern>`."""
        return self.key or spec_key(self.job_name, self.pattern)

    def stored(self) -> repeat.RepeatableSpec:
        """The value that the wire knows."""
        return repeat.RepeatableSpec(
            self.resolved_key(),
            self.job_name,
            self.pattern,
            given.payload(self.payload),
            self.limit,
            given.instant_or_none("start_after_ms", self.start_after_ms),
            given.instant_or_none("end_before_ms", self.end_before_ms),
            self.missed_fires,
            self.retry,
        )


SpecLike: TypeAlias = RepeatableSpec | Mapping[str, Any]
"""A `RepeatableSpec`, or a dict of the same names."""
