"""Checks each record of a produced batch as Kafka does: lengths, count and offsets. Pure.

A batch that fails would stop its consumers for ever, because clients read the same offset again and again. Kafka's
`DefaultRecord.readFrom` makes these checks for uncompressed batches. Here they hold for all codecs. Offset deltas
must count from 0, because the stored bytes do not change.

`deploy/compile` may compile this module (ADR 0044).
"""

from collections.abc import Generator, Iterator

from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer, read_uvarint, read_varlong

# Length, attributes, timestamp, offset, key length, value length and header count have at least one byte each.
_RECORD_BYTES_MIN = 7
RECORDS_MAX = 2**20 - 1  # so that an offset has at most three bytes
HEADERS_AT_ONCE_MAX = 1_000  # in some 2 ms; a batch of a few kilobytes may have millions, in one record
_FRAGMENT_BYTES = 2**20  # copied at once, in some 0.5 ms
# If a number has a third byte, its first two are larger than this in the sums below.
_TWO_BYTES_MAX = 2**14 - 1


def checked_slices(plain: Buffer, count: int, slice_records: int) -> Iterator[None]:
    """Check that the uncompressed `plain` is exactly `count` records; yields between slices of the work.

    A slice has at most `slice_records` records and HEADERS_AT_ONCE_MAX headers. `DecodeError` for other bytes.
    """
    if not 0 < count <= min(RECORDS_MAX, len(plain) // _RECORD_BYTES_MIN):
        raise DecodeError(f"{count} records in {len(plain)} bytes")
    view = memoryview(plain)
    # Copies of fragments, because to read single bytes through a view costs more.
    begin, fragment = 0, bytes(view[:_FRAGMENT_BYTES])
    position = index = 0
    while index < count:
        if index:
            yield
        last = min(count, index + slice_records)
        first, (index, end) = index, _whole_records(fragment, position - begin, index, last)
        position = begin + end
        if index > first:
            continue
        if position > begin:
            begin, fragment = position, bytes(view[position : position + _FRAGMENT_BYTES])
            continue
        try:  # the record is invalid, larger than a fragment, or has many headers
            position = yield from _checked_record(view, position, index)
        except IndexError as error:
            raise DecodeError(f"one of {count} records ends after byte {len(plain)}") from error
        index += 1
        begin, fragment = position, bytes(view[position : position + _FRAGMENT_BYTES])
    if position != len(plain):
        raise DecodeError(f"records end at byte {position} of {len(plain)}")


def _whole_records(plain: bytes, position: int, index: int, last: int) -> tuple[int, int]:
    """The index and the position after the valid records from `index` to before `last`.

    It stops before a record that is invalid or ends after these bytes, and when it has read enough headers.

    For small records this loop is most of a gateway's work. So it reads numbers of one or two bytes itself, and skips
    each field at once. All other records are left to functions: large ones, those with headers, bad ones.
    """
    start, headers_left = position, HEADERS_AT_ONCE_MAX
    try:
        while index < last:
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
                    index += 1
                    continue
            headers, position, end = _front_of_record(plain, start, index)
            headers_left -= headers
            if headers_left < 0:
                return index, start
            position = _end_of_headers(plain, position, headers, index)
            if position != end:
                return index, start
            index += 1
    except (IndexError, DecodeError):
        return index, start
    return index, position


def _checked_record(plain: Buffer, start: int, index: int) -> Generator[None, None, int]:
    """The end of the record at `start`; `IndexError` or `DecodeError` if there is no record with this index."""
    headers, position, end = _front_of_record(plain, start, index)
    while headers > HEADERS_AT_ONCE_MAX:
        position = _end_of_headers(plain, position, HEADERS_AT_ONCE_MAX, index)
        headers -= HEADERS_AT_ONCE_MAX
        yield
    position = _end_of_headers(plain, position, headers, index)
    if position != end:
        raise DecodeError(f"record {index} ends at byte {position}, its length at byte {end}")
    return end


def _front_of_record(plain: Buffer, start: int, index: int) -> tuple[int, int, int]:
    """The number of headers of the record at `start`, their position, and the end by the record's length."""
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
    return headers, position, end


def _end_of_headers(plain: Buffer, position: int, headers: int, index: int) -> int:
    """The position after so many headers."""
    for _ in range(headers):
        length, position = _read_varint(plain, position)
        if length < 0:
            raise DecodeError(f"record {index} has a header without a key")
        position = _end_of_bytes(plain, position + length)
    return position


def _read_varint(plain: Buffer, position: int) -> tuple[int, int]:
    """A signed number of at most five bytes, as in Kafka, and the position after it."""
    value, position = read_uvarint(plain, position)
    return (value >> 1) ^ -(value & 1), position


def _end_of_bytes(plain: Buffer, position: int) -> int:
    """The end of a byte string; a negative length is null."""
    length, position = _read_varint(plain, position)
    return position + max(length, 0)
