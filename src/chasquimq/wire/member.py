"""The delayed-set member: length-prefixed name followed by the envelope.

    [4 bytes, little-endian: byte length of the name][name, UTF-8][envelope]

The score beside it, in the set, is the time the job is due in epoch milliseconds.
"""

import struct

from chasquimq.errors import DecodeError

_length = struct.Struct("<I")
_SHORT_ARRAY_HEADS = range(0x90, 0xA0)


def encode_member(name: str, envelope: bytes) -> bytes:
    """The member for a job; an empty name takes the four length bytes and no more."""
    raw = name.encode()
    return _length.pack(len(raw)) + raw + envelope


def decode_member(member: bytes) -> tuple[str, bytes]:
    """The name and the envelope bytes of a member.

    Releases of the reference engine before names existed wrote the bare envelope. Its first bytes,
    an array header and the start of an id, read as a length far beyond the member: such a member is
    taken for an unnamed envelope. Raises `DecodeError` for one that is too short for a length, or
    whose name would end beyond it. The envelope itself is not looked at.
    """
    if len(member) < _length.size:
        msg = f"delayed member has {len(member)} bytes, too few for the length of a name"
        raise DecodeError(msg)
    (size,) = _length.unpack_from(member)
    end = _length.size + size
    if end <= len(member):
        return member[_length.size : end].decode("utf-8", "replace"), member[end:]
    if member[0] in _SHORT_ARRAY_HEADS:
        return "", member
    msg = f"delayed member of {len(member)} bytes announces a name of {size}"
    raise DecodeError(msg)
