"""Key compaction of one record batch: find the keys of its records, and build the batch with some of the records.

Kept records are copied unchanged, with their offset deltas, so removed records leave gaps in the offsets. A batch with
a kept tombstone gets a delete horizon (KIP-534). Attribute bit 6 marks it, and the base timestamp becomes the time from
which on its tombstones may be removed. New timestamp deltas of the records keep their timestamps as they were.
"""

import struct
from collections.abc import Iterator, Sequence

import crc32c
import msgspec

from penstock.kafkawire.compression import NONE, compress, decompress
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer, read_varlong, varlong
from penstock.kafkawire.records import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL,
    DECOMPRESSED_BYTES_MAX,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    codec,
    size_bytes,
)

DELETE_HORIZON = 0x40
NO_HORIZON = -1
NO_TIMESTAMP = -1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_RECORD_BYTES_MIN = 7
_FRONT = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")


class KeyedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as key compaction sees it: its positions in the uncompressed records of its batch."""

    start: int  # of its length
    end: int
    timestamp_delta: int
    timestamp_end: int  # the position after its timestamp delta
    offset_delta: int
    key_start: int
    key_end: int  # -1 without a key
    is_tombstone: bool

    def key(self, plain: Buffer) -> bytes | None:
        """The key, None if the record has none."""
        return None if self.key_end < 0 else bytes(plain[self.key_start : self.key_end])


def plain_records(batch: Buffer, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> memoryview:
    """The decompressed records of the batch at the start of `batch`; `DecodeError` if that fails."""
    size = size_bytes(header)
    if header.magic != MAGIC or not BATCH_OVERHEAD <= size <= len(batch):
        raise DecodeError(f"batch of magic {header.magic} and {size} bytes in {len(batch)}")
    return memoryview(decompress(memoryview(batch)[BATCH_OVERHEAD:size], codec(header), bytes_max))


def delete_horizon_ms(header: BatchHeader) -> int:
    """When the tombstones of a batch may be removed; `NO_HORIZON` if it was not cleaned or has none."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else NO_HORIZON


def scan_records(plain: Buffer, header: BatchHeader) -> list[KeyedRecord]:
    """All records of a batch; `DecodeError` unless offsets ascend and the records fill the plain bytes exactly."""
    if not 0 <= header.record_count * _RECORD_BYTES_MIN <= len(plain):
        raise DecodeError(f"{header.record_count} records in {len(plain)} bytes")
    records: list[KeyedRecord] = []
    position, offset_delta = 0, -1
    try:
        for _ in range(header.record_count):
            record = _scan_record(plain, position)
            if not offset_delta < record.offset_delta <= header.last_offset_delta:
                raise DecodeError(f"record with offset delta {record.offset_delta} follows {offset_delta}")
            records.append(record)
            position, offset_delta = record.end, record.offset_delta
    except IndexError as error:
        raise DecodeError(f"record {len(records)} of {header.record_count} is cut short") from error
    if position != len(plain):
        raise DecodeError(f"records end at byte {position} of {len(plain)}")
    return records


def _scan_record(plain: Buffer, start: int) -> KeyedRecord:
    length, position = read_varlong(plain, start)
    end = position + length
    timestamp_delta, timestamp_end = read_varlong(plain, position + 1)
    offset_delta, position = read_varlong(plain, timestamp_end)
    key_bytes, key_start = read_varlong(plain, position)
    key_end = key_start + key_bytes if key_bytes >= 0 else -1
    value_bytes, position = read_varlong(plain, max(key_start, key_end))
    if not position + max(value_bytes, 0) < end <= len(plain):
        raise DecodeError(f"record of {length} bytes at byte {start} of {len(plain)}: its value ends after it")
    return KeyedRecord(start, end, timestamp_delta, timestamp_end, offset_delta, key_start, key_end, value_bytes < 0)


def keyless_records(plain: Buffer, header: BatchHeader) -> list[int]:
    """The indexes of the records without a key in a produced batch; `DecodeError` if the batch is invalid."""
    return [index for index, _, key_bytes in _produced_records(plain, header) if key_bytes < 0]


def records_out_of_time(plain: Buffer, header: BatchHeader, first_ms: int, last_ms: int) -> list[tuple[int, int]]:
    """The indexes and timestamps of the records outside of a time range in a produced batch.

    `NO_TIMESTAMP` is always inside; `DecodeError` if the batch is invalid.
    """
    base_ms = header.base_timestamp
    return [
        (index, base_ms + delta_ms)
        for index, delta_ms, _ in _produced_records(plain, header)
        if not first_ms <= base_ms + delta_ms <= last_ms and base_ms + delta_ms != NO_TIMESTAMP
    ]


