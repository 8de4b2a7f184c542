"""The decisions of a connection, played through without any server: who is asked what, and when."""

import pytest
from hiredis import ReplyError
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.broker.access import Access, Dial, LinkLostError, Pause, Talk
from chasquimq.broker.call import call, together
from chasquimq.broker.insist import Conduct, Exchange, Leave
from chasquimq.broker.options import ConnectionOptions, reconnect_pause_ms
from chasquimq.broker.refusal import refusals
from chasquimq.broker.topology import Topology, slot_ranges
from chasquimq.broker.url import Address, parse_url
from chasquimq.errors import ConnectionFailedError, OutcomeUnknownError, ShutdownError

HERE = Address("10.0.0.1", 7000)
THERE = Address("10.0.0.2", 7001)

SLOT_KEY = b"{q}"
SLOT = 11958


def get(key="{q}k", *, repeatable=True):
    return call("GET", key, read=bytes, repeatable=repeatable)


@pytest.fixture
def access():
    return Access(parse_url(f"redis-cluster://{HERE}"), ConnectionOptions(), slot_key=SLOT_KEY)


@pytest.fixture
def conduct(access):
    access.address = HERE
    return Conduct(access)


def slots(*ranges):
    """What is read of the reply of a cluster node."""
    return slot_ranges().parse([[list(each) for each in ranges]])


def ask(topology, answers):
    """Let the topology ask around; `answers` is what each node would say."""
    asked = []

    def question(address, _):
        asked.append(address)
        answer = answers.get(address)
        if answer is None:
            raise ConnectionRefusedError
        return answer
        yield

    steps = topology.discover(question)
    with pytest.raises(StopIteration) as done:
        next(steps)
    return done.value.value, asked


# --- where to go


def test_the_owner_of_the_slot_is_the_first_node_of_its_range():
    topology = Topology(parse_url(f"redis-cluster://{HERE}"), SLOT_KEY)
    known = slots((0, 8191, [b"10.0.0.1", 7000]), (8192, 16383, [b"10.0.0.2", 7001], [b"r", 7002]))
    assert ask(topology, {HERE: known}) == (THERE, [HERE])


@pytest.mark.parametrize("host", [None, b"", b"?"])
def test_a_node_that_does_not_know_its_name_is_where_it_was_reached(host):
    topology = Topology(parse_url(f"redis-cluster://{HERE}"), SLOT_KEY)
    assert ask(topology, {HERE: slots((0, 16383, [host, 7005]))})[0] == Address("10.0.0.1", 7005)


def test_nodes_that_left_the_cluster_are_forgotten_and_those_of_the_url_are_not():
    topology = Topology(parse_url(f"redis-cluster://{HERE}"), SLOT_KEY)
    former, latter = Address("10.0.0.8", 1), Address("10.0.0.9", 1)
    ask(topology, {HERE: slots((0, 16383, [b"10.0.0.8", 1]))})
    topology.forget_owner()
    ask(topology, {HERE: slots((0, 16383, [b"10.0.0.9", 1]))})
    topology.forget_owner()
    with pytest.raises(ConnectionFailedError) as caught:
        ask(topology, {})
    assert str(HERE) in str(caught.value)
    assert str(latter) in str(caught.value)
    assert str(former) not in str(caught.value)


def test_the_sentinel_that_answered_last_is_asked_first():
    topology = Topology(parse_url(f"redis+sentinel://{HERE},{THERE}/jobs"), SLOT_KEY)
    primary = ("10.0.0.3", 6379)
    assert ask(topology, {THERE: primary}) == (Address(*primary), [HERE, THERE])
    assert ask(topology, {THERE: primary}) == (Address(*primary), [THERE])


@given(st.text())
def test_no_text_of_a_server_makes_the_search_for_cures_fail(text):
    found = refusals([ReplyError(text)], [0], "")
    assert all(each.index == 0 for each in found)


# --- what to send again


def test_an_answered_call_is_over(conduct):
    steps = conduct.insist(get(), [b"value"])
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == [b"value"]


def test_only_the_refused_part_of_a_pipeline_is_sent_again(conduct):
    pipeline = together([get("{q}a"), get("{q}b"), get("{q}c")])
    moved = ReplyError(f"MOVED {SLOT} {THERE}")
    steps = conduct.insist(pipeline, [b"1", moved, b"3"])
    assert next(steps) == Leave("the slot moved to another node")
    assert next(steps) == Exchange([pipeline.requests[1]])
    with pytest.raises(StopIteration) as done:
        steps.send([b"2"])
    assert done.value.value == [b"1", b"2", b"3"]


