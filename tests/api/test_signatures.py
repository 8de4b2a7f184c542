"""Names, kinds and defaults of every documented parameter.

A method of ours may take more, by keyword and with a default, after the documented ones.
`redis_url` is None by default, which means CHASQUI_REDIS_URL, else redis://127.0.0.1:6379.
"""

import dataclasses
import inspect
from inspect import Parameter

import pytest

from chasquimq import (
    BackoffSpec,
    Consumer,
    Job,
    Producer,
    Queue,
    QueueEvent,
    QueueEvents,
    Scheduler,
    SyncQueue,
    Worker,
)
from chasquimq.broker.url import parse_url
from chasquimq.config import ConsumerConfig, ProducerConfig, RetryConfig
from tests.api.conftest import NOWHERE

REQUIRED = Parameter.empty

DELAY_AND_RETRY = {"delay_ms": None, "delay": None, "attempts": None, "backoff": None}

# What each call takes: by position (defaults), then by keyword only (defaults).
DOCUMENTED = {
    Queue: (
        {"name": REQUIRED},
        {"redis_url": None, "max_stream_len": None, "max_delay_secs": None},
    ),
    Queue.add: (
        {"name": REQUIRED, "data": REQUIRED},
        DELAY_AND_RETRY | {"job_id": None, "repeat": None, "missed_fires": None},
    ),
    Queue.add_unique: (
        {"name": REQUIRED, "data": REQUIRED},
        {"job_id": REQUIRED} | DELAY_AND_RETRY | {"repeat": None},
    ),
    Queue.add_bulk: ({"jobs": REQUIRED}, {}),
    Queue.cancel_delayed: ({"job_id": REQUIRED}, {}),
    Queue.peek_dlq: ({"limit": 20}, {}),
    Queue.replay_dlq: ({"limit": 100}, {}),
    Queue.get_job_result: ({"job_id": REQUIRED}, {}),
    Queue.get_job_result_bulk: ({"job_ids": REQUIRED}, {}),
    Queue.close: ({}, {}),
    Worker: (
        {"queue_name": REQUIRED, "handler": REQUIRED},
        {
            "redis_url": None,
            "concurrency": 100,
            "max_attempts": 25,
            "group": "default",
            "consumer_id": None,
            "read_block_ms": None,
            "read_count": None,
            "claim_min_idle_ms": None,
            "max_payload_bytes": None,
            "dlq_max_stream_len": None,
            "events_enabled": True,
            "delayed_enabled": True,
            "run_scheduler": True,
            "scheduler_tick_ms": None,
            "store_results": False,
            "result_ttl_ms": None,
        },
    ),
    Worker.wait_until_ready: ({}, {}),
    Worker.rate_limit: ({"expire_time_ms": REQUIRED}, {}),
    Worker.run: ({}, {}),
    Worker.close: ({}, {}),
    Job.wait_for_result: ({}, {"timeout": 30.0, "poll_interval": 0.1}),
    QueueEvents: (
        {"queue_name": REQUIRED},
        {"redis_url": None, "last_event_id": "$", "block_ms": 5_000, "count": 100},
    ),
    QueueEvents.close: ({}, {}),
    Producer: (
        {"redis_url": REQUIRED, "queue_name": REQUIRED},
        {
            "pool_size": None,
            "max_stream_len": None,
            "max_delay_secs": None,
            "credential_provider": None,
        },
    ),
    Consumer: (
        {"redis_url": REQUIRED, "queue_name": REQUIRED},
        {
            "concurrency": 1,
            "max_attempts": 25,
            "group": "default",
            "consumer_id": None,
            "read_block_ms": None,
            "read_count": None,
            "claim_min_idle_ms": None,
            "max_payload_bytes": None,
            "dlq_max_stream_len": None,
            "events_enabled": True,
            "delayed_enabled": True,
            "run_scheduler": True,
            "scheduler_tick_ms": None,
            "store_results": False,
            "result_ttl_ms": None,
            "credential_provider": None,
        },
    ),
    Scheduler: (
        {"redis_url": REQUIRED, "queue_name": REQUIRED},
        {
            "tick_interval_ms": None,
            "batch": None,
            "max_stream_len": None,
            "lock_ttl_secs": None,
            "holder_id": None,
            "credential_provider": None,
        },
    ),
    BackoffSpec.fixed: ({"delay_ms": REQUIRED, "jitter_ms": None}, {}),
    BackoffSpec.exponential: (
        {"initial_ms": REQUIRED},
        {"multiplier": 2.0, "max_ms": None, "jitter_ms": None},
    ),
}


def parameters(call):
    # `**unsupported` takes nothing: it is there to say why.
    return [
        each
        for each in inspect.signature(call).parameters.values()
        if each.name not in ("self", "unsupported")
    ]


@pytest.mark.parametrize("call", DOCUMENTED, ids=lambda call: call.__qualname__)
def test_the_documented_parameters_are_there_with_their_defaults(call):
    by_position, by_keyword = DOCUMENTED[call]
    found = parameters(call)
    positional = {each.name: each.default for each in found if each.kind is not each.KEYWORD_ONLY}
    keyword = {each.name: each.default for each in found if each.kind is each.KEYWORD_ONLY}

    assert positional == by_position
    assert list(positional) == list(by_position)
    assert {name: keyword[name] for name in by_keyword} == by_keyword


