"""Every documented mistake is refused, before anything is sent: there is no server in this file.

A mistake in an argument is a `ValueError` or a `TypeError`; what only the engine's limits forbid is
a `ConfigError`, which is a `RuntimeError` with the documented text.
"""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import (
    BackoffSpec,
    Chasqui,
    ConfigError,
    ConnectionFailedError,
    Consumer,
    Queue,
    QueueEvents,
    SyncQueue,
)
from chasquimq import Worker as WorkerClass
from chasquimq.arguments import bulk_wishes, delay_of, retry_of
from chasquimq.config import (
    LEAST_LEASE_MS,
    ConsumerConfig,
    ProducerConfig,
    PromoterConfig,
    RetryConfig,
    SchedulerConfig,
)
from tests.api.conftest import NOWHERE

HOUR = timedelta(hours=1)

MISTAKES = [
    # job_id
    ({"job_id": ""}, ValueError, "job_id"),
    ({"job_id": "  \t"}, ValueError, "job_id"),
    ({"job_id": 7}, ValueError, "job_id"),
    ({"job_id": b"x"}, ValueError, "job_id"),
    ({"job_id": "\ud800"}, ValueError, "job_id.*surrogate"),
    # missed_fires without repeat
    ({"missed_fires": {"kind": "skip"}}, ValueError, "missed_fires.*repeat"),
    # delays
    ({"delay_ms": 5, "delay": HOUR}, ValueError, "not both"),
    ({"delay_ms": 0, "delay": timedelta(0)}, ValueError, "not both"),
    ({"delay": 5}, TypeError, "timedelta"),
    ({"delay": 5.0}, TypeError, "timedelta"),
    ({"delay": "1h"}, TypeError, "timedelta"),
    ({"delay": datetime.now(UTC)}, TypeError, "timedelta"),
    ({"delay": -HOUR}, ValueError, "0 or more"),
    ({"delay_ms": -1}, ValueError, "0 or more"),
    ({"delay_ms": -0.1}, ValueError, "0 or more"),
    ({"delay_ms": float("nan")}, ValueError, "finite"),
    ({"delay_ms": float("inf")}, ValueError, "finite"),
    ({"delay_ms": float("-inf")}, ValueError, "finite"),
    ({"delay_ms": True}, TypeError, "bool"),
    ({"delay_ms": "5"}, TypeError, "str"),
    ({"delay_ms": HOUR}, TypeError, "timedelta"),
    # attempts
    ({"attempts": 0}, ValueError, "1 or more"),
    ({"attempts": -1}, ValueError, "1 or more"),
    ({"attempts": 1 << 32}, ValueError, "attempts is 4294967296: it must be 4294967295 or less"),
    ({"attempts": True}, TypeError, "whole number"),
    ({"attempts": 2.0}, TypeError, "whole number"),
    ({"attempts": "3"}, TypeError, "whole number"),
    # backoff
    ({"backoff": True}, TypeError, "bool"),
    ({"backoff": 1.5}, TypeError, "float"),
    ({"backoff": "1s"}, TypeError, "str"),
    ({"backoff": HOUR}, TypeError, "timedelta"),
    ({"backoff": -1}, ValueError, "backoff is -1: it must be milliseconds from 0"),
    ({"backoff": {}}, ValueError, "kind"),
    ({"backoff": {"delay_ms": 5}}, ValueError, "kind"),
    ({"backoff": {"kind": "linear", "delay_ms": 5}}, ValueError, "kind is 'linear'"),
    ({"backoff": {"kind": "fixed"}}, ValueError, "delay_ms"),
    ({"backoff": {"kind": "fixed", "delay_ms": -5}}, ValueError, "delay_ms"),
    ({"backoff": {"kind": "fixed", "delay_ms": 5, "jitter_ms": -1}}, ValueError, "jitter_ms"),
    ({"backoff": {"kind": "fixed", "delay_ms": 5, "wait": 1}}, ValueError, "unknown keys 'wait'"),
    # name and data
    ({"name": 5}, TypeError, "name must be a str"),
    ({"name": None}, TypeError, "name must be a str"),
    ({"name": "\ud800"}, ValueError, "name.*surrogate"),
    ({"data": object()}, TypeError, "data: builtins.object"),
    ({"data": {"a": [1, object()]}}, TypeError, r"data\['a'\]\[1\]"),
    ({"data": 1 << 64}, ValueError, "64 bits"),
    ({"data": "\ud800"}, ValueError, "surrogate"),
]
NUMBERED = [f"{'-'.join(wrong)}-{number}" for number, (wrong, *_) in enumerate(MISTAKES)]


