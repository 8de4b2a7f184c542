"""What a query of events reads, planned against every server; needs no Java."""

import pickle

import pytest

from chasquimq.errors import DataLossError
from chasquimq.spark.links import Links
from chasquimq.spark.offsets import Mark, end_of
from chasquimq.spark.options import EventsOptions, read_options
from chasquimq.spark.planning import Gap, Planner, Range
from chasquimq.spark.source import guarded_pages
from chasquimq.wire.ids import StreamId
from chasquimq.wire.keys import QueueKeys


@pytest.fixture
def keys(queue_name):
    return QueueKeys(queue_name)


@pytest.fixture
def tell(server, keys):
    """Events with the ids `first`-0 to `last`-0."""

    def write(first, last):
        pipe = server.client().pipeline(transaction=False)
        for number in range(first, last + 1):
            pipe.xadd(keys.events, {"e": "x"}, id=f"{number}-0")
        pipe.execute()

    return write


@pytest.fixture
def trim(server, keys):
    return lambda kept: server.client().xtrim(keys.events, maxlen=kept, approximate=False)


@pytest.fixture
def options(server, queue_name):
    def of(**more):
        return read_options(EventsOptions, {"redis_url": server.url, "queue": queue_name} | more)

    return of


@pytest.fixture
def plan(options):
    opened = []

    def of(**more):
        opened.append(Planner(options(**more)))
        return opened[-1]

    yield of
    for planner in opened:
        planner.close()


def ends(planner):
    return {queue: end_of(head) for queue, head in planner.heads().items()}


def test_tasks_begin_with_an_entry_that_is_there_and_end_where_the_batch_does(
    plan, tell, queue_name
):
    tell(101, 200)
    planner = plan(minPartitions="2")
    start = planner.starting(planner.heads(), "earliest")
    assert planner.tasks(start, ends(planner)) == [
        Range(queue_name, "101-0", f"150-{(1 << 64) - 1}"),
        Range(queue_name, "151-0", "200-0"),
    ]
    assert planner.tasks(ends(planner), ends(planner)) == []


def test_a_limit_ends_the_batch_after_so_many_entries(plan, tell, queue_name, server):
    tell(1, 100)
    planner = plan()
    heads = planner.heads()
    start = planner.starting(heads, "earliest")
    limited = planner.next_end(start, ends(planner), heads, 30)
    counts = heads[queue_name].added is not None
    assert limited == {queue_name: Mark(StreamId(30, 0), 30 if counts else None)}
    assert planner.next_end(limited, ends(planner), heads, 100) == ends(planner)
    assert planner.next_end(limited, ends(planner), heads, None) == ends(planner)


def test_what_was_trimmed_unread_is_refused_or_stands_as_a_gap(plan, tell, trim, queue_name):
    tell(1, 10)
    start = ends(plan())
    tell(11, 40)
    trim(5)
    strict, lenient = plan(), plan(failOnDataLoss="false")
    with pytest.raises(DataLossError, match=rf"queue '{queue_name}': .* events after 10-0"):
        strict.tasks(start, ends(strict))
    with pytest.raises(DataLossError):
        strict.next_end(start, ends(strict), strict.heads(), None)
    gap, rest = lenient.tasks(start, ends(lenient))
    assert isinstance(gap, Gap)
    assert gap.loss.after == StreamId(10, 0)
    counts = lenient.heads()[queue_name].added is not None
    assert gap.loss.count == (25 if counts else None)
    assert rest == Range(queue_name, "36-0", "40-0")


def test_a_deleted_stream_is_read_from_its_new_beginning_if_loss_is_accepted(
    plan, tell, server, keys, queue_name
):
    tell(50, 60)
    lenient = plan(failOnDataLoss="false")
    start = ends(lenient)
    server.client().delete(keys.events)
    # Still empty: there is nothing to move on to.
    assert lenient.next_end(start, ends(lenient), lenient.heads(), None) == start
    tell(1, 5)
    end = lenient.next_end(start, ends(lenient), lenient.heads(), None)
    gap, rest = lenient.tasks(start, end)
    assert gap.loss.reason == "the stream was deleted"
    assert rest == Range(queue_name, "1-0", "5-0")


def test_a_queue_that_is_new_to_a_query_is_read_from_its_oldest_event(plan, tell, trim, queue_name):
    tell(1, 9)
    trim(3)
    planner = plan()
    assert planner.tasks({}, ends(planner)) == [Range(queue_name, "7-0", "9-0")]
    assert planner.next_end({}, ends(planner), planner.heads(), 2)[queue_name].id == StreamId(8, 0)


def test_pages_give_each_entry_once(options, tell, keys):
    tell(1, 25)
    with Links(options().target) as links:
        pages = list(guarded_pages(links, keys, keys.events, "1-0", "25-0", 10))
    assert [len(page) for page, _ in pages] == [10, 10, 5]
    assert [entry_id for page, _ in pages for entry_id, _ in page] == [
        b"%d-0" % number for number in range(1, 26)
    ]
    assert {loss for _, loss in pages} == {None}


@pytest.mark.parametrize(("kept", "is_lost"), [(15, False), (14, True), (0, True)])
def test_trimming_under_a_readers_hands_is_noticed_exactly(
    options, tell, trim, keys, kept, is_lost
):
    """The first page has 10 of 25: trimming just those loses nothing, one more does."""
    tell(1, 25)
    with Links(options().target) as links:
        pages = guarded_pages(links, keys, keys.events, "1-0", "25-0", 10)
        next(pages)
        trim(kept)
        rest = list(pages)
    loss = rest[0][1]
    assert (loss is not None) == is_lost
    if is_lost:
        assert loss.after == StreamId(11, 0).previous()
    assert sum(len(page) for page, _ in rest) == kept


def test_a_copy_of_a_planner_has_no_connections_and_makes_its_own(plan, tell, queue_name):
    tell(1, 3)
    planner = plan()
    planner.heads()
    copy = pickle.loads(pickle.dumps(planner))  # noqa: S301 -- our own
    try:
        assert copy.heads() == planner.heads()
    finally:
        copy.close()
