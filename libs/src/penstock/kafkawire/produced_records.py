"""Checks each record of a produced batch as Kafka does: lengths, count and offsets. Pure.

A batch that fails would stop its consumers for ever, because clients read the same offset again and again. Kafka's
`DefaultRecord.readFrom` makes these checks for uncompressed batches. Here they hold for all codecs. Offset deltas
must count from 0, because the stored bytes do not change.

`deploy/compile` may compile this module (ADR 0044).
"""

from collections.abc import Iterator

from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer, read_uvarint, read_varlong

# Length, attributes, timestamp, offset, key length, value length and header count have at least one byte each.
_RECORD_BYTES_MIN = 7
RECORDS_MAX = 2**20 - 1  # so that an offset has at most three bytes
# If a number has a third byte, its first two are larger than this in the sums below.
_TWO_BYTES_MAX = 2**14 - 1


def checked_slices(plain: Buffer, count: int, slice_records: int) -> Iterator[None]:
    """Check that the uncompressed `plain` is exactly `count` records; yields between slices of the work.

    `DecodeError` for other bytes.
    """
    if not 0 < count <= min(RECORDS_MAX, len(plain) // _RECORD_BYTES_MIN):
        raise DecodeError(f"{count} records in {len(plain)} bytes")
    data = bytes(plain)  # a copy costs less than to read single bytes through a view
    position = 0
    for first in range(0, count, slice_records):
        if first:
            yield
        try:
            position = _end_of_records(data, position, first, min(count, first + slice_records))
        except IndexError as error:
            raise DecodeError(f"one of {count} records ends after byte {len(plain)}") from error
    if position != len(plain):
        raise DecodeError(f"records end at byte {position} of {len(plain)}")


def _end_of_records(plain: bytes, position: int, first: int, last: int) -> int:
    """The end of the records from index `first` to before `last`; `IndexError` or `DecodeError` for other bytes.

    For small records this loop is most of a gateway's work. So it reads numbers of one or two bytes itself, and skips
    each field at once. All other records are left to `_end_of_record`: large ones, those with headers, bad ones.
    """
    for index in range(first, last):
        start = position
        size = plain[position]  # twice the length, as for all these numbers; an odd number is negative
        if size > 127:
            position += 1
            size += (plain[position] - 1) << 7
        end = position + 1 + (size >> 1)
        position += 2  # after the attributes
        if plain[position] > 127:
            position += 1
        timestamp = plain[position]  # its last byte
        offset = plain[position + 1]
        position += 2
        if offset > 127:
            offset += (plain[position] - 1) << 7
            position += 1
            if offset > _TWO_BYTES_MAX:
                offset += (plain[position] - 1) << 14
                position += 1
        key = plain[position]
        position += 1
        if key > 127:
            key += (plain[position] - 1) << 7
            position += 1
        if key != 1:
            position += key >> 1
        if position < end and size <= _TWO_BYTES_MAX:
            value = plain[position]
            position += 1
            if value > 127:
                value += (plain[position] - 1) << 7
                position += 1
            if value != 1:
                position += value >> 1
            is_filled = position + 1 == end and not plain[position] and not size & 1  # without headers
            is_exact = timestamp < 128 and key <= _TWO_BYTES_MAX and value <= _TWO_BYTES_MAX
            if is_filled and is_exact and offset == index + index:
                position = end
                continue
        position = _end_of_record(plain, start, index)
    return position


def _end_of_record(plain: bytes, start: int, index: int) -> int:
    """The end of the record at `start`; `IndexError` or `DecodeError` if there is no record with this index."""
    length, position = _read_varint(plain, start)
    end = position + length
    if not position < end <= len(plain):
        raise DecodeError(f"record {index} has {length} bytes at byte {position} of {len(plain)}")
    _, position = read_varlong(plain, position + 1)  # the timestamp, after the attributes
    offset_delta, position = _read_varint(plain, position)
    if offset_delta != index:
        raise DecodeError(f"record {index} has offset {offset_delta}")
    position = _end_of_bytes(plain, _end_of_bytes(plain, position))  # key and value
    headers, position = _read_varint(plain, position)
    if not 0 <= headers <= end - position:
        raise DecodeError(f"record {index} has {headers} headers in {end - position} bytes")
    for _ in range(headers):
        length, position = _read_varint(plain, position)
        if length < 0:
            raise DecodeError(f"record {index} has a header without a key")
        position = _end_of_bytes(plain, position + length)
    if position != end:
        raise DecodeError(f"record {index} ends at byte {position}, its length at byte {end}")
    return end


def _read_varint(plain: bytes, position: int) -> tuple[int, int]:
    """A signed number of at most five bytes, as in Kafka, and the position after it."""
    value, position = read_uvarint(plain, position)
    return (value >> 1) ^ -(value & 1), position


def _end_of_bytes(plain: bytes, position: int) -> int:
    """The end of a byte string; a negative length is null."""
    length, position = _read_varint(plain, position)
    return position + max(length, 0)
