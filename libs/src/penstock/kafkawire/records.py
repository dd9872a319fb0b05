"""Record batches (magic 2): their 61-byte header, the checks of a produced batch, and (off the hot path) their records.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 | base timestamp 8
    | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4 | records

The length counts the bytes after it. The CRC-32C covers everything from the attributes on. So a broker can write the
base offset and the leader epoch without a new CRC.
"""

import struct
from collections.abc import Iterator, Sequence

import crc32c
import msgspec

from penstock.kafkawire.compression import LZ4, NONE, ZSTD, compress, decompress
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer, read_varlong, varlong

BATCH_OVERHEAD = 61
LENGTH_END = 12  # the bytes that the length does not count
MAGIC_POSITION = 16
MAGIC = 2
CRC_START = 21
NO_PRODUCER = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

# The largest batch, 8,000,000 bytes, may decompress to 16 times its size. More is an attack or useless data.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
# Length, attributes, timestamp, offset, key length, value length and header count have at least one byte each.
_RECORD_BYTES_MIN = 7
_HEADER_BYTES_MIN = 2  # of a record's header: key length and value length
HEADERS_MAX = 2**31 - 1  # of one record, as in Kafka: the bytes are the only limit

TIMESTAMP_MIN = -(2**63) + 1  # the value below it stands for "none yet" in sums, and is no real time

