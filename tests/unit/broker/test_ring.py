"""`Ring`: no two calls of all producers ever have the same place, or one of them would be lost."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from chasquimq.broker.ring import SLOTS, Ring, Ticket
from tests.support.embedded_users import run_script

FORK = """
import os
from chasquimq.broker.ring import Ring

ring = Ring("p1")
ring.ticket()
for _ in range(2):
    child = os.fork()
    ticket = ring.ticket()
    os.write(1, f"{ticket.producer_id} {ticket.serial}\\n".encode())
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_tickets_count_from_one_and_go_round_the_slots():
    ring = Ring("p1")
    tickets = [ring.ticket() for _ in range(SLOTS + 1)]

    assert tickets[0] == Ticket("p1", slot=1, serial=1)
    assert tickets[-1] == Ticket("p1", slot=1, serial=SLOTS + 1)
    assert {ticket.slot for ticket in tickets} == set(range(SLOTS))


def test_two_rings_count_on_their_own():
    first, second = Ring("p1"), Ring("p2")

    assert first.ticket() == Ticket("p1", 1, 1)
    assert second.ticket() == Ticket("p2", 1, 1)


def test_threads_that_share_a_ring_never_get_the_same_ticket():
    ring = Ring("p1")
    with ThreadPoolExecutor(4) as pool:
        taken = [pool.submit(lambda: [ring.ticket() for _ in range(5_000)]) for _ in range(4)]
    serials = [ticket.serial for each in taken for ticket in each.result()]

    assert sorted(serials) == list(range(1, 20_001))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_is_a_producer_of_its_own():
    """With the parent's name and count the server would take its jobs for repeated ones."""
    tickets = run_script(FORK).splitlines()

    assert len(set(tickets)) == 4
    parents = [ticket for ticket in tickets if ticket.startswith("p1 ")]
    assert sorted(parents) == ["p1 2", "p1 3"]
    children = {ticket.split()[0] for ticket in tickets} - {"p1"}
    assert len(children) == 2
