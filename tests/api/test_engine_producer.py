"""Every method of the engine's `Producer`, against what is then on the server."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from chasquimq import ConnectionFailedError, QueueFullError
from chasquimq.clock import SYSTEM_CLOCK
from chasquimq.engine import (
    AddOptions,
    BackoffSpec,
    Consumer,
    DlqEntry,
    JobRetryOverride,
    MissedFiresPolicy,
    Producer,
    ProducerConfig,
    RepeatableMeta,
    RepeatableSpec,
    RepeatPattern,
    RetryConfig,
)
from chasquimq.errors import ConfigError
from chasquimq.wire.entry import parse_job_fields
from chasquimq.wire.envelope import Envelope, decode
from chasquimq.wire.keys import QueueKeys
from chasquimq.wire.member import decode_member
from tests.support.eventually import eventually

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
async def producer(server, queue_name):
    config = ProducerConfig(queue_name=queue_name)
    async with await Producer.connect(server.url, config) as producer:
        yield producer


@pytest.fixture
def raw(server, queue_name):
    return Raw(server.client(), QueueKeys(queue_name))


class Raw:
    """What is stored of a queue."""

    def __init__(self, client, keys):
        self.client = client
        self.keys = keys

    def waiting(self) -> list[tuple[str, Envelope]]:
        rows = self.client.xrange(self.keys.stream)
        return [self._parsed(fields) for _, fields in rows]

    def delayed(self) -> list[tuple[str, Envelope, int]]:
        rows = self.client.zrange(self.keys.delayed, 0, -1, withscores=True)
        found = [(decode_member(member), int(score)) for member, score in rows]
        return [(name, decode(envelope), score) for (name, envelope), score in found]

    def _parsed(self, fields):
        flat = [part for pair in fields.items() for part in pair]
        envelope, name = parse_job_fields(flat)
        return name, decode(envelope)


# --- now


async def test_a_payload_is_written_as_bytes_and_its_id_returned(producer, raw):
    job_id = await producer.add(b"\x81\xa1k\x01")
    [(name, envelope)] = raw.waiting()
    assert (name, envelope.id, envelope.payload) == ("", job_id, b"\x81\xa1k\x01")
    assert (envelope.attempt, envelope.retry) == (0, None)


@pytest.mark.parametrize("payload", [bytearray(b"ab"), memoryview(b"ab"), b"", b"\xff" * 70_000])
async def test_any_bytes_will_do(producer, raw, payload):
    await producer.add(payload)
    assert raw.waiting()[0][1].payload == bytes(payload)


async def test_an_id_is_added_once_by_whichever_producer(producer, raw, server, queue_name):
    async with Producer(server.url, queue_name) as other:
        assert await producer.add_with_id("mine", b"1") == "mine"
        assert await other.add_with_id("mine", b"2") == "mine"
    assert [(each.id, each.payload) for _, each in raw.waiting()] == [("mine", b"1")]


async def test_options_give_a_job_its_name_id_and_retry_rules(producer, raw):
    retry = JobRetryOverride(4, BackoffSpec.exponential(timedelta(seconds=1), max_ms=30_000))
    options = AddOptions(id="mine", name="send", retry=retry)
    assert await producer.add_with_options(b"x", options) == "mine"
    [(name, envelope)] = raw.waiting()
    assert (name, envelope.id, envelope.retry) == ("send", "mine", retry)
    assert envelope.retry.backoff.delay_ms == 1_000


async def test_options_may_be_a_dict_of_the_same_names(producer, raw):
    backoff = {"kind": "fixed", "delay_ms": 5}
    options = {"name": "send", "retry": {"max_attempts": 2, "backoff": backoff}, "id": None}
    await producer.add_with_options(b"x", options)
    [(name, envelope)] = raw.waiting()
    assert (name, envelope.retry) == ("send", JobRetryOverride(2, BackoffSpec.fixed(5)))


async def test_a_bulk_is_added_in_order(producer, raw):
    payloads = [bytes([number]) for number in range(200)]
    ids = await producer.add_bulk(payloads)
    assert [(each.id, each.payload) for _, each in raw.waiting()] == list(
        zip(ids, payloads, strict=True)
    )
    assert await producer.add_bulk([]) == []


async def test_a_bulk_shares_its_options(producer, raw):
    retry = JobRetryOverride(max_attempts=9)
    options = AddOptions(name="shared", retry=retry)
    ids = await producer.add_bulk_with_options([b"1", b"2"], options)
    assert [(name, each.id, each.retry) for name, each in raw.waiting()] == [
        ("shared", ids[0], retry),
        ("shared", ids[1], retry),
    ]
    assert await producer.add_bulk_with_options([b"3"], AddOptions(id="only")) == ["only"]


async def test_one_id_for_many_jobs_is_refused_before_anything_is_sent(producer, raw):
    with pytest.raises(ConfigError, match="cannot be the id of 2 jobs"):
        await producer.add_bulk_with_options([b"1", b"2"], AddOptions(id="mine"))
    assert raw.waiting() == []


async def test_a_bulk_may_name_each_job(producer, raw):
    await producer.add_bulk_named([("a", b"1"), ("", b"2"), ("b", b"3")])
    assert [(name, each.payload) for name, each in raw.waiting()] == [
        ("a", b"1"), ("", b"2"), ("b", b"3"),
    ]  # fmt: skip


async def test_a_name_that_is_too_long_stops_the_whole_bulk(producer, raw):
    with pytest.raises(ConfigError, match="256-byte cap"):
        await producer.add_bulk_named([("a", b"1"), ("n" * 257, b"2")])
    assert raw.waiting() == []


# --- later


@pytest.mark.parametrize("delay", [60_000, 60_000.9, timedelta(minutes=1)])
async def test_a_delay_is_milliseconds_or_a_timedelta(producer, raw, delay):
    before_ms = SYSTEM_CLOCK.now_ms()
    job_id = await producer.add_in(delay, b"x")
    [(_, envelope, due_ms)] = raw.delayed()
    assert (envelope.id, envelope.payload) == (job_id, b"x")
    assert before_ms + 60_000 <= due_ms <= SYSTEM_CLOCK.now_ms() + 60_000


FUTURE = datetime(2200, 1, 1, tzinfo=UTC)
FUTURE_MS = int(FUTURE.timestamp() * 1_000)


@pytest.mark.parametrize("moment", [FUTURE, FUTURE.replace(tzinfo=None), FUTURE_MS])
async def test_a_moment_is_a_datetime_or_epoch_milliseconds(server, queue_name, raw, moment):
    config = ProducerConfig(queue_name=queue_name, max_delay_secs=0)
    async with Producer.from_config(server.url, config) as producer:
        job_id = await producer.add_at(moment, b"x")
    assert [(each.id, due_ms) for _, each, due_ms in raw.delayed()] == [(job_id, FUTURE_MS)]


async def test_no_delay_and_a_moment_in_the_past_are_now(producer, raw):
    now = [await producer.add_in(0, b"x"), await producer.add_at(1, b"x")]
    now.append(await producer.add_in(timedelta(microseconds=10), b"x"))
    assert [each.id for _, each in raw.waiting()] == now
    assert raw.delayed() == []


async def test_many_jobs_may_be_added_for_later_at_once(producer, raw):
    ids = await producer.add_in_bulk(timedelta(hours=1), [b"1", b"2", b"3"])
    stored = {each.id: each.payload for _, each, _ in raw.delayed()}
    assert stored == dict(zip(ids, [b"1", b"2", b"3"], strict=True))
    assert len({due_ms for _, _, due_ms in raw.delayed()}) == 1


async def test_delayed_jobs_take_options(producer, raw):
    options = AddOptions(name="later", retry=JobRetryOverride(2))
    ids = {
        await producer.add_in_with_options(60_000, b"in", options),
        await producer.add_at_with_options(SYSTEM_CLOCK.now_ms() + 60_000, b"at", options),
    }
    assert {each.id for _, each, _ in raw.delayed()} == ids
    assert {(name, each.retry) for name, each, _ in raw.delayed()} == {("later", options.retry)}


async def test_a_delayed_id_is_added_once(producer, raw):
    at_ms = SYSTEM_CLOCK.now_ms() + 60_000
    assert await producer.add_in_with_id("in", 60_000, b"1") == "in"
    assert await producer.add_in_with_id("in", 90_000, b"2") == "in"
    assert await producer.add_at_with_id("at", at_ms, b"3") == "at"
    assert await producer.add_at_with_id("at", at_ms, b"4") == "at"
    items = [("in", b"5"), ("new", b"6")]
    assert await producer.add_in_bulk_with_ids(timedelta(minutes=1), items) == ["in", "new"]
    stored = {each.id: each.payload for _, each, _ in raw.delayed()}
    assert stored == {"in": b"1", "at": b"3", "new": b"6"}


async def test_a_delay_beyond_the_limit_is_refused(server, queue_name):
    config = ProducerConfig(queue_name=queue_name, max_delay_secs=timedelta(hours=1))
    async with Producer.from_config(server.url, config) as producer:
        with pytest.raises(ConfigError, match="exceeds max_delay_secs 3600s"):
            await producer.add_in(timedelta(hours=2), b"x")


async def test_delayed_jobs_are_cancelled_one_answer_each(producer, raw):
    kept = await producer.add_in(60_000, b"x")
    ids = await producer.add_in_bulk(60_000, [b"1"] * 3)
    assert await producer.cancel_delayed(ids[0]) is True
    assert await producer.cancel_delayed(ids[0]) is False
    answers = await producer.cancel_delayed_bulk([ids[2], "unknown", ids[0], ids[1]])
    assert answers == [True, False, False, True]
    assert await producer.cancel_delayed_bulk([]) == []
    assert [each.id for _, each, _ in raw.delayed()] == [kept]


# --- dead letters, results, recurring jobs


async def run_all(server, queue_name, handler, **options):
    """Run a consumer until the queue is empty."""
    retry = RetryConfig(initial_backoff_ms=1, jitter_ms=0)
    consumer = Consumer(
        server.url, queue_name, max_attempts=2, retry=retry, concurrency=5, **options
    )
    client, keys = server.client(), QueueKeys(queue_name)
    working = asyncio.create_task(consumer.run(handler))
    await eventually(lambda: not client.xlen(keys.stream) and not client.zcard(keys.delayed))
    consumer.shutdown()
    await working


async def test_dead_letters_are_shown_and_sent_round_again(producer, server, queue_name, raw):
    async def fail(job):
        msg = "no"
        raise ValueError(msg)

    job_id = await producer.add_with_options(b"x", {"name": "hard"})
    await run_all(server, queue_name, fail)
    [entry] = await producer.peek_dlq(10)
    assert isinstance(entry, DlqEntry)
    assert (entry.name, entry.reason, entry.attempts) == ("hard", "retries_exhausted", 2)
    assert (entry.error, entry.detail) == ("ValueError: no", None)
    assert decode(entry.payload).id == job_id
    # As in the reference package, which answers in dicts.
    assert (entry["reason"], entry.get("nothing"), dict(entry)["name"]) == (
        entry.reason,
        None,
        "hard",
    )
    with pytest.raises(KeyError):
        entry["nothing"]

    assert await producer.peek_dlq(0) == []
    assert await producer.replay_dlq(10) == 1
    assert await producer.replay_dlq() == 0
    assert [(name, each.id, each.attempt) for name, each in raw.waiting()] == [("hard", job_id, 0)]


async def test_results_are_the_bytes_that_the_handler_returned(producer, server, queue_name):
    values = [b"\x01", b"", None, bytearray(b"ab")]
    ids = await producer.add_bulk([bytes([at]) for at in range(len(values))])

    async def answer(job):
        return values[job.payload[0]]

    await run_all(server, queue_name, answer, store_results=True)
    assert await producer.get_result_bulk([*ids, "unknown"]) == [b"\x01", None, None, b"ab", None]
    assert await producer.get_result(ids[0]) == b"\x01"
    assert await producer.get_result_bulk([]) == []


async def test_recurring_jobs_are_stored_listed_and_forgotten(producer):
    every = RepeatableSpec(job_name="tick", pattern=RepeatPattern.every(60_000), payload=b"1")
    cron = RepeatableSpec(
        key="mine",
        job_name="digest",
        pattern=RepeatPattern.cron("0 9 * * *", tz="Europe/London"),
        payload=b"2",
        limit=3,
        start_after_ms=FUTURE,
        end_before_ms=FUTURE_MS + 10 * 86_400_000,
        missed_fires=MissedFiresPolicy.fire_all(2),
        retry=JobRetryOverride(5),
    )
    assert await producer.upsert_repeatable(cron) == "mine" == cron.resolved_key()
    assert await producer.upsert_repeatable(every) == "tick::every:60000" == every.resolved_key()
    first, second = await producer.list_repeatable(10)
    assert (first.key, first.job_name, first.missed_fires) == ("tick::every:60000", "tick", None)
    assert second == RepeatableMeta(
        "mine", "digest", cron.pattern, second.next_fire_ms, 3, FUTURE_MS,
        FUTURE_MS + 10 * 86_400_000, MissedFiresPolicy.fire_all(2), attempts=5,
    )  # fmt: skip
    assert second.next_fire_ms == FUTURE_MS + 9 * 3_600_000
    assert second["pattern"]["tz"] == "Europe/London"
    assert len(await producer.list_repeatable(1)) == 1

    assert await producer.remove_repeatable("mine") is True
    assert await producer.remove_repeatable("mine") is False
    assert await producer.remove_repeatable_by_key("tick::every:60000") is True
    assert await producer.list_repeatable() == []


async def test_a_spec_may_be_a_dict_of_the_same_names(producer):
    spec = {
        "key": "",
        "job_name": "tick",
        "pattern": {"kind": "cron", "expression": "* * * * *", "tz": None},
        "payload": b"1",
        "limit": None,
        "missed_fires": {"kind": "fire-once"},
    }
    assert await producer.upsert_repeatable(spec) == "tick::cron:* * * * *:UTC"
    [meta] = await producer.list_repeatable(10)
    assert meta.missed_fires == MissedFiresPolicy.fire_once()


# --- the object


async def test_it_tells_its_keys_and_its_token(server):
    producer = Producer(server.url, "emails")
    assert producer.stream_key() == "{chasqui:emails}:stream"
    assert producer.delayed_key() == "{chasqui:emails}:delayed"
    assert producer.dlq_key() == "{chasqui:emails}:dlq"
    assert producer.producer_id() != Producer(server.url, "emails").producer_id()
    assert repr(producer).startswith("<Producer emails ")


async def test_connect_says_at_once_that_no_server_answers():
    with pytest.raises(ConnectionFailedError):
        await Producer.connect(NOWHERE, ProducerConfig(), reconnect_max_attempts=1)


async def test_the_settings_of_both_shapes_are_the_configs(server, queue_name):
    async with Producer(server.url, queue_name, max_stream_len=1, pool_size=2) as producer:
        await producer.add(b"x")
        with pytest.raises(QueueFullError):
            await producer.add(b"y")
    with pytest.raises(ConfigError, match="pool_size must be > 0"):
        Producer(server.url, queue_name, pool_size=0)


async def test_a_closed_producer_opens_another_connection(producer, raw):
    await producer.shutdown()
    await producer.close()
    await producer.add(b"x")
    assert len(raw.waiting()) == 1


BAD_CALLS = {
    "text": (lambda p: p.add("text"), TypeError, "payload must be bytes, got str"),
    "none": (lambda p: p.add(None), TypeError, "payload must be bytes, got NoneType"),
    "blank id": (lambda p: p.add_with_id(" ", b"x"), ValueError, "id must be non-blank text"),
    "id of a number": (lambda p: p.add_with_id(5, b"x"), ValueError, "id must be non-blank"),
    "unknown option": (lambda p: p.add_with_options(b"x", {"jid": 1}), ValueError, "'jid'"),
    "unknown retry": (
        lambda p: p.add_with_options(b"x", {"retry": {"attempts": 1}}), ValueError, "'attempts'",
    ),
    "not options": (lambda p: p.add_with_options(b"x", 5), TypeError, "AddOptions or their dict"),
    "bulk of one": (lambda p: p.add_bulk(b"abc"), TypeError, "put it in a list"),
    "bulk of text": (lambda p: p.add_bulk(["x"]), TypeError, "payload must be bytes"),
    "no pair": (lambda p: p.add_bulk_named([b"x"]), ValueError, r"items\[0\]"),
    "name of bytes": (lambda p: p.add_bulk_named([(b"n", b"x")]), TypeError, "name must be a str"),
    "negative delay": (lambda p: p.add_in(-1, b"x"), ValueError, "delay must be .* 0 or more"),
    "delay of nan": (lambda p: p.add_in(float("nan"), b"x"), ValueError, "finite"),
    "delay of text": (lambda p: p.add_in("1h", b"x"), TypeError, "milliseconds or a timedelta"),
    "delay of truth": (lambda p: p.add_in(delay=True, payload=b"x"), TypeError, "got bool"),
    "moment of text": (lambda p: p.add_at("noon", b"x"), TypeError, "epoch milliseconds or"),
    "moment before all": (lambda p: p.add_at(-1, b"x"), ValueError, "run_at must be 0 or more"),
    "cancel nothing": (lambda p: p.cancel_delayed(""), ValueError, "id must be non-blank text"),
    "ids of one": (lambda p: p.cancel_delayed_bulk("abc"), TypeError, "put it in a list"),
    "limit of text": (lambda p: p.peek_dlq("5"), TypeError, "limit must be a whole number"),
    "limit below": (lambda p: p.replay_dlq(-1), ValueError, "limit must be 0 or more"),
    "no spec": (lambda p: p.upsert_repeatable(5), TypeError, "RepeatableSpec or its dict"),
    "unknown spec": (lambda p: p.upsert_repeatable({"cron": 1}), ValueError, "'cron'"),
    "no key": (lambda p: p.remove_repeatable(""), ValueError, "spec_key must be non-blank"),
    "result of none": (lambda p: p.get_result(None), ValueError, "id must be non-blank"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BAD_CALLS)
async def test_a_mistake_is_refused_before_anything_is_sent(mistake):
    call, kind, says = BAD_CALLS[mistake]
    with pytest.raises(kind, match=says):
        await call(Producer(NOWHERE, "nowhere"))
