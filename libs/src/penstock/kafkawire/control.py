"""Control batches: the markers that end a transaction in a partition, as Kafka stores and sends them (KIP-98).

A control batch has 78 bytes and one record. The record's key is (version 2 | type 2), its value is (version 2 |
coordinator epoch 4), both of version 0. The batch has the attributes "control" and "transactional", and no sequence
number. Its producer epoch is the epoch that fences.
"""

import struct

import crc32c
import msgspec

from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.records import (
    BATCH_OVERHEAD,
    CONTROL,
    CRC_START,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    decode_records,
)

CONTROL_BATCH_BYTES = 78
ABORT, COMMIT = 0, 1  # types of a control record

_VERSION = 0
_NO_SEQUENCE = -1
# Fields that the CRC does not cover: base offset, length, leader epoch, magic, and the CRC itself.
_NOT_COVERED = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
# Length, attributes, timestamp delta, offset delta, key length; key; value length; value; header count. Lengths are
# zigzag numbers: twice the real length.
_RECORD = struct.Struct(">bbbbbhhbhib")
_LENGTH = CONTROL_BATCH_BYTES - LENGTH_END
_ZIGZAG_RECORD, _ZIGZAG_KEY, _ZIGZAG_VALUE = 2 * (_RECORD.size - 1), 2 * 4, 2 * 6
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")

assert BATCH_OVERHEAD + _RECORD.size == CONTROL_BATCH_BYTES
assert _NOT_COVERED.size == CRC_START


class EndOfTransaction(msgspec.Struct, frozen=True, gc=False):
    """The content of a control record, without its batch's header."""

    committed: bool
    coordinator_epoch: int


def control_batch(
    offset: int,
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    leader_epoch: int = 0,
) -> bytes:
    """The batch that ends the producer's transaction at `offset`."""
    covered = _COVERED.pack(
        TRANSACTIONAL | CONTROL, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, _NO_SEQUENCE, 1
    ) + _RECORD.pack(
        _ZIGZAG_RECORD,
        0,
        0,
        0,
        _ZIGZAG_KEY,
        _VERSION,
        COMMIT if committed else ABORT,
        _ZIGZAG_VALUE,
        _VERSION,
        coordinator_epoch,
        0,
    )
    return _NOT_COVERED.pack(offset, _LENGTH, leader_epoch, MAGIC, crc32c.crc32c(covered)) + covered


def read_control_batch(batch: Buffer) -> EndOfTransaction | None:
    """The content of the control batch at the start of `batch`, None if it ends no transaction; of any version.

    Kafka has other types of control records for its own use; readers skip them. `DecodeError` if the batch is damaged.
    """
    records = decode_records(batch)
    if len(records) != 1 or records[0].key is None or records[0].value is None:
        raise DecodeError(f"control batch with {len(records)} records, or without key or value")
    try:
        version, kind = _KEY.unpack_from(records[0].key)
        _, coordinator_epoch = _VALUE.unpack_from(records[0].value)
    except struct.error as error:
        raise DecodeError(f"control record: {error}") from error
    if version < _VERSION:
        raise DecodeError(f"control record of version {version}")
    return EndOfTransaction(kind == COMMIT, coordinator_epoch) if kind in (ABORT, COMMIT) else None
