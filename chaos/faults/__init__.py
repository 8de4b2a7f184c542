"""The table of everything that the nemesis can do."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.faults import network, poison, server, topology, workers, wrong_types
from chaos.options import TOPOLOGIES
from chaos.scene import Scene
from chaos.steps import STEPS
from tests.support.proxy import Proxy

_SINGLE = ("single",)


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break something: its name, how often it is chosen, where it can be played."""

    name: str
    weight: int
    play: Callable[[Scene, random.Random], str] = field(repr=False)
    """Do it, undo it if it can be undone, and say what it was done to."""
    topologies: tuple[str, ...] = TOPOLOGIES


FAULTS = (
    Fault("kill-worker", 6, workers.kill("worker")),
    Fault("kill-producer", 2, workers.kill("producer")),
    Fault("kill-leader", 2, workers.kill("promoter", "scheduler")),
    *(Fault(f"kill-{step}", 2, workers.kill_at(step)) for step in STEPS),
    Fault("flush-lost", 2, workers.kill_in_flush(0.0), _SINGLE),
    Fault("flush-torn", 2, workers.kill_in_flush(0.5), _SINGLE),
    Fault("flush-unheard", 2, workers.kill_in_flush(1.0), _SINGLE),
    Fault("freeze-worker", 4, workers.freeze("worker")),
    Fault("freeze-leader", 2, workers.freeze("promoter", "scheduler")),
    Fault("block-loop", 4, workers.block_loop),
    Fault("stop-worker", 4, workers.stop),
    Fault("reset", 6, network.reset, _SINGLE),
    Fault("reset-everybody", 2, network.reset_everybody),
    Fault("lose-request", 4, network.lose_request, _SINGLE),
    Fault("truncate-answer", 6, network.truncate_answer, _SINGLE),
    Fault("cut-burst", 2, network.cut_burst, _SINGLE),
    Fault("refuse", 4, network.lasting("refused", Proxy.refuse, Proxy.accept), _SINGLE),
    Fault("mute", 4, network.lasting("mute", Proxy.hold_answers, Proxy.pass_answers), _SINGLE),
    Fault("deaf", 3, network.lasting("deaf", Proxy.hold_requests, Proxy.pass_requests), _SINGLE),
    Fault("kill-server", 3, server.kill_and_restart, ("single", "cluster")),
    Fault("freeze-server", 3, server.freeze, ("single", "cluster")),
    Fault("flush-scripts", 4, server.flush_scripts),
    Fault("destroy-group", 2, server.destroy_group),
    Fault("exhaust-memory", 3, server.exhaust_memory),
    Fault("pause-queue", 3, server.pause_queue),
    Fault("poison-entry", 5, poison.entry),
    Fault("poison-member", 4, poison.member),
    Fault("poison-spec", 2, poison.spec),
    Fault("wrong-type", 6, wrong_types.wrong_type),
    # Each takes ten seconds and more: with as many as of others the server is away most of the
    # time, and that excuses whatever happens.
    Fault("failover", 2, topology.fail_over, ("sentinel",)),
    Fault("crash-primary", 1, topology.crash_primary, ("sentinel",)),
    Fault("move-slot", 8, topology.move_slot, ("cluster",)),
)


def playable(topology: str, names: tuple[str, ...]) -> list[Fault]:
    """Those of a topology, or of these names only; `ValueError` if none is left."""
    chosen = [
        fault
        for fault in FAULTS
        if topology in fault.topologies and (not names or fault.name in names)
    ]
    if not chosen:
        message = f"none of {', '.join(names)} can be played on {topology}"
        raise ValueError(message)
    return chosen
