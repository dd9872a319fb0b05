"""Reads many variable-length numbers of record batches at once: fields of records, and the start of each record."""

from typing import Any

import numpy as np

from penstock.kafkawire.errors import DecodeError

VARINT_BYTES_MAX = 10
_RECORD_BYTES_MIN = 7

Ints = Any  # a numpy array of int64


def read_varints(data: Any, position: Ints, size: int) -> tuple[Ints, Ints]:
    """Zigzag numbers at these positions of `data`, and the positions after them.

    No returned position is further than one byte after the `size` bytes. That is enough to detect wrong lengths.
    `DecodeError` for a number that does not end.
    """
    read = data[position].astype(np.int64)
    after = position + 1
    if not (read >= 0x80).any():
        return (read >> 1) ^ -(read & 1), after
    value = (read & 0x7F).astype(np.uint64)
    rows = np.flatnonzero(read >= 0x80)
    for number in range(1, VARINT_BYTES_MAX + 1):
        if number == VARINT_BYTES_MAX:
            raise DecodeError("a number of more than ten bytes")
        read = data[np.minimum(after[rows], size + 1)]
        value[rows] |= (read & 0x7F).astype(np.uint64) << np.uint64(7 * number)
        after[rows] += 1
        rows = rows[read >= 0x80]
        if not len(rows):
            break
    signed = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
    return signed, np.minimum(after, size + 1)


def record_starts(plain: bytes, count: int) -> list[int]:
    """The start of each of `count` consecutive records; `DecodeError` if they do not fill `plain` exactly."""
    size = len(plain)
    if not 0 <= count <= size // _RECORD_BYTES_MIN:
        raise DecodeError(f"{count} records in {size} bytes")
    starts: list[int] = []
    append = starts.append
    position = 0
    try:
        for _ in range(count):
            append(position)
            byte = plain[position]
            if byte < 0x80:
                position += 1
            else:
                following = plain[position + 1]
                if following < 0x80:
                    byte += (following - 1) << 7
                    position += 2
                else:
                    byte, position = _long_varint(plain, position)
            if byte & 1:
                raise DecodeError(f"record {len(starts)} of {count} has a negative length")
            position += byte >> 1
    except IndexError as error:
        raise DecodeError(f"record {len(starts)} of {count} begins after the end, at {size} bytes") from error
    if position != size:
        raise DecodeError(f"records end at byte {position} of {size}")
    return starts


def _long_varint(plain: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of any length, and the position after it."""
    value = shift = 0
    while True:
        byte = plain[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift >= 7 * VARINT_BYTES_MAX:
            raise DecodeError("a length of more than ten bytes")
