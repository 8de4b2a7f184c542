"""`Counts`: exact, whether what it is asked for is in memory or in its file."""

import hashlib
import tracemalloc
from collections import Counter

import pytest

from chasquimq.spark.counts import Counts


def digest(number):
    return hashlib.blake2b(b"%d" % number, digest_size=15).digest()


@pytest.mark.parametrize("most_held", [1, 7, 1_000])
def test_counts_are_exact_however_little_is_held_in_memory(most_held):
    counts, expected = Counts(most_held), Counter()
    for number in (each * each % 97 for each in range(600)):
        assert counts.note(digest(number)) == expected[number]
        expected[number] += 1
    counts.close()


def test_memory_does_not_grow_with_what_is_noted():
    def grown(count):
        tracemalloc.start()
        counts = Counts(most_held=100)
        for number in range(count):
            counts.note(digest(number))
        counts.close()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert grown(20_000) < 1.1 * grown(2_000)


def test_digests_that_the_filter_cannot_tell_apart_are_still_counted_apart():
    one, other = (b"the same" + bytes([each]) for each in range(2))
    counts = Counts(most_held=1)
    assert [counts.note(each) for each in (one, other, b"some others", other, one)] == [
        0,
        0,
        0,
        1,
        1,
    ]
    counts.close()
    counts.close()
