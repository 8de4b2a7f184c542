"""Who asks for room in a full queue, in which order, and for how long."""

import asyncio

import pytest

from chasquimq.engine.patience import Patience
from chasquimq.errors import QueueFullError
from tests.support.eventually import eventually

LONG_S = 30.0


class Room:
    """A queue with so much room; counts who asks."""

    def __init__(self, room=0):
        self.room = room
        self.tries = []
        self.let_in = []

    def of(self, who):
        async def attempt():
            self.tries.append(who)
            await asyncio.sleep(0)
            if not self.room:
                message = "full"
                raise QueueFullError(message)
            self.room -= 1
            self.let_in.append(who)
            return who

        return attempt


async def test_who_finds_room_asks_once():
    room = Room(2)
    assert await Patience().in_line(room.of("a"), LONG_S) == "a"
    assert room.tries == ["a"]


async def test_while_there_is_no_room_one_asks_and_the_others_wait_behind():
    room, patience = Room(), Patience()
    tasks = [asyncio.create_task(patience.in_line(room.of(n), LONG_S)) for n in range(20)]
    await eventually(lambda: len(room.tries) >= 24)  # each at first, then one again and again
    assert sorted(room.tries[:20]) == list(range(20))
    assert set(room.tries[20:]) == {0}
    assert repr(patience) == "<Patience 1 asking, 19 in line>"
    room.room = 20
    assert await asyncio.gather(*tasks) == list(range(20))
    assert room.let_in == list(range(20))
    assert repr(patience) == "<Patience 0 asking, 0 in line>"


async def test_who_comes_while_others_wait_stands_behind_them():
    room, patience = Room(), Patience()
    early = asyncio.create_task(patience.in_line(room.of("early"), LONG_S))
    await eventually(lambda: len(room.tries) > 1)
    late = asyncio.create_task(patience.in_line(room.of("late"), LONG_S))
    await asyncio.sleep(0)
    assert "late" not in room.tries
    room.room = 2
    await asyncio.gather(early, late)
    assert room.let_in == ["early", "late"]


async def test_patience_ends_after_its_time_and_not_before_whether_one_asks_or_waits_behind():
    room, patience, loop = Room(), Patience(), asyncio.get_running_loop()
    began = loop.time()
    outcomes = await asyncio.gather(
        *(patience.in_line(room.of(n), 0.15) for n in range(3)), return_exceptions=True
    )
    assert [type(each) for each in outcomes] == [QueueFullError] * 3
    assert loop.time() - began >= 0.15
    assert {room.tries.count(n) > 1 for n in range(3)} == {True}  # a last time, too
    assert repr(patience) == "<Patience 0 asking, 0 in line>"


@pytest.mark.parametrize("who", [0, 1])
async def test_who_gives_up_lets_the_others_go_on(who):
    room, patience = Room(), Patience()
    tasks = [asyncio.create_task(patience.in_line(room.of(n), LONG_S)) for n in range(3)]
    await eventually(lambda: len(room.tries) > 4)
    tasks[who].cancel()
    room.room = 2
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes.pop(who), asyncio.CancelledError)
    assert outcomes == [n for n in range(3) if n != who]
    assert repr(patience) == "<Patience 0 asking, 0 in line>"


async def test_who_is_let_in_and_cancelled_in_the_same_turn_hands_on_its_turn():
    room, patience = Room(), Patience()
    tasks = [asyncio.create_task(patience.in_line(room.of(n), LONG_S)) for n in range(3)]
    await eventually(lambda: len(room.tries) > 4)
    tasks[0].add_done_callback(lambda _: tasks[1].cancel())
    room.room = 2
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[0] == 0
    assert outcomes[2] == 2
    assert repr(patience) == "<Patience 0 asking, 0 in line>"


async def test_another_error_is_raised_at_once_and_keeps_nobody_waiting():
    room, patience = Room(), Patience()

    async def break_down():
        message = "no server"
        raise OSError(message)

    first = asyncio.create_task(patience.in_line(room.of("a"), LONG_S))
    await eventually(lambda: len(room.tries) > 1)
    second = asyncio.create_task(patience.in_line(break_down, LONG_S))
    third = asyncio.create_task(patience.in_line(room.of("c"), LONG_S))
    room.room = 2
    outcomes = await asyncio.gather(first, second, third, return_exceptions=True)
    assert outcomes[::2] == ["a", "c"]
    assert isinstance(outcomes[1], OSError)


async def test_who_wants_much_waits_beside_the_line():
    room, patience = Room(), Patience()
    single = asyncio.create_task(patience.in_line(room.of("single"), LONG_S))
    await eventually(lambda: len(room.tries) > 1)
    bulk = asyncio.create_task(patience.alone(room.of("bulk"), LONG_S))
    await eventually(lambda: "bulk" in room.tries)
    room.room = 2
    assert await asyncio.gather(single, bulk) == ["single", "bulk"]
