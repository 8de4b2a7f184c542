"""The bytes of a job's data, for those who write or read them without a queue."""

from typing import Any

from chasquimq.wire.codec import pack, unpack


def encode_payload(data: Any) -> bytes:  # noqa: ANN401 -- the user's data
    """The MessagePack that `Queue.add` would store for `data`; the same values are accepted.

    For tests across languages, and for producers that write entries themselves. `TypeError` or
    `ValueError` for what cannot be a job's data.
    """
    return pack(data)


def decode_payload(buf: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 -- the user's data
    """What a handler would find in `Job.data`; `DecodeError` if the bytes are not MessagePack."""
    return unpack(bytes(buf))
