"""What a program is asked to do, and what it answers: the protocol between it and the bench.

Both travel as JSON: the order as the program's only argument, the answer as the last line that it
prints. Programs in other languages speak the same.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One scenario for one rival on one server."""

    adapter: str
    """The module of `bench.program.adapters` that knows the rival."""
    body: str
    """What to do; a name in `bench.program.bodies`."""
    port: int
    """Where the server listens, on loopback."""
    jobs: int = 1_000
    bulk: int = 50
    """Jobs in one call, where jobs are added in bulk."""
    concurrency: int = 100
    """Handlers at a time, or adds."""
    payload_bytes: int = 0
    """Size of the text in a job's data; 0 stands for a tiny payload."""
    pause_ms: float = 0
    """How long a handler sleeps."""
    events: bool = True
    """Whether the worker tells events, where the rival has them."""
    results: bool = False
    """Whether what handlers return is kept, where the rival can."""
    rate: float = 200
    """Jobs a second, where they come one by one; 0 stands for half of what can be worked off."""
    seconds: float = 10
    """How long to look, where time is what is asked for."""
    processes: int = 1
    depths: tuple[int, ...] = ()
    """How many jobs wait already, one measurement each."""

    @property
    def url(self) -> str:
        """The server."""
        return f"redis://127.0.0.1:{self.port}"

    def to_json(self) -> str:
        """As a program takes it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Order":
        """As it was sent."""
        given = json.loads(text)
        given["depths"] = tuple(given["depths"])
        return cls(**{each.name: given[each.name] for each in fields(cls) if each.name in given})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program saw: figures by name, or the reason why there are none."""

    figures: Mapping[str, float] = field(default_factory=dict)
    skipped: str | None = None

    def to_json(self) -> str:
        """As a program tells it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Answer":
        """As it was told."""
        told = json.loads(text)
        return cls(told.get("figures", {}), told.get("skipped"))
