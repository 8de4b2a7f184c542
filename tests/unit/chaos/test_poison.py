"""Poison of `chaos`: what is left in a queue, and in which order."""

import random
import threading
from collections import Counter

import pytest
import redis

from chaos.bag import Bag
from chaos.faults import poison
from chaos.scene import Scene
from chasquimq.wire.keys import QueueKeys

LEAVE = {"entry": (poison.entry, poison.ENTRIES), "member": (poison.member, poison.MEMBERS)}


class Server:
    """A stage that takes everything; of what it was told while it was away it has nothing."""

    def __init__(self):
        self.is_away = False

    def run(self, *words):
        if self.is_away:
            message = "away"
            raise redis.ConnectionError(message)
        return b"1-1"


class Scroll(list):
    """What was written down."""

    write = list.append


@pytest.mark.parametrize("kind", LEAVE)
@pytest.mark.parametrize("seed", range(5))
def test_a_run_leaves_every_shape_before_any_comes_again(kind, seed):
    play, shapes = LEAVE[kind]
    scene = Scene(Server(), None, QueueKeys("q"), Scroll(), threading.Event())
    chances = (random.Random(f"{seed}:{number}") for number in range(3 * len(shapes)))  # noqa: S311
    dealt = [play(scene, chance) for chance in chances]
    for begin in range(0, len(dealt), len(shapes)):
        assert sorted(dealt[begin : begin + len(shapes)]) == sorted(what for what, _ in shapes)
    assert Counter(each.shape for each in scene.scroll) == Counter(f"{kind}: {w}" for w in dealt)


def test_what_was_not_left_for_certain_is_dealt_again():
    scene = Scene(Server(), None, QueueKeys("q"), Scroll(), threading.Event())
    chance = random.Random(1)  # noqa: S311
    scene.stage.is_away = True
    for _ in range(20):
        with pytest.raises(redis.ConnectionError):
            poison.entry(scene, chance)
    scene.stage.is_away = False
    dealt = [poison.entry(scene, chance) for _ in poison.ENTRIES]
    assert sorted(dealt) == sorted(what for what, _ in poison.ENTRIES)


def test_two_runs_have_bags_of_their_own():
    one, other = Bag("abc"), Bag("abc")
    with one.deal(random.Random(1)) as first, other.deal(random.Random(1)) as second:  # noqa: S311
        assert first == second
