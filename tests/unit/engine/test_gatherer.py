import asyncio
import logging

import pytest

from chasquimq.engine.gatherer import Gatherer


class Line:
    """A flush that lands when it is told to, and remembers what it was given."""

    def __init__(self):
        self.batches = []
        self.landed = []
        self.departed = asyncio.Event()
        self._landings = []

    async def flush(self, batch):
        self.batches.append(batch)
        landing = asyncio.get_running_loop().create_future()
        self._landings.append(landing)
        self.departed.set()
        await landing
        self.landed.append(batch)

    async def departure(self):
        await self.departed.wait()
        self.departed.clear()

    def land(self):
        self._landings.pop(0).set_result(None)


@pytest.fixture
async def make():
    made = []

    def make(flush, *, most=100, flights=1):
        made.append(Gatherer("test", flush, most=most, flights=flights))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.cut()


def collecting(into):
    async def flush(batch):
        into.append(batch)

    return flush


async def test_what_is_added_within_a_turn_leaves_together(make):
    batches = []
    gatherer = make(collecting(batches))
    await asyncio.sleep(0)  # the flight is waiting now
    for item in range(5):
        gatherer.add(item)
    await asyncio.sleep(0)
    gatherer.add(5)
    await gatherer.end()
    assert batches == [[0, 1, 2, 3, 4], [5]]


async def test_an_item_leaves_within_a_turn_of_the_loop_and_waits_for_no_timer(make):
    batches = []
    gatherer = make(collecting(batches))
    await asyncio.sleep(0)
    gatherer.add("now")
    await asyncio.sleep(0)
    assert batches == [["now"]]


async def test_a_batch_is_never_larger_than_the_limit(make):
    batches = []
    gatherer = make(collecting(batches), most=3)
    for item in range(8):
        gatherer.add(item)
    await gatherer.end()
    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_with_one_flight_the_next_batch_grows_until_the_first_has_landed(make):
    line = Line()
    gatherer = make(line.flush)
    gatherer.add(1)
    await line.departure()
    for item in (2, 3, 4):
        gatherer.add(item)
        await asyncio.sleep(0)
    assert (line.batches, len(gatherer)) == ([[1]], 3)
    line.land()
    await line.departure()
    line.land()
    await gatherer.end()
    assert line.landed == [[1], [2, 3, 4]]


async def test_with_one_flight_order_holds_across_batches(make):
    line = Line()
    gatherer = make(line.flush, most=2)
    for item in range(7):
        gatherer.add(item)
    for _ in range(4):
        await line.departure()
        line.land()
    await gatherer.end()
    assert [item for batch in line.landed for item in batch] == list(range(7))


async def test_two_flights_are_on_their_way_at_the_same_time_and_no_third(make):
    line = Line()
    gatherer = make(line.flush, flights=2)
    for item in (1, 2, 3):
        gatherer.add(item)
        await line.departure() if item < 3 else await asyncio.sleep(0)
    assert line.batches == [[1], [2]]
    line.land()
    await line.departure()
    line.land()
    line.land()
    await gatherer.end()
    assert line.landed == [[1], [2], [3]]


async def test_ending_flushes_what_waits_and_returns_when_nothing_is_on_its_way(make):
    line = Line()
    gatherer = make(line.flush)
    gatherer.add(1)
    await line.departure()
    gatherer.add(2)
    ending = asyncio.create_task(gatherer.end())
    line.land()
    await line.departure()
    assert not ending.done()
    line.land()
    await ending
    assert line.landed == [[1], [2]]
    assert len(gatherer) == 0


async def test_ending_what_never_started_or_has_ended_is_harmless():
    gatherer = Gatherer("test", collecting([]), most=1, flights=1)
    await gatherer.end()
    gatherer.start()
    await gatherer.end()
    await gatherer.end()


async def test_starting_twice_does_not_double_the_flights(make):
    line = Line()
    gatherer = make(line.flush)
    gatherer.start()
    gatherer.add(1)
    await line.departure()
    gatherer.add(2)
    await asyncio.sleep(0)
    assert line.batches == [[1]]
    line.land()
    await line.departure()
    line.land()


async def test_items_added_before_the_start_leave_with_it():
    batches = []
    gatherer = Gatherer("test", collecting(batches), most=10, flights=2)
    gatherer.add(1)
    gatherer.add(2)
    gatherer.start()
    await gatherer.end()
    assert batches == [[1, 2]]


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError()])
async def test_an_error_costs_only_its_own_batch_and_is_logged(make, caplog, error):
    landed = []

    async def flush(batch):
        if batch == ["bad"]:
            raise error
        landed.append(batch)

    gatherer = make(flush, most=1)
    for item in ("good", "bad", "better"):
        gatherer.add(item)
    with caplog.at_level(logging.ERROR, "chasquimq.engine"):
        await gatherer.end()
    assert landed == [["good"], ["better"]]
    assert "test: a batch of 1 was not written" in caplog.text


async def test_its_repr_says_how_much_waits():
    gatherer = Gatherer("acker", collecting([]), most=1, flights=1)
    gatherer.add(1)
    assert repr(gatherer) == "<Gatherer acker, 1 waiting>"


async def test_what_is_hurried_is_on_its_way_before_the_caller_goes_on(make):
    line = Line()
    gatherer = make(line.flush)
    gatherer.add(1)
    await line.departure()
    gatherer.add(2)
    gatherer.add(3)

    async def caller():
        await gatherer.hurry()
        return list(line.batches)

    # Two callers in the same turn: the second finds nothing to send, and must wait all the same.
    seen = await asyncio.gather(caller(), caller())
    assert seen == [[[1], [2, 3]]] * 2
    assert line.landed == []
    line.land()
    line.land()


async def test_a_flight_that_wakes_meanwhile_does_not_overtake_what_is_hurried(make):
    batches = []
    gatherer = make(collecting(batches))
    await asyncio.sleep(0)  # the flight is waiting now
    gatherer.add(1)  # wakes it: its turn comes before that of what is hurried
    hurrying = gatherer.hurry()
    hurrying.send(None)
    gatherer.add(2)
    await asyncio.sleep(0)
    hurrying.close()
    assert [item for batch in batches for item in batch] == [1, 2]


async def test_what_is_hurried_and_cut_before_its_turn_waits_to_be_taken(make):
    gatherer = make(collecting([]))
    gatherer.add(1)
    hurrying = gatherer.hurry()
    hurrying.send(None)
    gatherer.cut()
    await asyncio.sleep(0)
    hurrying.close()
    assert gatherer.take_all() == [1]


async def test_an_end_waits_for_what_was_hurried(make):
    line = Line()
    gatherer = make(line.flush)
    gatherer.add(1)
    await line.departure()
    gatherer.add(2)
    await gatherer.hurry()
    ending = asyncio.create_task(gatherer.end())
    line.land()
    await asyncio.sleep(0)
    assert not ending.done()
    line.land()
    await ending
    assert line.landed == [[1], [2]]


async def test_hurrying_nothing_is_free(make):
    gatherer = make(collecting([]))
    coroutine = gatherer.hurry()
    with pytest.raises(StopIteration):
        coroutine.send(None)