HEADER = struct.Struct(">qiibIhiqqqhii")
_FRONT = struct.Struct(">qiibI")  # the fields that the CRC does not cover, and the CRC
_REST = struct.Struct(">hiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CRC_POSITION = 17
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35


RecordHeader = tuple[str, bytes | None]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a batch."""

    offset_delta: int = 0  # to the base offset of its batch
    timestamp: int = 0  # ms since 1970
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()


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
    """The size of the batch in bytes, with its header."""
    return header.length + LENGTH_END


def codec(header: BatchHeader) -> int:
    """The codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are not defined."""
    return header.attributes & CODEC_MASK


def is_transactional(header: BatchHeader) -> bool:
    """Whether the batch is part of a transaction (KIP-98)."""
    return header.attributes & TRANSACTIONAL != 0


def is_control(header: BatchHeader) -> bool:
    """Whether the batch holds a transaction marker instead of records (KIP-98)."""
    return header.attributes & CONTROL != 0


def timestamp_type(header: BatchHeader) -> int:
    """0 if the timestamps come from the producer's clock, 1 if they are the broker's time of the append (KIP-32)."""
    return int(header.attributes & LOG_APPEND_TIME != 0)


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position, without a check of its values; `DecodeError` if there are fewer than 61 bytes."""
    try:
        return BatchHeader(*HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise DecodeError(f"batch header at byte {position} of {len(buffer)}") from error


def check_batch(
    records: Buffer, *, batch_bytes_max: int, zstd_allowed: bool, transactional_allowed: bool = False
) -> BatchHeader | ErrorCode:
    """The header of a produced batch that may be stored, or the error code of its rejection.

    `records` must be exactly one batch, as in a Produce request for each partition. Zstandard needs Produce 7
    (KIP-110), and a transactional batch needs a request with a transactional id.
    """
    size = len(records)
    if size < BATCH_OVERHEAD or records[MAGIC_POSITION] != MAGIC:
        return _short_batch_rejection(records)
    header = BatchHeader(*HEADER.unpack_from(records))
    if header.base_offset:  # the producer does not choose offsets; this looks like the copy of a log
        return ErrorCode.INVALID_RECORD
    if size > batch_bytes_max:
        return ErrorCode.MESSAGE_TOO_LARGE
    if header.length + LENGTH_END != size:
        return ErrorCode.INVALID_RECORD if LENGTH_END < header.length + LENGTH_END < size else ErrorCode.CORRUPT_MESSAGE
    if crc32c.crc32c(memoryview(records)[CRC_START:]) != header.crc:
        return ErrorCode.CORRUPT_MESSAGE
    return _rejection(header, zstd_allowed, transactional_allowed) or header


def _short_batch_rejection(records: Buffer) -> ErrorCode:
    if not records:
        return ErrorCode.INVALID_RECORD
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] != MAGIC:
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    return ErrorCode.CORRUPT_MESSAGE


def _rejection(header: BatchHeader, zstd_allowed: bool, transactional_allowed: bool) -> ErrorCode:
    """The error code for header values that a producer may not set; `NONE` if there are none."""
    attributes = header.attributes
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1 or attributes & CONTROL:
        return ErrorCode.INVALID_RECORD
    if header.max_timestamp < TIMESTAMP_MIN or attributes & LOG_APPEND_TIME:  # only the topic decides about append time
        return ErrorCode.INVALID_TIMESTAMP
    if attributes & CODEC_MASK > (ZSTD if zstd_allowed else LZ4):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if header.producer_id != NO_PRODUCER and min(header.producer_id, header.producer_epoch, header.base_sequence) < 0:
        return ErrorCode.INVALID_RECORD
    if attributes & TRANSACTIONAL:
        if not transactional_allowed:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # Kafka's answer to a request without the id
        if header.producer_id == NO_PRODUCER:
            return ErrorCode.INVALID_RECORD
    return ErrorCode.NONE


def place_batch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch of the batch at `position`: the two fields that the CRC does not cover."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LENGTH_END, leader_epoch)


def stamp_batch(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[bytearray, BatchHeader]:
    """A copy of the batch, and its header, with `now_ms` as the append time of all its records (KIP-32).

    As in Kafka the base timestamp does not change, because the records' deltas refer to it.
    """
    attributes = header.attributes | LOG_APPEND_TIME
    stamped = bytearray(batch)
    _ATTRIBUTES.pack_into(stamped, CRC_START, attributes)
    _MAX_TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_POSITION, now_ms)
    crc = crc32c.crc32c(memoryview(stamped)[CRC_START:])
    _CRC.pack_into(stamped, _CRC_POSITION, crc)
    return stamped, msgspec.structs.replace(header, crc=crc, attributes=attributes, max_timestamp=now_ms)


def batches(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of every batch in a row of complete batches; `DecodeError` for any other bytes.

    CRCs are not checked.
    """
    end = len(buffer) if end is None else end
    while position < end:
        header = read_batch_header(buffer, position)
        if header.length + LENGTH_END < BATCH_OVERHEAD or position + header.length + LENGTH_END > end:
            raise DecodeError(f"batch of {header.length + LENGTH_END} bytes at byte {position} of {end}")
        yield position, header
        position += header.length + LENGTH_END


def decode_records(
    batch: Buffer, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX, headers_max: int = HEADERS_MAX
) -> list[Record]:
    """The records of the batch at the start of `batch`; `DecodeError` if they do not match the header.

    It is also the error if all records together have more than `headers_max` headers: two bytes of the batch become
    some 90 bytes in memory. For lookups, compaction and tests, not for the hot path. The CRC is not checked.
    """
    header = read_batch_header(batch)
    size = size_bytes(header)
    if header.magic != MAGIC or not BATCH_OVERHEAD <= size <= len(batch):
        raise DecodeError(f"batch of magic {header.magic} and {size} bytes in {len(batch)}")
    view = memoryview(decompress(memoryview(batch)[BATCH_OVERHEAD:size], codec(header), decompressed_bytes_max))
    if not 0 <= header.record_count <= len(view) // _RECORD_BYTES_MIN:
        raise DecodeError(f"{header.record_count} records in {len(view)} bytes")
    records, position = [], 0
    try:
        for _ in range(header.record_count):
            record, position = _decode_record(view, position, header, headers_max)
            headers_max -= len(record.headers)
            records.append(record)
    except (IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"record {len(records)} of {header.record_count}: {error}") from error
    if position != len(view):
        raise DecodeError(f"records end at byte {position} of {len(view)}")
    return records


def _decode_record(view: memoryview, position: int, header: BatchHeader, headers_max: int) -> tuple[Record, int]:
    length, position = read_varlong(view, position)
    end = position + length
    timestamp_delta, position = read_varlong(view, position + 1)  # after the attributes, which are not used
    offset_delta, position = read_varlong(view, position)
    key, position = _decode_bytes(view, position)
    value, position = _decode_bytes(view, position)
    headers, position = _decode_headers(view, position, headers_max)
    if position != end or end > len(view):
        raise DecodeError(f"record ends at byte {position}, not {end}, of {len(view)}")
    appended = header.attributes & LOG_APPEND_TIME
    timestamp = header.max_timestamp if appended else header.base_timestamp + timestamp_delta
    return Record(offset_delta, timestamp, key, value, headers), position


def _decode_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = read_varlong(view, position)
    if length < 0:
        return None, position
    return bytes(view[position : position + length]), position + length


def _decode_headers(view: memoryview, position: int, headers_max: int) -> tuple[tuple[RecordHeader, ...], int]:
    count, position = read_varlong(view, position)
    if count > headers_max:
        raise DecodeError(f"{count} record headers, allowed are {headers_max} more")
    if not 0 <= count * _HEADER_BYTES_MIN <= len(view) - position:
        raise DecodeError(f"{count} record headers in {len(view) - position} bytes")
    headers: list[RecordHeader] = []
    for _ in range(count):
        key, position = _decode_bytes(view, position)
        if key is None:
            raise DecodeError("record header without a key")
        value, position = _decode_bytes(view, position)
        headers.append((str(key, "utf-8"), value))
    return tuple(headers), position


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    last_offset_delta: int | None = None,
) -> bytes:
    """A batch of one or more records, in the order of their offsets; the first record's timestamp is the base.

    `last_offset_delta` is the delta of the last record, unless compaction removed records after it.
    """
    base_timestamp = records[0].timestamp
    plain = b"".join(_encode_record(record, base_timestamp) for record in records)
    body = compress(plain, codec)
    rest = _REST.pack(
        codec | TRANSACTIONAL * transactional | CONTROL * control,
        records[-1].offset_delta if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c.crc32c(body, crc32c.crc32c(rest))
    length = BATCH_OVERHEAD - LENGTH_END + len(body)
    return b"".join((_FRONT.pack(base_offset, length, leader_epoch, MAGIC, crc), rest, body))


def _encode_record(record: Record, base_timestamp: int) -> bytes:
    fragments = [b"\0", varlong(record.timestamp - base_timestamp), varlong(record.offset_delta)]
    fragments += _encode_bytes(record.key)
    fragments += _encode_bytes(record.value)
    fragments.append(varlong(len(record.headers)))
    for key, value in record.headers:
        fragments += _encode_bytes(key.encode())
        fragments += _encode_bytes(value)
    body = b"".join(fragments)
    return varlong(len(body)) + body


def _encode_bytes(data: bytes | None) -> tuple[bytes, bytes]:
    return (varlong(-1), b"") if data is None else (varlong(len(data)), data)
