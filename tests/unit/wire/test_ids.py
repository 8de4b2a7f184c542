"""Job ids: unique, sortable, cheap. Stream ids: ordered as the server orders them."""

import os
import signal
import threading
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import DecodeError
from chasquimq.wire import ids
from chasquimq.wire.ids import StreamId, ulid, ulid_time_ms, ulids

NOW_MS = 1_794_768_259_219
U64_MAX = 2**64 - 1
U64 = st.integers(0, U64_MAX)


@pytest.fixture(autouse=True)
def _a_fresh_mint(monkeypatch):
    """Ids never go back in a process, so each test starts with a mint that has seen no time yet."""
    monkeypatch.setattr(ids, "_mint", ids._Mint())  # noqa: SLF001 - no door for this on purpose


def test_an_id_is_26_characters_that_tell_its_time():
    made = ulid(NOW_MS)
    assert len(made) == 26
    assert set(made) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
    assert made.startswith("01M7G8CJ4K")  # as the reference engine writes this millisecond
    assert ulid_time_ms(made) == NOW_MS
    assert ulid_time_ms(made.lower()) == NOW_MS


@given(st.lists(st.integers(0, 2**48 - 1), max_size=30), st.integers(0, 3000))
def test_ids_only_ever_ascend_however_the_clock_jumps(times, count):
    made = [ulid(now_ms) for now_ms in times]
    made += ulids(times[0] if times else 0, count)
    made += [ulid(0), *ulids(NOW_MS, 2)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_a_clock_that_steps_back_keeps_the_latest_time_seen():
    ulid(NOW_MS)
    assert ulid_time_ms(ulid(NOW_MS - 5000)) == NOW_MS
    assert ulid_time_ms(ulid(NOW_MS + 1)) == NOW_MS + 1


def test_many_ids_of_one_millisecond_count_up_by_one():
    made = ulids(NOW_MS, 5000)
    numbers = [int.from_bytes(_crockford(text)) for text in made]
    assert numbers == list(range(numbers[0], numbers[0] + 5000))
    assert {ulid_time_ms(text) for text in made} == {NOW_MS}


def _crockford(text):
    number = 0
    for char in text:
        number = number * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(char)
    return number.to_bytes(17)


def test_when_the_random_part_is_used_up_the_time_goes_one_on():
    mint = ids._mint  # noqa: SLF001
    ulid(NOW_MS)
    mint.block, mint.place = mint.block[:10] + "Z" * 14, 1023
    last, first = ulids(NOW_MS, 2)
    assert last.endswith("Z" * 16)
    assert first[10:] == "0" * 16
    assert ulid_time_ms(first) == NOW_MS + 1
    assert ulid(NOW_MS + 1) == first[:-1] + "1"


def test_two_mints_start_at_different_places():
    assert len({ids._Mint().one(NOW_MS)[10:] for _ in range(50)}) == 50  # noqa: SLF001


@pytest.mark.parametrize("count", [0, -1])
def test_no_ids_are_made_when_none_are_asked_for(count):
    assert ulids(NOW_MS, count) == []


def test_a_time_beyond_48_bits_is_refused_and_changes_nothing():
    before = ulid(NOW_MS)
    for make in (ulid, lambda now_ms: ulids(now_ms, 2)):
        with pytest.raises(ValueError, match="does not fit in the 48 bits of a ULID"):
            make(2**48)
    assert ulid(NOW_MS) > before


def test_threads_never_get_the_same_id():
    made = []

    def work():
        for _ in range(200):
            made.append(ulid(NOW_MS))
            made.extend(ulids(NOW_MS, 7))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == len(made) == 4 * 200 * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_goes_its_own_way_even_if_the_lock_was_held(monkeypatch):
    monkeypatch.undo()  # the hook is bound to the mint of the process
    before = ulid(NOW_MS)
    read_end, write_end = os.pipe()
    with ids._mint.lock:  # noqa: SLF001
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)  # a child that waits for the lock would wait for ever
            os.write(write_end, "".join(ulids(NOW_MS, 100)).encode())
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    childs = {text[at : at + 26] for at in range(0, len(text), 26)}
    assert len(childs) == 100
    assert childs.isdisjoint({before, *ulids(NOW_MS, 100)})


@pytest.mark.parametrize(
    "text",
    ["", "my-id", "0" * 25, "0" * 27, "8" + "0" * 25, "U" * 26, "0" * 25 + "I", "é" * 26],
)
def test_other_ids_have_no_time(text):
    assert ulid_time_ms(text) is None


@given(U64, U64)
def test_a_stream_id_comes_back_from_its_text(ms, seq):
    stream_id = StreamId(ms, seq)
    assert StreamId.parse(str(stream_id)) == stream_id
    assert StreamId.parse(str(stream_id).encode()) == stream_id
    assert type(StreamId.parse(str(stream_id))) is StreamId


@given(st.tuples(U64, U64), st.tuples(U64, U64))
def test_stream_ids_are_ordered_by_time_then_sequence(one, other):
    assert (StreamId(*one) < StreamId(*other)) == (one < other)


def test_text_would_order_them_otherwise():
    assert StreamId.parse("9-0") < StreamId.parse("10-0")
    assert StreamId.parse("5-9") < StreamId.parse("5-10")
    assert StreamId.parse("5") == StreamId(5, 0)


@given(U64, U64)
def test_next_and_previous_undo_each_other(ms, seq):
    stream_id = StreamId(ms, seq)
    if stream_id != StreamId.MAX:
        assert stream_id.next() > stream_id
        assert stream_id.next().previous() == stream_id
    if stream_id != StreamId.MIN:
        assert stream_id.previous().next() == stream_id


def test_the_neighbours_at_the_edges_of_a_millisecond():
    assert StreamId(5, U64_MAX).next() == StreamId(6, 0)
    assert StreamId(6, 0).previous() == StreamId(5, U64_MAX)
    assert str(StreamId.MIN) == "0-0"
    assert str(StreamId.MAX) == f"{U64_MAX}-{U64_MAX}"
    with pytest.raises(ValueError, match="greatest"):
        StreamId.MAX.next()
    with pytest.raises(ValueError, match="precedes"):
        StreamId.MIN.previous()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "$",
        ">",
        "-",
        "+",
        "1-",
        "-1",
        "1-2-3",
        " 1-1",
        "1-1\n",
        "٣-1",
        "1" * 21,
        "1-" + "9" * 20,
    ],
)
def test_what_is_no_stream_id_is_a_decode_error(text):
    for given_as in (text, text.encode()):
        with pytest.raises(DecodeError, match="is not a stream id"):
            StreamId.parse(given_as)


@given(st.binary(max_size=30))
def test_arbitrary_bytes_raise_nothing_but_a_decode_error(raw):
    with suppress(DecodeError):
        StreamId.parse(raw)
