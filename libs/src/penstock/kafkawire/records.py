"""Record batches (magic 2): their 61-byte header, the checks of a produced one, and, off the hot path, their records.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 | base timestamp 8
    | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4 | records

The length counts what follows it. The CRC-32C covers everything from the attributes on, so base offset and leader
epoch can be written without a new one.
"""

import struct
from collections.abc import Iterator

import crc32c
import msgspec

from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer

BATCH_OVERHEAD = 61
LENGTH_END = 12  # bytes that the length does not count
MAGIC_POSITION = 16
MAGIC = 2
CRC_START = 21
NO_PRODUCER = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

HEADER = struct.Struct(">qiibIhiqqqhii")
_PLACE = struct.Struct(">q")
_EPOCH = struct.Struct(">i")


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The 61 bytes before the records of a batch."""

    base_offset: int
    length: int  # bytes after the first 12
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int  # ms since 1970
    max_timestamp: int
    producer_id: int  # -1: not idempotent
    producer_epoch: int
    base_sequence: int
    record_count: int


def size_bytes(header: BatchHeader) -> int:
    """The whole batch in bytes, header included."""
    return header.length + LENGTH_END


def codec(header: BatchHeader) -> int:
    """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 mean nothing."""
    return header.attributes & CODEC_MASK


def is_transactional(header: BatchHeader) -> bool:
    """Whether the batch is part of a transaction (KIP-98)."""
    return header.attributes & TRANSACTIONAL != 0


def is_control(header: BatchHeader) -> bool:
    """Whether the batch holds a transaction marker instead of records (KIP-98)."""
    return header.attributes & CONTROL != 0


def timestamp_type(header: BatchHeader) -> int:
    """0 if the producer's clock set the timestamps, 1 if the broker's did at append (KIP-32)."""
    return int(header.attributes & LOG_APPEND_TIME != 0)


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position, whatever its values; `DecodeError` if fewer than 61 bytes are there."""
    try:
        return BatchHeader(*HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise DecodeError(f"batch header at byte {position} of {len(buffer)}") from error


def check_batch(
    records: Buffer, *, batch_bytes_max: int, zstd_allowed: bool, transactional_allowed: bool = False
) -> BatchHeader | ErrorCode:
    """The header of a produced batch that may be stored, or why it may not be.

    `records` must be exactly one batch, as a Produce request has for each partition. Zstandard came with Produce 7
    (KIP-110); a transactional batch needs a request with a transactional id.
    """
    size = len(records)
    if size < BATCH_OVERHEAD or records[MAGIC_POSITION] != MAGIC:
        return _refusal_of_stump(records)
    if size > batch_bytes_max:
        return ErrorCode.MESSAGE_TOO_LARGE
    header = BatchHeader(*HEADER.unpack_from(records))
    if header.length + LENGTH_END != size:
        return ErrorCode.INVALID_RECORD if LENGTH_END < header.length + LENGTH_END < size else ErrorCode.CORRUPT_MESSAGE
    if crc32c.crc32c(memoryview(records)[CRC_START:]) != header.crc:
        return ErrorCode.CORRUPT_MESSAGE
    return _refusal(header, zstd_allowed, transactional_allowed) or header


def _refusal_of_stump(records: Buffer) -> ErrorCode:
    if not records:
        return ErrorCode.INVALID_RECORD
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] != MAGIC:
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    return ErrorCode.CORRUPT_MESSAGE


def _refusal(header: BatchHeader, zstd_allowed: bool, transactional_allowed: bool) -> ErrorCode:
    """What a header says that a producer may not say; `NONE` if nothing."""
    attributes = header.attributes
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1 or attributes & CONTROL:
        return ErrorCode.INVALID_RECORD
    if attributes & CODEC_MASK > (ZSTD if zstd_allowed else LZ4):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if header.producer_id != NO_PRODUCER and min(header.producer_id, header.producer_epoch, header.base_sequence) < 0:
        return ErrorCode.INVALID_RECORD
    if attributes & TRANSACTIONAL:
        if not transactional_allowed:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # as Kafka answers a request without the id
        if header.producer_id == NO_PRODUCER:
            return ErrorCode.INVALID_RECORD
    return ErrorCode.NONE


def place_batch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write where in its partition the batch at `position` stands: the two fields that the CRC does not cover."""
    _PLACE.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + LENGTH_END, leader_epoch)


def batches(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of every batch in a row of whole batches; `DecodeError` where it is not one.

    CRCs are not looked at.
    """
    end = len(buffer) if end is None else end
    while position < end:
        header = read_batch_header(buffer, position)
        if header.length + LENGTH_END < BATCH_OVERHEAD or position + header.length + LENGTH_END > end:
            raise DecodeError(f"batch of {header.length + LENGTH_END} bytes at byte {position} of {end}")
        yield position, header
        position += header.length + LENGTH_END