def test_a_redirection_is_no_business_of_a_single_server():
    access = Access(parse_url("redis://10.0.0.1"), ConnectionOptions(), slot_key=SLOT_KEY)
    moved = ReplyError(f"MOVED {SLOT} {THERE}")
    with pytest.raises(StopIteration) as done:
        next(Conduct(access).insist(get(), [moved]))
    assert done.value.value == [moved]


def test_a_slot_that_keeps_moving_is_followed_ever_more_slowly(conduct):
    moved = ReplyError(f"MOVED {SLOT} {THERE}")
    steps = conduct.insist(get(), [moved])
    seen = [next(steps)]
    for _ in range(9):
        seen.append(steps.send([moved] if isinstance(seen[-1], Exchange) else None))
    assert [type(each).__name__ for each in seen[:6]] == ["Leave", "Exchange"] * 2 + [
        "Leave",
        "Pause",
    ]


def test_a_call_on_its_way_to_another_node_is_told_to_ask_first(conduct):
    steps = conduct.insist(get(), [ReplyError(f"ASK {SLOT} {THERE}")])
    assert next(steps) == Dial(THERE)
    talk = steps.send(FakeLine())
    assert isinstance(talk, Talk)
    assert [b"ASKING" in request for request in talk.requests] == [True, False]
    with pytest.raises(StopIteration) as done:
        steps.send([b"OK", b"value"])
    assert done.value.value == [b"value"]


class FakeLine:
    """Stands for a link that a driver would have opened."""

    def __init__(self):
        self.aborted = []

    def abort(self, reason):
        self.aborted.append(reason)


# --- what to tell the caller


def lose(steps, *, sent):
    return steps.throw(LinkLostError("broken", sent=sent))


def test_what_cannot_have_arrived_is_sent_again_whatever_it_is(conduct):
    steps = conduct.insist(get(repeatable=False))
    assert isinstance(next(steps), Exchange)
    assert isinstance(lose(steps, sent=False), Exchange)
    with pytest.raises(OutcomeUnknownError):
        lose(steps, sent=True)


def test_a_second_loss_is_answered_with_a_pause(conduct):
    steps = conduct.insist(get())
    assert isinstance(next(steps), Exchange)
    assert isinstance(lose(steps, sent=True), Exchange)
    assert isinstance(lose(steps, sent=True), Pause)


@pytest.mark.parametrize("was_sent", [True, False])
def test_an_error_never_claims_that_what_was_sent_was_not(conduct, access, was_sent):
    steps = conduct.insist(get())
    next(steps)
    lose(steps, sent=was_sent)
    expected = OutcomeUnknownError if was_sent else ConnectionFailedError
    with pytest.raises(expected):
        steps.throw(access.out_of_patience())


@pytest.mark.parametrize("was_sent", [True, False])
def test_a_closed_connection_says_whether_the_call_is_in_doubt(conduct, access, was_sent):
    steps = conduct.insist(get())
    next(steps)
    lose(steps, sent=was_sent)
    with pytest.raises(ShutdownError) as caught:
        steps.throw(access.shut())
    assert ("may or may not" in str(caught.value)) is was_sent


def test_a_link_under_construction_is_dropped_when_the_work_on_it_ends(access):
    access.topology.moved_to(HERE)
    steps = access.link()
    assert next(steps) == Dial(HERE)
    line = FakeLine()
    assert isinstance(steps.send(line), Talk)
    steps.close()
    assert line.aborted


# --- the pace


@given(attempt=st.integers(min_value=1, max_value=10_000), chance=st.randoms())
def test_a_pause_grows_from_50_ms_to_5_s_and_half_of_it_is_chance(attempt, chance):
    ceiling = min(5_000, 50 * 2 ** min(attempt - 1, 16))
    assert ceiling / 2 <= reconnect_pause_ms(attempt, chance) <= ceiling


@pytest.mark.parametrize("attempts", [0, -1, True])
def test_a_limit_of_attempts_is_a_whole_number_from_one(attempts):
    with pytest.raises(ValueError, match="reconnect_max_attempts"):
        ConnectionOptions(reconnect_max_attempts=attempts)