@pytest.mark.parametrize(("wrong", "error", "message"), MISTAKES, ids=NUMBERED)
async def test_a_mistake_in_an_argument_of_add_is_refused(unconnected, wrong, error, message):
    with pytest.raises(error, match=message) as refused:
        await unconnected.add(**{"name": "send", "data": 1} | wrong)
    assert not isinstance(refused.value, RuntimeError)


@pytest.mark.parametrize(("wrong", "error", "message"), MISTAKES, ids=NUMBERED)
async def test_add_bulk_refuses_the_same_mistakes_and_says_which_job_it_is(
    unconnected, wrong, error, message
):
    if "missed_fires" in wrong:
        message = "unknown keys"
    jobs = [{"name": "fine", "data": 1}, {"name": "send", "data": 1} | wrong]
    with pytest.raises(error, match=message) as refused:
        await unconnected.add_bulk(jobs)
    assert "jobs[1]" in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        ({"data": 1}, ValueError, r"jobs\[0\] lacks name"),
        ({"name": "send"}, ValueError, r"jobs\[0\] lacks data"),
        ({}, ValueError, r"jobs\[0\] lacks data, name"),
        ({"name": "send", "data": 1, "retries": 3}, ValueError, r"unknown keys \['retries'\]"),
        ("send", TypeError, r"jobs\[0\] must be a dict"),
        (None, TypeError, r"jobs\[0\] must be a dict"),
    ],
)
async def test_an_entry_of_add_bulk_is_a_dict_with_the_documented_keys(
    unconnected, entry, error, message
):
    with pytest.raises(error, match=message):
        await unconnected.add_bulk([entry])


@given(
    st.lists(
        st.fixed_dictionaries(
            {"name": st.text(max_size=5), "data": st.integers() | st.text() | st.none()}
        )
    )
)
def test_a_bulk_of_names_and_data_is_what_a_look_at_each_job_makes_of_it(entries):
    """With one entry more, which does nothing but to have each looked at."""
    unusual = {"name": "x", "data": 1, "attempts": None}
    try:
        looked_at = bulk_wishes([*entries, unusual])
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            bulk_wishes(entries)
    else:
        assert [*bulk_wishes(entries), *bulk_wishes([{"name": "x", "data": 1}])] == looked_at


@pytest.mark.parametrize(
    "jobs", [iter([{"name": "n", "data": 1}]), {"name": "n", "data": 1}, "jobs", None]
)
async def test_a_bulk_that_is_no_list_is_refused(unconnected, jobs):
    with pytest.raises(TypeError, match="jobs must be a list of dicts, got"):
        await unconnected.add_bulk(jobs)


async def test_an_empty_bulk_is_no_mistake_and_asks_nothing_of_the_server(unconnected):
    assert await unconnected.add_bulk([]) == []


@pytest.mark.parametrize("job_id", ["", " ", None, 5])
async def test_add_unique_wants_an_id(unconnected, job_id):
    with pytest.raises(ValueError, match="job_id"):
        await unconnected.add_unique("send", 1, job_id=job_id)


async def test_add_unique_without_an_id_is_a_wrong_call(unconnected):
    with pytest.raises(TypeError, match="job_id"):
        await unconnected.add_unique("send", 1)


async def test_a_name_of_257_bytes_is_refused_with_the_documented_text(unconnected):
    with pytest.raises(
        RuntimeError, match=r"^config: job name exceeds 256-byte cap \(got 257 bytes\)"
    ) as refused:
        await unconnected.add("ü" * 128 + "x", 1)
    assert isinstance(refused.value, ConfigError)


