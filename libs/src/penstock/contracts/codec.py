"""Encoding of messages: a version byte, then msgpack; record bytes follow as a payload.

message without payload:  u8 version | msgpack
message with payload:     u8 version | u32 head length, big endian | msgpack head | payload

A message with a payload may be in several buffers: the first one has the head, the next ones are the payload.
"""

import functools
import struct
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeVar, cast

import msgspec

from penstock.contracts.errors import Corrupt

VERSION = 1
_VERSION_BYTE = bytes([VERSION])
_HEAD = struct.Struct(">BI")
HEAD_BYTES = _HEAD.size

Message = TypeVar("Message")
Buffer = bytes | bytearray | memoryview

_encoder = msgspec.msgpack.Encoder()


@functools.cache
def _decoder(kind: Hashable) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(cast(type[Any], kind))


def encode(message: msgspec.Struct) -> bytes:
    """A message without a payload."""
    return _VERSION_BYTE + _encoder.encode(message)


def decode(data: Buffer, kind: type[Message]) -> Message:
    """A message without a payload; `Corrupt` if the bytes are not a message of `kind` in this version."""
    if not data or data[0] != VERSION:
        raise Corrupt(f"message of version {data[0] if data else None}, expected {VERSION}")
    return _decode(memoryview(data)[1:], kind)


def pack(head: msgspec.Struct, payload: Sequence[Buffer]) -> list[Buffer]:
    """A message with record bytes after its head, in several buffers; copies no byte of the payload."""
    packed = _encoder.encode(head)
    return [_HEAD.pack(VERSION, len(packed)) + packed, *payload]


def encode_with_payload(head: msgspec.Struct, payload: Sequence[Buffer]) -> bytes:
    """A message with record bytes after its head; copies the payload once, into the message."""
    return b"".join(pack(head, payload))


def unpack(buffers: Sequence[Buffer], kind: type[Message]) -> tuple[Message, list[memoryview]]:
    """The head and views of the payload, which keep the buffers alive."""
    head, rest = decode_with_payload(buffers[0], kind)
    views = [memoryview(buffer) for buffer in buffers[1:]]
    return head, [rest, *views] if rest or not views else views


def decode_with_payload(data: Buffer, kind: type[Message]) -> tuple[Message, memoryview]:
    """The head and a view of the payload, which keeps `data` alive."""
    view = memoryview(data)
    if len(view) < HEAD_BYTES:
        raise Corrupt(f"message of {len(view)} bytes is shorter than its head")
    version, length = _HEAD.unpack_from(view)
    if version != VERSION or length > len(view) - HEAD_BYTES:
        raise Corrupt(f"message of version {version} with a head of {length} bytes in {len(view)} bytes")
    return _decode(view[HEAD_BYTES : HEAD_BYTES + length], kind), view[HEAD_BYTES + length :]


def split(payload: Sequence[memoryview], lengths: Sequence[int]) -> list[memoryview]:
    """Consecutive ranges of a payload with these lengths, which are not negative.

    Only a range that crosses the border of two buffers is copied. `Corrupt` if the lengths are of another payload.
    """
    sizes = [len(buffer) for buffer in payload]
    if sizes == lengths:
        return list(payload)
    if sum(sizes) != sum(lengths):
        raise Corrupt(f"a payload of {sum(sizes)} bytes, announced were {sum(lengths)}")
    if len(payload) == 1:
        return list(_cut(payload[0], lengths))
    ranges = []
    rest = deque(payload)
    for length in lengths:
        pieces = []
        while length:
            buffer = rest.popleft()
            pieces.append(buffer[:length])
            if len(buffer) > length:
                rest.appendleft(buffer[length:])
            length -= len(pieces[-1])
        ranges.append(pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)))
    return ranges


def _cut(buffer: memoryview, lengths: Sequence[int]) -> Iterator[memoryview]:
    position = 0
    for length in lengths:
        yield buffer[position : position + length]
        position += length


def _decode(data: memoryview, kind: type[Message]) -> Message:
    try:
        message: Message = _decoder(cast(Hashable, kind)).decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Corrupt(f"not a {getattr(kind, '__name__', kind)}: {error}") from error
    return message
