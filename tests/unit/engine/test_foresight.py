"""How far a reader reads ahead, by how fast jobs finish, and when that is too far."""

import pytest

from chasquimq.engine.foresight import Foresight

SECOND_US = 1_000_000


def after(rate, *, batch=64):
    """A foresight that has seen jobs finish at this rate for a second."""
    foresight = Foresight(batch, 0)
    foresight.look(rate, SECOND_US)
    return foresight


@pytest.mark.parametrize(
    ("rate", "ahead"),
    [(0, 0), (19, 0), (200, 10), (1_280, 64), (6_400, 64), (10_000, 100), (51_200, 512)],
)
def test_it_is_what_is_done_in_50_ms_up_to_a_batch_or_in_10_ms_up_to_eight(rate, ahead):
    assert after(rate).ahead == ahead


def test_it_looks_every_50_ms():
    foresight = Foresight(64, 0)
    foresight.look(1_000, 49_999)
    assert foresight.ahead == 0
    foresight.look(1_000, 50_000)
    assert foresight.ahead == 200
    foresight.look(1_000, 99_999)
    assert foresight.ahead == 200
    foresight.look(1_000, 100_000)
    assert foresight.ahead == 0


@pytest.mark.parametrize(
    ("free", "portion"),
    [(100, 356), (0, 256), (-255, 256), (-256, 256), (-257, 0), (-512, 0), (-600, 0)],
)
def test_half_of_it_is_asked_for_beyond_the_free_slots_and_not_before_there_is_room(free, portion):
    assert after(51_200).portion(free) == portion


def test_without_foresight_it_is_the_free_slots():
    foresight = Foresight(64, 0)
    assert [foresight.portion(free) for free in (100, 1, 0, -5)] == [100, 1, 0, 0]


def test_what_waits_beyond_it_for_a_second_has_lingered():
    foresight = after(51_200)
    assert not foresight.has_lingered(-512, 2 * SECOND_US)
    foresight.look(51_201, 3 * SECOND_US)
    assert not foresight.has_lingered(-300, 3 * SECOND_US)
    assert not foresight.has_lingered(-299, 4 * SECOND_US - 1)
    assert foresight.has_lingered(-299, 4 * SECOND_US)
    foresight.forget()
    assert not foresight.has_lingered(-299, 9 * SECOND_US)


@pytest.mark.parametrize("is_asked", [True, False])
def test_room_in_between_begins_it_anew(is_asked):
    foresight = Foresight(64, 0)
    assert not foresight.has_lingered(-10, 0)
    if is_asked:
        assert foresight.portion(1)
    else:
        assert not foresight.has_lingered(0, 500_000)
    assert not foresight.has_lingered(-10, SECOND_US)
    assert foresight.has_lingered(-10, 2 * SECOND_US)