async def test_a_delay_beyond_the_limit_is_refused_with_the_documented_text(kind):
    door = kind("nowhere", redis_url=NOWHERE, max_delay_secs=60)
    expected = r"^config: delay 61s exceeds max_delay_secs 60s"
    with pytest.raises(RuntimeError, match=expected):
        await awaited(door.add("send", 1, delay_ms=61_999))
    with pytest.raises(RuntimeError, match=expected):
        await awaited(door.add("send", 1, delay=timedelta(seconds=61)))
    with pytest.raises(RuntimeError, match=r"^config: delay 3\d+s exceeds max_delay_secs 60s"):
        await awaited(door.add("send", 1, delay_ms=datetime.now(UTC) + HOUR))


async def test_only_whole_seconds_beyond_the_limit_count_and_a_limit_of_0_is_none(kind):
    for limit, delay_ms in ((60, 60_999), (0, 10**15)):
        door = kind("nowhere", redis_url=NOWHERE, max_delay_secs=limit)
        with pytest.raises(ConnectionFailedError):
            await awaited(door.add("send", 1, delay_ms=delay_ms))


async def test_a_delay_beyond_any_float_is_beyond_the_limit_too(unconnected):
    with pytest.raises(RuntimeError, match="exceeds max_delay_secs"):
        await unconnected.add("send", 1, delay_ms=10**400)


async def test_a_job_too_large_for_any_worker_is_refused_where_the_caller_sees_it(kind):
    door = kind("nowhere", redis_url=NOWHERE, max_payload_bytes=100)
    with pytest.raises(ValueError, match="max_payload_bytes is 100"):
        await awaited(door.add("send", b"x" * 101))


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": -1}, {"poll_interval": 0}])
async def test_times_to_wait_must_be_positive(unconnected, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        await unconnected.wait_for_result("some-job", **wrong)


@pytest.mark.parametrize("wrong", [float("nan"), True, "5", None])
async def test_times_to_wait_must_be_numbers(unconnected, wrong):
    with pytest.raises(ValueError, match="timeout"):
        await unconnected.wait_for_result("some-job", timeout=wrong)


@pytest.mark.parametrize(
    "method",
    ["cancel_delayed", "get_job", "get_job_state", "get_outcome", "get_job_result",
     "wait_for_result"],
)  # fmt: skip
@pytest.mark.parametrize("job_id", ["", " ", 5, None, b"x"])
async def test_a_question_about_a_job_wants_its_id(unconnected, method, job_id):
    with pytest.raises(ValueError, match="job_id must be"):
        await getattr(unconnected, method)(job_id)


async def test_one_id_where_many_are_expected_is_not_taken_for_many_letters(unconnected):
    with pytest.raises(TypeError, match="job_ids"):
        await unconnected.get_job_result_bulk("01HZA7V0000000000000000000")
    for method in (unconnected.replay_dlq, unconnected.discard_dlq):
        with pytest.raises(TypeError, match="ids"):
            await method(ids="01HZA7V0000000000000000000")


@pytest.mark.parametrize("method", ["peek_dlq", "replay_dlq", "discard_dlq"])
@pytest.mark.parametrize(
    ("limit", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError), ("3", TypeError)]
)
async def test_a_limit_is_a_whole_number_0_or_more(unconnected, method, limit, error):
    with pytest.raises(error, match="limit"):
        await getattr(unconnected, method)(limit)


async def test_a_limit_of_0_asks_nothing_of_the_server(unconnected):
    assert await unconnected.peek_dlq(0) == []


async def test_a_recurring_job_cannot_be_limited_to_no_fire_at_all(unconnected):
    every = {"kind": "every", "interval_ms": 1_000}
    for limit in (0, -1):
        with pytest.raises(ValueError, match="limit"):
            await unconnected.upsert_repeatable_job("n", 1, repeat=every, limit=limit)
    with pytest.raises(ValueError, match="leave it out"):
        await unconnected.upsert_repeatable_job("n", 1, repeat=every, limit=0)


