"""Who takes part in a run: ours, the peers that can be had, and the physical limit."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.contest import Contender, by_order
from bench.limits import limit, limit_program
from bench.peers import PEERS, MissingError, home
from bench.results import OURS
from bench.scenarios import Scenario
from bench.server import BenchServer
from bench.targets import LIMIT, TOLD_LIMIT

_OURS = (sys.executable, "-m", "bench.program")


@dataclass(frozen=True, slots=True)
class Field:
    """The contenders of a run; the limit is another program in every scenario."""

    everywhere: Sequence[Contender]
    limit_program: Sequence[str]
    port: int
    versions: dict[str, str]
    missing: Sequence[str]
    """A line for each who could not come."""

    def contenders(self, scenario: Scenario) -> list[Contender]:
        """Those of a scenario."""
        at_most = limit(scenario.name, self.limit_program)
        with_events = limit(scenario.name, self.limit_program, is_told=True)
        return [
            *self.everywhere,
            Contender(LIMIT, "", self.port, at_most),
            Contender(TOLD_LIMIT, "", self.port, with_events),
        ]


def field(server: BenchServer, peers: Sequence[str], beside: BenchServer | None = None) -> Field:
    """Gather them; with `beside`, ours takes part on that server too."""
    language, program = limit_program()
    versions, missing = {server.name: server.version, LIMIT: f"in {language}"}, []
    contenders = [Contender(OURS, "chasqui", server.port, by_order(_OURS))]
    if beside is not None:
        versions[beside.name] = beside.version
        contenders.append(
            Contender(f"{OURS}, {beside.name}", "chasqui", beside.port, by_order(_OURS))
        )
    for name in peers:
        peer = PEERS[name]
        try:
            found = home(peer)
        except MissingError as error:
            missing.append(f"{name} is missing: {error}")
            continue
        versions[name] = found.version
        contenders.append(
            Contender(name, peer.adapter, server.port, by_order(found.command), peer.share)
        )
    return Field(contenders, program, server.port, versions, missing)
