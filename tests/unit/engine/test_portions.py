"""What travels in one call is cut by number and by size, in order, and nothing is left out."""

from hypothesis import given
from hypothesis import strategies as st

from chasquimq.broker.stream import Completion
from chasquimq.engine.acker import in_portions
from chasquimq.engine.portions import SETTLED_BYTES, portions


@given(st.lists(st.integers(0, 50)), st.integers(1, 9), st.integers(1, 99))
def test_portions_are_whole_in_order_and_as_small_as_they_have_to_be(sizes, most, most_bytes):
    parts = portions(range(len(sizes)), most, sizes, most_bytes=most_bytes)
    assert [at for part in parts for at in part] == list(range(len(sizes)))
    for part in parts:
        assert 1 <= len(part) <= most
        assert len(part) == 1 or sum(sizes[at] for at in part) <= most_bytes


def a_completion(size):
    return Completion(b"1-1", "j", "n", 1, 10, b"x" * size if size else False)


def test_small_values_travel_together_and_large_ones_apart():
    small = [a_completion(size) for size in (0, 5, 0)]
    assert in_portions(small) == [small]
    large = [a_completion(SETTLED_BYTES // 2) for _ in range(3)]
    assert [len(part) for part in in_portions(large)] == [2, 1]
    assert in_portions([a_completion(2 * SETTLED_BYTES)]) == [[a_completion(2 * SETTLED_BYTES)]]
