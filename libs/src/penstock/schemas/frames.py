"""The frame of a key or value: a zero byte, the id of its schema in four bytes, and the payload.

A payload of Protobuf begins with the path to its message: the count of indexes, then the index at each level of
nesting, all as zigzag varints. A count of 0 is short for the first message.
"""

import msgspec

from penstock.contracts.errors import Invalid

MAGIC = 0
HEADER_BYTES = 5
_VARINT_BYTES_MAX = 5
_NESTING_MAX = 32


class Frame(msgspec.Struct, frozen=True):
    """The id of a schema and the bytes after it."""

    schema_id: int
    payload: bytes


def parse_frame(data: bytes | None) -> Frame | None:
    """The frame, None if the bytes have none. Ids begin at 1, so a small number in eight bytes is no frame."""
    if data is None or len(data) < HEADER_BYTES or data[0] != MAGIC:
        return None
    schema_id = int.from_bytes(data[1:HEADER_BYTES], "big", signed=True)
    return Frame(schema_id, data[HEADER_BYTES:]) if schema_id > 0 else None


def split_message_path(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """The indexes of the message, and its bytes; `Invalid` if the payload is too short or the indexes are absurd."""
    count, at = _varint(payload, 0)
    if not 0 <= count <= _NESTING_MAX:
        raise Invalid(f"a path of {count} message indexes")
    path = []
    for _ in range(count):
        index, at = _varint(payload, at)
        if index < 0:
            raise Invalid(f"a message index of {index}")
        path.append(index)
    return tuple(path) or (0,), payload[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    found = 0
    for shift, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        found |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + shift + 1
    raise Invalid("the indexes of the message are cut")
