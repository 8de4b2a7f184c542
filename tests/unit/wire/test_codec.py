"""User data in and out: the type rules, what is refused and how, and bytes from anywhere."""

import threading
import tracemalloc
from collections import OrderedDict, namedtuple
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from uuid import UUID

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chasquimq.errors import DecodeError, EncodeError
from chasquimq.wire.codec import pack, pack_each, pack_plain, split, unpack, unpack_record

STATM = Path("/proc/self/statm")

INT64 = st.integers(-(2**63), 2**64 - 1)
SCALARS = st.one_of(
    st.none(), st.booleans(), INT64, st.floats(allow_nan=False), st.text(), st.binary()
)
KEYS = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner), max_leaves=3)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(SCALARS, inner, max_size=5),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_data_gives_the_bytes_of_the_library_and_comes_back_the_same(value):
    packed = pack(value)
    assert packed == msgpack.packb(value, use_bin_type=True)
    assert unpack(packed) == value


@given(st.dictionaries(KEYS, SCALARS))
def test_dicts_come_back_with_any_keys_tuples_included(value):
    assert unpack(pack(value)) == value


class Colour(Enum):
    RED = "red"
    WHEN = date(2026, 1, 2)
    PAIR = (1, UUID(int=5))


class Level(IntEnum):
    HIGH = 9


class Word(StrEnum):
    YES = "yes"


@dataclass(frozen=True)
class Address:
    street: str
    since: date


@dataclass(slots=True)
class User:
    name: str
    address: Address
    tags: set = field(default_factory=set)


Point = namedtuple("Point", "x y")  # noqa: PYI024 - both kinds are in use
BERLIN = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ((1, (2, 3)), [1, [2, 3]]),
        (Point(1, 2), [1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ({1: "a", None: "b", 1.5: "c", b"d": "d"}, {1: "a", None: "b", 1.5: "c", b"d": "d"}),
        ({True: "a", False: "b"}, {True: "a", False: "b"}),
        ({(1, ("a",)): 1}, {(1, ("a",)): 1}),
        ({frozenset({2, 1}): 1}, {(1, 2): 1}),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (set(), []),
        (datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "2026-01-02T03:04:05.678901+00:00"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=BERLIN), "2026-01-02T03:04:05+02:00"),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),  # noqa: DTZ001 - naive on purpose
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4, 5, tzinfo=UTC), "03:04:05+00:00"),
        (timedelta(days=1, microseconds=250_000), 86400.25),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        (Colour.RED, "red"),
        (Colour.WHEN, "2026-01-02"),
        (Colour.PAIR, [1, "00000000-0000-0000-0000-000000000005"]),
        (Level.HIGH, 9),
        (Word.YES, "yes"),
        ({Colour.RED: Level.HIGH, date(2026, 1, 2): 1}, {"red": 9, "2026-01-02": 1}),
        (
            User("ada", Address("here", date(2026, 1, 2)), {"b", "a"}),
            {
                "name": "ada",
                "address": {"street": "here", "since": "2026-01-02"},
                "tags": ["a", "b"],
            },
        ),
        (msgpack.ExtType(5, b"x"), msgpack.ExtType(5, b"x")),
        (msgpack.Timestamp(1, 2000), datetime(1970, 1, 1, 0, 0, 1, 2, tzinfo=UTC)),
    ],
)
def test_richer_values_come_back_plain(value, back):
    found = unpack(pack(value))
    assert found == back
    assert type(found) is type(back)
    assert unpack(pack([value, {"k": value}])) == [back, {"k": back}]


def test_subclasses_follow_the_rule_of_their_base():
    class Moment(datetime):
        pass

    class Cents(Decimal):
        pass

    assert unpack(pack(Moment(2026, 1, 2, tzinfo=UTC))) == "2026-01-02T00:00:00+00:00"
    assert unpack(pack(Cents("0.50"))) == "0.50"


def test_a_set_whose_elements_cannot_be_compared_still_goes():
    assert sorted(unpack(pack({1, "a", None})), key=str) == [1, None, "a"]


def test_a_timestamp_of_another_language_is_an_aware_datetime():
    # What JavaScript's encoder writes for new Date(1700000000123).
    assert unpack(bytes.fromhex("d7ff1d5362006553f100")) == datetime(
        2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC
    )


def nested(depth):
    value = None
    for _ in range(depth):
        value = [value]
    return value


@dataclass
class HalfMade:
    there: int
    missing: int = field(init=False)


ITSELF = {"a": []}
ITSELF["a"].append(ITSELF)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (object(), TypeError, "data: builtins.object is not a type MessagePack can carry"),
        ({"user": {"f": print}}, TypeError, r"data\['user'\]\['f'\]: builtins.builtin_function"),
        ([1, (2, Address("x", object()))], TypeError, r"data\[1\]\[1\]\.since: builtins.object"),
        ({1: {2: {object}}}, TypeError, r"data\[1\]\[2\]\{\.\.\.\}: builtins.type is not"),
        ({("k", object()): 1}, TypeError, r"data key \('k', .*\[1\]: builtins.object is not"),
        (Address, TypeError, "data: builtins.type is not"),
        ([1j], TypeError, r"data\[0\]: builtins.complex is not"),
        (HalfMade(1), TypeError, "data: a dataclass with a field that was never set .*missing"),
        ([2**64], ValueError, r"data\[0\]: an integer beyond 64 bits"),
        ({"n": -(2**63) - 1}, ValueError, r"data\['n'\]: an integer beyond 64 bits"),
        (["ok", "\ud800"], ValueError, r"data\[1\]: text with a lone surrogate"),
        (ITSELF, ValueError, r"data\['a'\]\[0\]: contains itself"),
        (
            nested(1500),
            ValueError,
            r"data\[0\].* \.\.\. .*\[0\]: nested deeper than 1024 levels",
        ),
    ],
)
def test_what_cannot_be_packed_is_refused_with_its_place(value, error, words):
    with pytest.raises(error, match=words):
        pack(value)


