"""What producers ask for: jobs of every kind, and now and then many at once."""

import random
from collections import Counter
from itertools import islice

from chaos.workload import burst_size, wanted
from chasquimq.broker.ring import IDMP_CALLS, SLOTS


def some_wishes(count, seed=1):
    return list(islice(wanted(random.Random(seed)), count))  # noqa: S311


def test_bursts_are_seldom_and_larger_than_what_a_server_remembers_of_a_producer():
    bursts = [each.burst for each in some_wishes(50_000) if each.burst]
    assert 10 < len(bursts) < 50
    assert min(bursts) > IDMP_CALLS * 2
    assert max(bursts) > SLOTS
    assert sum(bursts) < 50_000 / 2  # so that the rate can be kept


def test_most_bursts_are_too_small_for_a_ring_to_turn():
    chance = random.Random(1)  # noqa: S311
    turning = Counter(burst_size(chance) > SLOTS for _ in range(1_000))
    assert turning[False] > turning[True] > 100


def test_the_same_seed_asks_for_the_same():
    assert some_wishes(500) == some_wishes(500)
    assert some_wishes(500) != some_wishes(500, seed=2)