@pytest.mark.parametrize("name", ["", "  ", "a{b", "a}b", "a\nb", "x" * 513])
@pytest.mark.parametrize("make", [Queue, SyncQueue, QueueEvents])
def test_a_queue_needs_a_name_that_can_be_part_of_a_key(make, name):
    with pytest.raises(ValueError, match="queue name"):
        make(name)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("max_stream_len", 0, "1 or more"),
        ("max_stream_len", -1, "must be non-negative; got -1"),
        ("max_stream_len", 1.5, "whole number"),
        ("max_delay_secs", -1, "must be non-negative; got -1"),
        ("overflow", "drop", "one of reject, wait, trim"),
        ("overflow_timeout_ms", -1, "must be non-negative; got -1"),
        ("max_payload_bytes", 0, "1 or more"),
    ],
)
def test_a_queue_refuses_settings_that_cannot_work(kind, option, value, message):
    with pytest.raises(ConfigError, match=f"config: {option} must be .*{message}|{message}"):
        kind("emails", **{option: value})


async def handler(_):
    return None


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("concurrency", 0, "1 or more"),
        ("max_attempts", -1, "must be non-negative; got -1"),
        ("read_block_ms", -5, "must be non-negative; got -5"),
        ("claim_min_idle_ms", -5, "must be non-negative; got -5"),
        ("dlq_max_stream_len", -5, "must be non-negative; got -5"),
        ("scheduler_tick_ms", -5, "must be non-negative; got -5"),
        ("result_ttl_ms", 0, "result_ttl_ms must be positive; got 0"),
        ("result_ttl_ms", -1, "result_ttl_ms must be positive; got -1"),
        ("group", "", "non-empty"),
        ("shutdown_deadline_secs", -1, "0 or more"),
    ],
)
def test_a_worker_refuses_settings_that_cannot_work(option, value, message):
    with pytest.raises(RuntimeError, match=f"^config: .*{message}"):
        WorkerClass("emails", handler, **{option: value})


LEASED = {
    "ConsumerConfig": lambda lease: ConsumerConfig(claim_min_idle_ms=lease),
    "replace": lambda lease: replace(ConsumerConfig(), claim_min_idle_ms=lease),
    "Worker": lambda lease: WorkerClass("emails", handler, claim_min_idle_ms=lease),
    "Chasqui.worker": lambda lease: Chasqui("emails").worker(claim_min_idle_ms=lease),
    "Consumer": lambda lease: Consumer(NOWHERE, "emails", claim_min_idle_ms=lease),
}


@pytest.mark.parametrize("door", LEASED)
@pytest.mark.parametrize("lease", [0, 1, LEAST_LEASE_MS - 1, timedelta(milliseconds=10)])
def test_a_lease_that_a_live_worker_may_lose_is_refused_with_the_rule_and_the_remedy(door, lease):
    shown = lease // timedelta(milliseconds=1) if isinstance(lease, timedelta) else lease
    with pytest.raises(ConfigError) as refused:
        LEASED[door](lease)
    assert str(refused.value) == (
        f"config: claim_min_idle_ms must be {LEAST_LEASE_MS} or more; got {shown}: a shorter lease "
        "runs out before a busy worker can renew it, and its jobs are taken from it while they "
        "run; leave it out for 30000 [CMQ-004]"
    )


@pytest.mark.parametrize("door", LEASED)
def test_the_shortest_lease_there_is_is_accepted(door):
    LEASED[door](LEAST_LEASE_MS)
    LEASED[door](timedelta(milliseconds=LEAST_LEASE_MS))


def test_a_handler_must_be_callable():
    with pytest.raises(TypeError, match="handler"):
        WorkerClass("emails", 42)


@pytest.mark.parametrize("option", ["block_ms", "count"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, None])
def test_events_are_read_in_whole_numbers_from_1(option, value):
    with pytest.raises(ValueError, match=option):
        QueueEvents("emails", **{option: value})


@pytest.mark.parametrize("wrong", ["", "now", ">", "1-2-3", "-1", 0, None])
def test_events_begin_after_an_id_of_the_stream(wrong):
    with pytest.raises(ValueError, match="last_event_id"):
        QueueEvents("emails", last_event_id=wrong)


@pytest.mark.parametrize("right", ["$", "0", "0-0", "1700000000000", "1700000000000-3"])
def test_these_are_places_to_begin_from(right):
    assert right in repr(QueueEvents("emails", last_event_id=right))


@given(st.integers(min_value=0, max_value=10**12))
def test_a_timedelta_of_whole_milliseconds_is_exactly_that_delay(ms):
    assert delay_of(None, timedelta(milliseconds=ms)) == (ms, None)


