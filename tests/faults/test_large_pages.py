"""Jobs that together are more than one reply may hold: who looks through them asks for fewer."""

import asyncio

import pytest

from chasquimq import Queue, ReplyTooLargeError
from chasquimq.broker import access, dlq
from chasquimq.wire.keys import QueueKeys

LETTERS, BYTES = 60, 32_768


@pytest.fixture
def small_replies(monkeypatch):
    # Of life's size it would be letters of 32 MB, and a limit of one GiB.
    monkeypatch.setattr(access, "MOST_REPLY_BYTES", 1 << 20)


@pytest.fixture
async def queue(server, queue_name):
    async with Queue(queue_name, redis_url=server.url, max_payload_bytes=8 << 20) as queue:
        yield queue


async def fill(queue, server, count=LETTERS, size=BYTES):
    """Dead letters, made of entries as they are."""
    await queue.add_bulk([{"name": "large", "data": {"filler": bytes(size)}}] * count)
    keys, client = QueueKeys(queue.name), server.client()
    for entry_id, fields in client.xrange(keys.stream):
        client.xadd(keys.dlq, {**fields, "reason": "unrecoverable", "source_id": entry_id})
        client.xdel(keys.stream, entry_id)


async def test_dead_letters_that_no_reply_can_hold_are_all_seen_and_replayed(
    server, queue, small_replies
):
    await fill(queue, server)
    assert len(await queue.peek_dlq(LETTERS)) == LETTERS
    assert len(await queue.get_jobs("failed")) == LETTERS
    assert await queue.replay_dlq(LETTERS + 1) == LETTERS
    assert (await queue.counts()).dead == 0
    assert len(await queue.get_jobs("waiting")) == LETTERS
    assert await queue.drain() == LETTERS


async def test_who_peeks_at_one_dead_letter_is_not_sent_others_and_breaks_no_call_beside_it(
    server, queue, small_replies
):
    await fill(queue, server)
    peeked, *cancelled = await asyncio.gather(
        queue.peek_dlq(1), *(queue.cancel_delayed(f"j{number}") for number in range(5))
    )
    assert (len(peeked), cancelled) == (1, [False] * 5)


async def test_letters_that_another_has_replayed_do_not_count(server, queue, monkeypatch):
    """Ours chooses its letters, another moves some of them, and ours moves others instead."""
    await fill(queue, server, 10, 1)
    replay, client, keys = dlq.replay, server.client(), QueueKeys(queue.name)

    def after_another(*args, **options):
        if client.xlen(keys.dlq) == 10:
            client.xdel(keys.dlq, *[entry_id for entry_id, _ in client.xrange(keys.dlq, count=2)])
        return replay(*args, **options)

    monkeypatch.setattr(dlq, "_PAGE", 5)
    monkeypatch.setattr(dlq, "replay", after_another)
    assert await queue.replay_dlq(5) == 5
    assert client.xlen(keys.dlq) == 3


async def test_dead_letters_that_no_reply_can_hold_are_all_discarded(server, queue, small_replies):
    await fill(queue, server)
    assert await queue.discard_dlq(LETTERS - 1) == LETTERS - 1
    assert await queue.discard_dlq() == 1


async def test_delayed_jobs_that_no_reply_can_hold_are_listed_cleaned_and_drained(
    queue, small_replies
):
    for _ in range(LETTERS):
        await queue.add("large", {"filler": bytes(BYTES)}, delay_ms=60_000)
    assert len(await queue.get_jobs("delayed")) == LETTERS
    assert len(await queue.clean(0, 10, "delayed")) == 10
    assert await queue.drain(delayed=True) == LETTERS - 10


async def test_a_dead_letter_that_no_reply_can_hold_is_an_error_that_says_so(
    server, queue, small_replies
):
    await fill(queue, server, 1, 2 << 20)
    with pytest.raises(ReplyTooLargeError, match="ask for less"):
        await queue.peek_dlq()
