"""What may stand in place of a reply: anything that hiredis can make of bytes."""

import hypothesis.strategies as st
from hiredis import ReplyError

_REFUSALS = (
    "ERR no such key",
    "NOGROUP x",
    "OOM x",
    "",
    "MOVED 1 h:1",
    "LOADING x",
    "NOAUTH x",
    "READONLY x",
    "WRONGTYPE x",
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**63),
    st.floats(),
    st.binary(max_size=12),
    st.sampled_from((b"1-1", b"1700000000000-0", b"d", b"n", b"default", b"12", b"inf", b"", b"0")),
    st.sampled_from(_REFUSALS).map(ReplyError),
)
replies = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=7),
        st.dictionaries(st.binary(max_size=3), inner, max_size=2),
    ),
    max_leaves=14,
)


@st.composite
def spoiled(draw, good):
    """A good reply in which a part or two are left out, or are nonsense, or twice as much of it."""
    told = good
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(list(_places(told))))
        told = _with(told, place, draw(st.lists(replies, max_size=2)) if place else draw(replies))
    return told


def _places(reply, place=()):
    yield place
    if isinstance(reply, list):
        for at, part in enumerate(reply):
            yield from _places(part, (*place, at))


def _with(reply, place, others):
    """The reply, with any number of others for the part at this place; another one for it all."""
    if not place:
        return others
    at, *rest = place
    inner = _with(reply[at], rest, others)
    return [*reply[:at], *([inner] if rest else others), *reply[at + 1 :]]