@pytest.mark.parametrize("call", DOCUMENTED, ids=lambda call: call.__qualname__)
def test_what_is_ours_comes_last_and_may_be_left_out(call):
    _, by_keyword = DOCUMENTED[call]
    keyword = [each for each in parameters(call) if each.kind is Parameter.KEYWORD_ONLY]
    assert [each.name for each in keyword[: len(by_keyword)]] == list(by_keyword)
    assert all(each.default is not REQUIRED for each in keyword[len(by_keyword) :])


@pytest.mark.parametrize(
    "call",
    [
        call
        for call in DOCUMENTED
        if "." in call.__qualname__
        and "Backoff" not in call.__qualname__
        and call is not Job.wait_for_result
    ],
    ids=lambda call: call.__qualname__,
)
def test_the_documented_methods_are_coroutines(call):
    assert inspect.iscoroutinefunction(call)


async def test_waiting_for_a_result_gives_a_coroutine():
    """From a plain function, which refuses a job that has no queue before there is one."""
    job = Job("j1", "send", None, 0, 5, _queue=Queue("emails", redis_url=NOWHERE))
    waiting = job.wait_for_result()
    assert inspect.iscoroutine(waiting)
    waiting.close()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Queue, ["name", "is_closed"]),
        (Worker, ["name", "is_running", "is_closed"]),
        (Job, ["attempts_made"]),
    ],
)
def test_the_documented_properties_are_properties(kind, names):
    assert all(isinstance(inspect.getattr_static(kind, name), property) for name in names)


def test_left_out_numbers_mean_the_documented_defaults_of_the_engine():
    producer, consumer = ProducerConfig(), ConsumerConfig()
    assert producer.max_stream_len == 1_000_000
    assert producer.max_delay_secs == 30 * 24 * 3_600
    assert consumer.batch == 64
    assert consumer.block_ms == 5_000
    assert consumer.claim_min_idle_ms == 30_000
    assert consumer.max_payload_bytes == 1_048_576
    assert consumer.dlq_max_stream_len == 100_000
    assert consumer.events_max_stream_len == 100_000
    assert consumer.result_ttl_secs == 3_600
    assert consumer.max_attempts == 3
    assert consumer.shutdown_deadline_secs == 30
    assert consumer.consumer_id.startswith("c-")
    assert consumer.retry == RetryConfig(
        initial_backoff_ms=100, max_backoff_ms=30_000, multiplier=2.0, jitter_ms=100
    )


def test_without_a_url_the_environment_decides_then_the_local_server(monkeypatch):
    monkeypatch.setenv("CHASQUI_REDIS_URL", "redis://elsewhere:7000/2")
    assert "elsewhere:7000" in repr(Queue("emails"))
    monkeypatch.delenv("CHASQUI_REDIS_URL")
    assert "127.0.0.1:6379" in repr(Queue("emails"))
    assert parse_url(None) == parse_url("redis://127.0.0.1:6379")


def test_the_documented_values_have_the_documented_fields_in_order():
    def fields(kind):
        return [
            (each.name, each.default if each.default is not dataclasses.MISSING else REQUIRED)
            for each in dataclasses.fields(kind)
        ]

    assert fields(BackoffSpec) == [
        ("kind", REQUIRED),
        ("delay_ms", REQUIRED),
        ("max_delay_ms", None),
        ("multiplier", None),
        ("jitter_ms", None),
    ]
    assert fields(QueueEvent)[:4] == [
        ("name", REQUIRED),
        ("job_id", REQUIRED),
        ("job_name", REQUIRED),
        ("fields", REQUIRED),
    ]
    for frozen in (BackoffSpec, QueueEvent):
        assert frozen.__dataclass_params__.frozen


def public_methods(kind):
    return {
        name: member
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_method_of_queue_is_in_sync_queue_with_the_same_parameters_and_no_other():
    ours, theirs = public_methods(SyncQueue), public_methods(Queue)
    assert ours.keys() == theirs.keys()
    for name, method in theirs.items():
        assert parameters(ours[name]) == parameters(method), name
        assert (
            inspect.signature(ours[name]).return_annotation
            == inspect.signature(method).return_annotation
        )
        assert inspect.iscoroutinefunction(method)
        assert not inspect.iscoroutinefunction(ours[name])


def test_both_queues_are_made_alike_and_have_the_same_properties():
    def properties(kind):
        return {
            name for name, _ in inspect.getmembers(kind, lambda each: isinstance(each, property))
        }

    assert parameters(SyncQueue) == parameters(Queue)
    assert properties(SyncQueue) == properties(Queue) == {"name", "is_closed"}


@pytest.mark.parametrize("kind", [Queue, SyncQueue])
def test_every_public_method_has_a_docstring(kind):
    assert all(method.__doc__ for method in public_methods(kind).values())
