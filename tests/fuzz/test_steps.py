"""Replies that mean nothing, told to those who ask several questions: an error of ours, too."""

import contextlib
import importlib
import inspect
import pkgutil

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import chasquimq.broker
from chasquimq.broker import (
    backlog,
    browse,
    checkup,
    delayed,
    dlq,
    repeats,
    returns,
    seek,
    survey,
)
from chasquimq.broker import inspect as inspection
from chasquimq.broker.call import Objection, call, understood
from chasquimq.broker.inspect import JobState
from chasquimq.broker.steps import drive, drive_blocking
from chasquimq.config import ConsumerConfig, ProducerConfig
from chasquimq.engine.outcomes import WaitedJob
from chasquimq.engine.producing import Producing
from chasquimq.engine.stint import let_go
from chasquimq.errors import ChasquiError, ConnectionFailedError, RedisError
from chasquimq.wire.keys import QueueKeys
from tests.fuzz.nonsense import replies
from tests.support.effort import effort

KEYS = QueueKeys("q")
OURS = Producing(ProducerConfig(queue_name="q"))
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
STATES = list(JobState)
STEPS = {
    "backlog.backlog": lambda: backlog.backlog(KEYS, "g"),
    "browse.count_completed": lambda: browse.count_completed(KEYS),
    "browse.jobs": lambda: browse.jobs(KEYS, "g", STATES, 0, 5, asc=True),
    "browse.jobs backwards": lambda: browse.jobs(KEYS, "g", STATES, 0, -1, asc=False),
    "browse.logs": lambda: browse.logs(KEYS, "a", 0, 5, asc=False),
    **{
        f"browse.page {state}": lambda state=state: browse.page(KEYS, "g", state, None, 5)
        for state in STATES
    },
    "checkup.queue_facts": lambda: checkup.queue_facts(KEYS, "g", lease_ms=1, most_keys=3_000),
    "delayed.cancel": lambda: delayed.cancel(KEYS, "a"),
    "delayed.find": lambda: delayed.find(KEYS, "a"),
    "dlq.chosen": lambda: dlq.chosen(KEYS, lambda letter: True, limit=3),
    "inspect.locate": lambda: inspection.locate(KEYS, "g", "a"),
    "repeats.due": lambda: repeats.due(KEYS, 1, 3),
    "repeats.find": lambda: repeats.find(KEYS, "k"),
    "repeats.listed": lambda: repeats.listed(KEYS, 3),
    "returns.depart": lambda: returns.depart(KEYS, "g", "c", idle_ms=1),
    "seek.find_entry": lambda: seek.find_entry(KEYS, ULID),
    "seek.find_letter": lambda: seek.find_letter(KEYS, "a"),
    "seek.newest_entry": lambda: seek.newest_entry(KEYS.stream),
    "survey.due_ms": lambda: survey.due_ms(KEYS, "a"),
    "survey.last_failure": lambda: survey.last_failure(KEYS, "a", since_ms=0),
    "survey.queues": lambda: survey.queues(most_keys=3_000),
    "survey.spec": lambda: survey.spec(KEYS, "k"),
    "survey.specs": lambda: survey.specs(KEYS, limit=3),
    "let_go": lambda: let_go(KEYS, ConsumerConfig(queue_name="q")),
    **{
        f"clean {state}": lambda state=state: OURS.clearing.clean(
            state, grace_ms=0, limit=5, dry_run=False
        )
        for state in ("waiting", "delayed", "failed", "completed")
    },
    "drain": lambda: OURS.clearing.drain(delayed_too=True, dry_run=False),
    "obliterate": lambda: OURS.clearing.obliterate(force=False, dry_run=False),
    "replay": lambda: OURS.replay_dlq(3, lambda letter: True),
    "retry": lambda: OURS.retry_job("a"),
    "discard": lambda: OURS.letters.discard(3, lambda letter: True),
    "list specs": lambda: OURS.repeating.listed(3),
    "pause spec": lambda: OURS.repeating.set_paused("k", paused=True),
    "run now": lambda: OURS.run_spec_now("k"),
    "remove": lambda: OURS.upkeep.remove("a"),
    "update": lambda: OURS.upkeep.update_data("a", b"\xc0"),
    "promote": lambda: OURS.upkeep.promote("a"),
    "reschedule": lambda: OURS.upkeep.reschedule("a", 5, None),
    "result": lambda: OURS.first_look(ULID, WaitedJob()),
}

