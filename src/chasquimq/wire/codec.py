"""MessagePack in and out, with the type rules we promise; the only importer of its library.

Going in (`pack`), plain values give exactly the bytes of `msgpack.packb(value, use_bin_type=True)`,
so any language reads them. Richer Python values are first turned into plain ones. Nothing marks
those, so they come back (`unpack`) as the plain value, and a reader who knows better converts:

    goes in                              comes back
    None bool int float str bytes        the same
    bytearray, memoryview                bytes
    list, tuple, namedtuple              list (a tuple where it is a key of a dict)
    dict, with any keys                  dict, its keys by these same rules
    set, frozenset                       list, sorted where the elements can be compared
    dataclass instance                   dict of field name to value
    Enum member                          its value
    datetime, date, time                 str, ISO 8601, with the offset if it has one
    timedelta                            float, seconds
    UUID, Decimal                        str
    a timestamp of another language      datetime, aware, in UTC, to the microsecond
    msgpack.ExtType (codes 0 to 127)     the same

Two keys of a dict that turn into the same plain value (a date, and its own ISO text) become one.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgpack import Packer, Unpacker, packb, unpackb  # type: ignore[import-untyped]
from msgpack.exceptions import UnpackException  # type: ignore[import-untyped]

from chasquimq.errors import DecodeError, EncodeError
from chasquimq.wire.plain import locate, plain

Buffer = bytes | bytearray | memoryview

# A packer keeps its buffer as large as the largest value it ever wrote. After a value larger than
# this it is dropped instead of reused, so that one huge payload does not hold its memory for good.
_KEEP_PACKER_BYTES = 1 << 20
# Of where in a value something was found, at the beginning and at the end.
_SHOWN_PATH = 60

# In the library before 1.2.4 an array header reserves room for all it claims to hold, and headers
# can be nested. Up to this size the worst that lying ones can reserve is 1024 levels of 4096
# pointers, 32 MiB of untouched memory, given back at once. Anything longer has its structure
# checked first, without building it, for a seventh of what unpacking costs.
_UNCHECKED_BYTES = 4096

_MAP_HEADS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))

_UNPACK_ERRORS = (ValueError, TypeError, OverflowError, RecursionError, UnpackException)

# Packers not in use. A `Packer` that calls back into Python is neither thread-safe nor reentrant:
# four threads sharing one got 9,867 of 12,000 values wrong. `list.pop` and `list.append` are
# atomic, so a packer taken from here belongs to one call. `{"k": 1}` takes 0.28 us this way on
# CPython 3.11. One packer per thread takes 0.27, but breaks when a field's getter packs something;
# `packb`, which makes a packer each time, takes 0.56.
_free_packers: list[Packer] = []


def pack(value: Any, *, name: str = "data") -> bytes:  # noqa: ANN401 - the user's data
    """The MessagePack bytes of the user's `value`, by the rules of this module.

    Raises `TypeError` for a type that has no plain shape, `ValueError` for a value MessagePack
    cannot carry (integers beyond 64 bits, lone surrogates, too deep, too large). The message says
    where in the value it was found, calling the whole of it `name`; it never shows the value.
    """
    try:
        packer = _free_packers.pop()
    except IndexError:
        packer = Packer(default=plain)
    try:
        packed: bytes = packer.pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # This packer is not given back: what is left in its buffer would precede the next value.
        path, cause = locate(value, Packer(default=plain).pack, name=name) or (name, error)
        raise _refusal(path, cause) from error
    if len(packed) <= _KEEP_PACKER_BYTES:
        _free_packers.append(packer)
    return packed


def pack_each(values: Iterable[Any]) -> list[bytes]:
    """The bytes of many values, each as `pack` gives them, in half the time.

    Raises what the library raises for the first that cannot be packed: `pack` says which and why.
    """
    try:
        packer = _free_packers.pop()
    except IndexError:
        packer = Packer(default=plain)
    packed = list(map(packer.pack, values))
    if max(map(len, packed), default=0) <= _KEEP_PACKER_BYTES:
        _free_packers.append(packer)
    return packed


def pack_plain(value: object) -> bytes:
    """The MessagePack bytes of a shape of our own; `EncodeError` if it cannot be written."""
    try:
        return pack(value, name="record")
    except (TypeError, ValueError) as error:
        raise EncodeError(str(error)) from error


def pack_for_script(values: Sequence[bytes | str | int]) -> bytes:
    """A flat list as the scripts' own MessagePack reads it: bytes and text alike become strings.

    The library inside older servers refuses the types for bytes that came later.
    """
    packed: bytes = packb(values, use_bin_type=False)
    return packed


def unpack(buffer: Buffer) -> Any:  # noqa: ANN401 - the user's data
    """The value that `buffer` holds, all of it, by the rules of this module.

    Raises `DecodeError` and nothing else on bytes that are not exactly one MessagePack value: cut
    short, followed by more, not UTF-8 where text is announced, nested too deep, or with a key that
    Python cannot hash. Lengths that a broken header announces are not reserved.
    """
    try:
        if len(buffer) > _UNCHECKED_BYTES:
            _skip(buffer)
        return unpackb(buffer, strict_map_key=False, timestamp=3)
    except TypeError:
        return _unpack_any_keys(buffer)
    except _UNPACK_ERRORS as error:
        raise _not_messagepack(error) from error


def unpack_record(buffer: Buffer, *, max_slots: int) -> Any:  # noqa: ANN401 - shape unknown
    """The value that `buffer` holds, for records of ours whose arrays are short; or None.

    The cheapest way in for hot paths. None means only that this way is not open: an array longer
    than `max_slots`, any map with entries, bytes that are not exactly one value. Ask `split` then.
    """
    try:
        return unpackb(buffer, max_array_len=max_slots, max_map_len=0)
    except _UNPACK_ERRORS:
        return None


def split(buffer: bytes, *, max_slots: int) -> list[bytes] | dict[str, bytes]:
    """The elements of the array that `buffer` starts with, still packed; of a map, by their keys.

    Each element is exactly the bytes it was written with. Keys that are not text are left out;
    bytes after the array or map are ignored. `DecodeError` if there is neither, or if it has more
    than `max_slots` elements.
    """
    if not buffer:
        msg = "empty, expected a MessagePack array"
        raise DecodeError(msg)
    is_map = buffer[0] in _MAP_HEADS
    reader = Unpacker(max_buffer_size=len(buffer))
    try:
        reader.feed(buffer)
        count = reader.read_map_header() if is_map else reader.read_array_header()
        if count > max_slots:
            msg = f"{count} slots, expected at most {max_slots}"
            raise DecodeError(msg)
        pieces = [_next_piece(reader, buffer) for _ in range(count * 2 if is_map else count)]
    except _UNPACK_ERRORS as error:
        raise _not_messagepack(error) from error
    if not is_map:
        return pieces
    keys = (unpack(piece) for piece in pieces[::2])
    pairs = zip(keys, pieces[1::2], strict=True)
    return {key: piece for key, piece in pairs if isinstance(key, str)}


def _refusal(path: str, cause: Exception) -> TypeError | ValueError:
    if isinstance(cause, UnicodeEncodeError):
        return ValueError(f"{path}: text with a lone surrogate, not valid UTF-8: send it as bytes")
    kind = TypeError if isinstance(cause, TypeError) else ValueError
    if len(path) > 2 * _SHOWN_PATH:  # of a value that is nested too deep, say
        path = f"{path[:_SHOWN_PATH]} ... {path[-_SHOWN_PATH:]}"
    return kind(f"{path}: {cause}")


def _unpack_any_keys(buffer: Buffer) -> Any:  # noqa: ANN401 - the user's data
    """`unpack` again, where a key was a list; three times slower, so only on demand."""
    try:
        return unpackb(
            buffer, strict_map_key=False, timestamp=3, object_pairs_hook=_dict_with_tuple_keys
        )
    except _UNPACK_ERRORS as error:
        raise _not_messagepack(error) from error


def _dict_with_tuple_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_hashable(key): value for key, value in pairs}


def _hashable(key: Any) -> Any:  # noqa: ANN401 - the user's data
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def _skip(buffer: Buffer) -> None:
    reader = Unpacker(max_buffer_size=len(buffer))
    reader.feed(buffer)
    reader.skip()


def _next_piece(reader: Unpacker, buffer: bytes) -> bytes:
    start = reader.tell()
    reader.skip()
    return buffer[start : reader.tell()]


def _not_messagepack(error: Exception) -> DecodeError:
    # Many of the library's errors have no text of their own, only a type.
    return DecodeError(f"not one complete MessagePack value: {str(error) or type(error).__name__}")