@given(st.integers(min_value=0, max_value=4 * 10**12))
def test_a_moment_of_whole_milliseconds_is_exactly_that_moment(ms):
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    assert delay_of(moment, None) == (0, ms)
    assert delay_of(moment.replace(tzinfo=None), None) == (0, ms), "naive means UTC"
    assert delay_of(moment.astimezone(timezone(timedelta(hours=5.5))), None) == (0, ms)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0, 0), (0.9, 0), (1.9, 1), (250, 250), (None, 0), (timedelta(microseconds=999), 0)],
)
def test_fractions_of_a_millisecond_are_cut_off(given, expected):
    if isinstance(given, timedelta):
        assert delay_of(None, given) == (expected, None)
    else:
        assert delay_of(given, None) == (expected, None)


def test_a_moment_before_the_epoch_is_simply_past():
    assert delay_of(datetime(1900, 1, 1, tzinfo=UTC), None) == (0, 0)
    assert delay_of(datetime.min, None) == (0, 0)  # noqa: DTZ901 -- naive on purpose


@pytest.mark.parametrize(
    ("backoff", "same"),
    [
        (250, BackoffSpec.fixed(250)),
        ({"kind": "fixed", "delay_ms": 250}, BackoffSpec.fixed(250)),
        (
            {"kind": "exponential", "delay_ms": 5, "multiplier": 3.0, "max_delay_ms": 60},
            BackoffSpec.exponential(5, multiplier=3.0, max_ms=60),
        ),
    ],
)
def test_a_backoff_is_a_number_a_dict_or_a_spec(backoff, same):
    assert retry_of(None, backoff) == retry_of(None, same)


def test_a_backoff_whose_cap_is_below_its_start_is_refused():
    wrong = {"kind": "exponential", "delay_ms": 1_000, "max_delay_ms": 5}
    with pytest.raises(ValueError, match="backoff max_delay_ms is 5, below delay_ms, which is"):
        retry_of(None, wrong)


async def awaited(value):
    """The value itself, of either door; a `SyncQueue` has no server here to be slow with."""
    return await value if hasattr(value, "__await__") else value


@pytest.mark.parametrize(
    "make",
    [
        lambda: WorkerClass("q", print, tracing=5),
        lambda: Queue("q", tracing=5),
        lambda: SyncQueue("q", tracing=5),
    ],
)
def test_what_is_no_tracer_is_refused_by_name(make):
    with pytest.raises(TypeError, match="tracing must be a tracer, got 5"):
        make()


def test_what_is_no_sink_or_no_queue_is_refused_by_name():
    with pytest.raises(ConfigError, match="metrics must be a sink"):
        WorkerClass("q", print, metrics=5)
    with pytest.raises(ConfigError, match="queue_name must be non-empty text; got None"):
        ConsumerConfig(queue_name=None)


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig, SchedulerConfig, PromoterConfig])
def test_a_config_refuses_a_queue_name_that_cannot_be_one(kind):
    for name in ("a{b", "a\nb", " ", "x" * 513):
        with pytest.raises(ValueError, match="queue name"):
            kind(queue_name=name)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ProducerConfig, {"pool_size": "8"}),
        (RetryConfig, {"multiplier": "2"}),
        (ConsumerConfig, {"group": 5}),
        (ConsumerConfig, {"consumer_id": b"c"}),
        (ConsumerConfig, {"retry": 5}),
        (ConsumerConfig, {"scheduler": None}),
        (ConsumerConfig, {"shutdown_deadline_secs": "30"}),
        (SchedulerConfig, {"holder_id": ""}),
        (SchedulerConfig, {"metrics": 5}),
        (PromoterConfig, {"holder_id": None}),
        (PromoterConfig, {"metrics": 5}),
    ],
)
def test_a_config_refuses_what_is_of_another_kind(kind, wrong):
    [name] = wrong
    with pytest.raises(ConfigError, match=f"{name} must be"):
        kind(**wrong)


def test_a_worker_refuses_a_queue_name_that_cannot_be_one():
    with pytest.raises(ValueError, match="queue name"):
        WorkerClass("a{b", print)


def test_drain_takes_yes_or_no():
    with pytest.raises(TypeError, match="delayed must be True or False, got 'yes'"):
        SyncQueue("q").drain("yes")