def _produced_records(plain: Buffer, header: BatchHeader) -> Iterator[tuple[int, int, int]]:
    """The index, timestamp delta and key length of each record.

    This is half the work of `scan_records`: gateways do it for every batch of some topics.
    """
    if not 0 <= header.record_count * _RECORD_BYTES_MIN <= len(plain):
        raise DecodeError(f"{header.record_count} records in {len(plain)} bytes")
    start = 0
    try:
        for index in range(header.record_count):
            length, position = read_varlong(plain, start)
            start = position + length
            timestamp_delta, position = read_varlong(plain, position + 1)
            offset_delta, position = read_varlong(plain, position)
            key_bytes, position = read_varlong(plain, position)
            if offset_delta != index or position + max(key_bytes, 0) >= start:
                raise DecodeError(f"record {index} has offset {offset_delta} and ends at byte {start}")
            yield index, timestamp_delta, key_bytes
    except IndexError as error:
        raise DecodeError(f"one of {header.record_count} records is cut short") from error
    if start != len(plain):
        raise DecodeError(f"records end at byte {start} of {len(plain)}")


def keep_records(
    header: BatchHeader, plain: Buffer, kept: Sequence[KeyedRecord], horizon_ms: int = NO_HORIZON
) -> bytes:
    """The batch with only the `kept` records, at least one; its codec, offsets and producer do not change.

    The batch gets the delete horizon `horizon_ms`, unless it has one already or a timestamp is too far from it.
    """
    deltas = [record.timestamp_delta for record in kept]
    shift_ms = header.base_timestamp - horizon_ms
    is_shifted = horizon_ms != NO_HORIZON and not header.attributes & DELETE_HORIZON
    if not is_shifted or min(deltas) + shift_ms < INT64_MIN or max(deltas) + shift_ms > INT64_MAX:
        return keep_slices(header, [plain[record.start : record.end] for record in kept], len(kept), max(deltas))
    return _build(
        header,
        compress(b"".join([_shifted(plain, record, shift_ms) for record in kept]), codec(header)),
        attributes=header.attributes | DELETE_HORIZON,
        base_timestamp=horizon_ms,
        max_timestamp=_max_timestamp(header, max(deltas)),
        record_count=len(kept),
    )


def keep_slices(header: BatchHeader, slices: Sequence[Buffer], record_count: int, timestamp_delta_max: int) -> bytes:
    """The batch with only the records in these slices of its uncompressed bytes."""
    return _build(
        header,
        compress(b"".join(slices), codec(header)),
        attributes=header.attributes,
        base_timestamp=header.base_timestamp,
        max_timestamp=_max_timestamp(header, timestamp_delta_max),
        record_count=record_count,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without records, as Kafka writes it, so that readers can advance past its offsets.

    It is not part of a transaction, and ends none.
    """
    return _build(
        header,
        b"",
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON | TRANSACTIONAL | CONTROL) | NONE,
        base_timestamp=header.max_timestamp,
        max_timestamp=header.max_timestamp,
        record_count=0,
    )


def _max_timestamp(header: BatchHeader, timestamp_delta_max: int) -> int:
    """The maximum timestamp of the kept records; the header limits it, because a producer may write any delta."""
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    return max(NO_TIMESTAMP, min(header.max_timestamp, header.base_timestamp + timestamp_delta_max))


def _shifted(plain: Buffer, record: KeyedRecord, shift_ms: int) -> bytes:
    """The record with another timestamp delta; its attributes become 0, since no bit of them is used."""
    delta = varlong(record.timestamp_delta + shift_ms)
    length = varlong(1 + len(delta) + record.end - record.timestamp_end)
    return b"".join((length, b"\0", delta, plain[record.timestamp_end : record.end]))


def _build(
    header: BatchHeader, body: bytes, *, attributes: int, base_timestamp: int, max_timestamp: int, record_count: int
) -> bytes:
    rest = _REST.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    crc = crc32c.crc32c(body, crc32c.crc32c(rest))
    length = BATCH_OVERHEAD - LENGTH_END + len(body)
    return b"".join((_FRONT.pack(header.base_offset, length, header.partition_leader_epoch, MAGIC, crc), rest, body))