# A reply that looks right at first lets the steps get further than one that does not.
rows = st.lists(st.tuples(st.sampled_from((b"1-1", b"2-0")), replies).map(list), max_size=3)
pages = st.tuples(st.sampled_from((b"0", b"7")), st.lists(replies, max_size=4)).map(list)
told = st.one_of(replies, rows, pages)

# Steps that go on for as long as they are told something are left then.
_MOST_CALLS = 8


class Babbling:
    """A connection to something that answers whatever comes to its mind, and then no more."""

    def __init__(self, data):
        self._data = data
        self._left = _MOST_CALLS

    def run(self, call):
        self._left -= 1
        if self._left < 0:
            message = "enough"
            raise ConnectionFailedError(message)
        return understood(call, [self._data.draw(told) for _ in call.requests])


class Reciting:
    """A connection to something that answers every call with the same."""

    def __init__(self, *told):
        self._told = told

    def run(self, call):
        return understood(call, list(self._told))


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=effort(25, 20_000))
@given(data=st.data())
def test_steps_that_are_told_nonsense_end_with_an_error_of_ours(name, data):
    with contextlib.suppress(ChasquiError):
        drive_blocking(Babbling(data), STEPS[name]())


class Stuck:
    """A connection to something whose scans never get on."""

    def __init__(self):
        self.calls = 0

    def run(self, call):
        self.calls += 1
        assert self.calls < 1_000, "it goes on and on"
        return understood(call, [[b"7", []]] * len(call.requests))


@pytest.mark.parametrize("name", STEPS)
def test_steps_end_where_a_scan_does_not(name):
    with contextlib.suppress(ChasquiError):
        drive_blocking(Stuck(), STEPS[name]())


def test_a_number_in_place_of_an_id_is_an_error_and_not_as_many_bytes():
    groups = [[b"name", b"g", b"last-delivered-id", 2**62]]
    with pytest.raises(RedisError, match="or we misread it: TypeError"):
        drive_blocking(Reciting(groups, [b"17", b"5"], 2, [1], 0, 0), backlog.backlog(KEYS, "g"))


def test_all_steps_of_the_broker_are_told_nonsense_here():
    found = set()
    for module in pkgutil.iter_modules(chasquimq.broker.__path__):
        members = vars(importlib.import_module(f"chasquimq.broker.{module.name}"))
        for name, member in members.items():
            is_own = inspect.isfunction(member) and not name.startswith("_")
            if is_own and member.__module__.endswith(f"broker.{module.name}"):
                returned = str(inspect.signature(member).return_annotation)
                if "Generator[chasquimq.broker.call.Call" in returned:
                    found.add(f"{module.name}.{name}")
    assert found == {name.split(" ")[0] for name in STEPS if "." in name}


# --- what both drivers make of what steps raise


class Echo:
    """A connection that answers any call with None."""

    def run(self, call):
        return None


class AsyncEcho:
    async def run(self, call):
        return None


async def driven(kind, steps):
    if kind == "asyncio":
        return await drive(AsyncEcho(), steps)
    return drive_blocking(Echo(), steps)


def steps_that_raise(error, *, after):
    for _ in range(after):
        yield call("PING", read=bool)
    raise error


kinds = pytest.mark.parametrize("kind", ["asyncio", "blocking"])


@kinds
@pytest.mark.parametrize("kind_of_error", [TypeError, ValueError, KeyError, AttributeError])
async def test_what_steps_stumble_over_after_a_reply_is_told_as_one_that_was_not_understood(
    kind, kind_of_error
):
    with pytest.raises(RedisError, match=r"or we misread it: \w+: .?x") as caught:
        await driven(kind, steps_that_raise(kind_of_error("x"), after=2))
    assert isinstance(caught.value.__cause__, kind_of_error)


@kinds
async def test_what_steps_raise_before_any_reply_is_told_as_it_is(kind):
    with pytest.raises(ValueError, match="never fires"):
        await driven(kind, steps_that_raise(ValueError("it never fires"), after=0))


@kinds
async def test_what_steps_object_to_is_told_as_it_is(kind):
    objection = Objection(ValueError("too large"))
    with pytest.raises(ValueError, match="too large"):
        await driven(kind, steps_that_raise(objection, after=1))


@kinds
async def test_steps_that_have_nothing_to_ask_have_a_result(kind):
    def silent():
        return "done"
        yield

    assert await driven(kind, silent()) == "done"
