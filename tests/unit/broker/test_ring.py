"""`Ring`: no two calls of all producers ever have the same place, or one of them would be lost."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from chasquimq.broker.ring import SLOTS, Ring, Ticket, Window
from tests.support.embedded_users import run_script

FORK = """
import os
from chasquimq.broker.ring import Ring

ring = Ring("p1")
ring.take()
for _ in range(2):
    child = os.fork()
    ticket, _ = ring.take()
    os.write(1, f"{ticket.producer_id} {ticket.serial}\\n".encode())
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
"""


def taken(ring):
    """The ticket of a call that is answered at once."""
    with ring.tickets() as [ticket]:
        return ticket


def test_tickets_count_from_one_and_go_round_the_slots():
    ring = Ring("p1")
    tickets = [taken(ring) for _ in range(SLOTS + 1)]

    assert tickets[0] == Ticket("p1", slot=1, serial=1)
    assert tickets[-1] == Ticket("p1", slot=1, serial=SLOTS + 1)
    assert {ticket.slot for ticket in tickets} == set(range(SLOTS))


def test_two_rings_count_on_their_own():
    first, second = Ring("p1"), Ring("p2")

    assert taken(first) == Ticket("p1", 1, 1)
    assert taken(second) == Ticket("p2", 1, 1)


def test_no_ticket_has_the_place_of_a_call_that_is_still_under_way():
    """As one would that waits for its link for long, while others come and go."""
    ring = Ring("p1")
    with ring.tickets() as [slow]:
        others = [taken(ring) for _ in range(3 * SLOTS)]
    places = [(ticket.producer_id, ticket.slot) for ticket in others]
    assert (slow.producer_id, slow.slot) not in places
    # One ring more is enough, as long as what came later is not slow, too.
    assert len({producer_id for producer_id, _ in places}) == 2
    assert len(set(others)) == len(others)


def test_rings_are_used_again_when_their_calls_are_over():
    ring = Ring("p1", size=4)
    names = set()
    for _ in range(50):
        with ring.tickets(10) as tickets:
            names.update(ticket.producer_id for ticket in tickets)
    assert len(names) == 3


def test_one_slow_call_keeps_no_other_ring_from_being_used_again():
    ring, names = Ring("p1", size=4), set()
    with ring.tickets():
        for _ in range(50):
            with ring.tickets(10) as tickets:
                names.update(ticket.producer_id for ticket in tickets)
    assert len(names) <= 5


def test_a_call_that_ends_amid_another_one_waits_for_nobody():
    """As where Python collects garbage while a number is given out."""
    window = Window(4)
    number = window.enter()
    with window._lock:  # noqa: SLF001 -- as `enter` holds it
        window.leave(number)
    assert [window.enter() for _ in range(5)] == [2, 3, 4, 5, None]


def test_more_calls_than_a_ring_has_places_are_in_several():
    with Ring("p1").tickets(2 * SLOTS + 1) as tickets:
        places = {(ticket.producer_id, ticket.slot) for ticket in tickets}
    assert len(places) == len(tickets)
    assert len({producer_id for producer_id, _ in places}) == 3


def test_a_window_is_open_again_when_the_first_of_it_has_left():
    window = Window(2)
    assert [window.enter() for _ in range(3)] == [1, 2, None]
    window.leave(2)
    assert window.enter() is None
    window.leave(1)
    assert [window.enter() for _ in range(3)] == [3, 4, None]


def test_threads_that_share_a_ring_never_get_the_same_ticket():
    ring = Ring("p1")
    with ThreadPoolExecutor(4) as pool:
        parts = [pool.submit(lambda: [taken(ring) for _ in range(5_000)]) for _ in range(4)]
    tickets = [ticket for part in parts for ticket in part.result()]

    assert len(set(tickets)) == len(tickets) == 20_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_is_a_producer_of_its_own():
    """With the parent's name and count the server would take its jobs for repeated ones."""
    tickets = run_script(FORK).splitlines()

    assert len(set(tickets)) == 4
    parents = [ticket for ticket in tickets if ticket.startswith("p1 ")]
    assert sorted(parents) == ["p1 2", "p1 3"]
    children = {ticket.split()[0] for ticket in tickets} - {"p1"}
    assert len(children) == 2