def test_a_refusal_never_shows_the_value_and_uses_the_callers_word_for_it():
    with pytest.raises(ValueError, match=r"^result\['secret'\]: ") as caught:
        pack({"secret": 2**80}, name="result")
    assert str(2**80) not in str(caught.value)


def test_a_long_key_is_cut_in_the_message():
    with pytest.raises(TypeError) as caught:
        pack({"x" * 10_000: object()})
    assert len(str(caught.value)) < 250


def test_a_refused_value_leaves_nothing_behind_for_the_next():
    for _ in range(3):
        with pytest.raises(TypeError):
            pack(["left over", object()])
        assert pack(1) == b"\x01"


def test_many_values_are_packed_as_each_would_be_and_a_bad_one_leaves_nothing_behind():
    values = [1, {"a": [None, 2.5]}, UUID(int=7), b"x" * (2 << 20), {3}]
    assert pack_each(values) == [pack(value) for value in values]
    assert pack_each([]) == []
    for _ in range(3):
        with pytest.raises(TypeError):
            pack_each([1, ["left over", object()]])
        assert (pack(1), pack_each([2])) == (b"\x01", [b"\x02"])


def test_packing_inside_packing_and_in_threads_mixes_nothing_up():
    class Packs:
        def __get__(self, instance, owner):
            return pack([1, 2, 3])

    @dataclass
    class Nested:
        first: int

    Nested.first = Packs()
    value = [{"a": Nested.__new__(Nested)}, {UUID(int=7)}, "tail"]
    right = [{"a": {"first": pack([1, 2, 3])}}, [str(UUID(int=7))], "tail"]
    wrong = []

    def work():
        for _ in range(300):
            found = unpack(pack(value))
            if found != right:
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert unpack(pack(value)) == right


def test_values_larger_than_a_packers_buffer_are_packed_whole():
    value = [b"x" * (2 << 20), "end"]
    assert unpack(pack(value)) == value
    assert pack("small") == b"\xa5small"


def test_the_memory_that_a_huge_value_took_is_given_back():
    tracemalloc.start()
    try:
        assert len(pack(bytes(32 << 20))) > 32 << 20
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()


def test_shapes_of_our_own_that_cannot_be_written_are_an_encode_error():
    assert pack_plain(["a", None, 1.0]) == msgpack.packb(["a", None, 1.0])
    with pytest.raises(EncodeError, match="beyond 64 bits"):
        pack_plain([2**64])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\x00\x00",
        b"\xa1\xff",
        b"\xa3\xed\xa0\x80",
        b"\x92\x00",
        b"\x81\x80\x00",
        b"\x81\x91\x80\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\xd4\x80\x00",
        b"\xc7\x03\xff123",
        b"\xc7\x0c\xff" + b"\x00" * 4 + b"\x7f" + b"\xff" * 7,
    ],
)
def test_bytes_that_are_not_one_value_are_a_decode_error(raw):
    with pytest.raises(DecodeError, match=r"not one complete MessagePack value: [\w']"):
        unpack(raw)


@pytest.mark.skipif(not STATM.exists(), reason="needs to know how much memory is in use")
def test_lengths_that_lie_are_not_believed():
    """With half of the memory that believing even a tenth of them would take."""
    import resource  # noqa: PLC0415 - not everywhere

    lie = (b"\xdd" + (900_000).to_bytes(4)) * 180_000
    limit = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(STATM.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (256 << 20), limit[1]))
    try:
        with pytest.raises(DecodeError):
            unpack(lie)
        with pytest.raises(DecodeError):
            split(lie, max_slots=5)
        assert unpack_record(lie, max_slots=5) is None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


@settings(max_examples=300)
@given(st.binary(max_size=200))
@example(b"\x81\x92\x01\x90\x00")
@example(b"\xde\x00\x01\xc0\xc0")
def test_arbitrary_bytes_raise_nothing_but_a_decode_error(raw):
    with suppress(DecodeError):
        unpack(raw)
    with suppress(DecodeError):
        split(raw, max_slots=5)
    unpack_record(raw, max_slots=5)


@given(st.lists(PLAIN, max_size=5), st.binary(max_size=3))
def test_an_array_is_split_into_exactly_the_bytes_of_its_elements(values, rest):
    assert split(pack(values) + rest, max_slots=5) == [pack(value) for value in values]


def test_a_map_is_split_by_its_text_keys():
    assert split(pack({"a": [1], 2: "x", "b": None}), max_slots=3) == {"a": pack([1]), "b": b"\xc0"}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b"\x01", "not one complete"),
        (b"\x93\x01", "not one complete"),
        (b"\x96" + b"\x01" * 6, "6 slots, expected at most 5"),
        (b"\xdd\xff\xff\xff\xff", "4294967295"),
    ],
)
def test_what_is_no_short_array_or_map_cannot_be_split(raw, words):
    with pytest.raises(DecodeError, match=words):
        split(raw, max_slots=5)
