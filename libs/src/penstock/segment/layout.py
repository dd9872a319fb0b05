"""The layout of a segment's header, index tables and footer, as docs/formats/segment.md defines them.

Flushers write version 1, whose index lists every batch. Compactors write version 2, whose index lists runs, and places
in them.
"""

import struct

import crc32c
import msgspec

from penstock.contracts.batches import BatchRun
from penstock.contracts.errors import Corrupt, Invalid
from penstock.contracts.ids import SegmentId, check_token
from penstock.segment.keys import FLUSHED_LEVEL, LEVEL_MAX

FLUSHED_VERSION = 1
COMPACTED_VERSION = 2
HEADER_MAGIC = b"PENSTOCK"
FOOTER_MAGIC = b"KCOTSNEP"
WRITER_BYTES_MAX = 64  # an instance id is one token of a subject, which has at most 64 letters
NO_FLAGS = 0  # all bits are reserved

_IDENTITY = "BB16sQ64s"  # level, flags, segment id, created ms, writer
_HEADER = struct.Struct(f">8sH{_IDENTITY}")  # magic, version, identity; then a CRC of these
_FOOTER = struct.Struct(f">QIIII{_IDENTITY}H")  # index position, length, CRC, runs, batches, identity, version
_FOOTER_END = struct.Struct(">I8s")  # CRC of the fields before it, magic
_CRC = struct.Struct(">I")

RUN_ROW = struct.Struct(">16siQQI")  # topic id, partition, position, length, batches
# One column per field of BatchMeta, in its order: length, record count, max timestamp, producer id, producer epoch,
# base sequence, attributes. The widths are those of the batch header they come from.
BATCH_COLUMNS = "Iiqqhih"
BATCH_BYTES = struct.calcsize(f">{BATCH_COLUMNS}")

# Topic id, partition, position, length, first offset, last offset, max timestamp, batches, records, places.
COMPACTED_ROW = struct.Struct(">16siQQqqqIQI")
PLACE_COLUMNS = 3  # of 8 bytes each: offset, timestamp, position
PLACE_ENTRY_BYTES = 8 * PLACE_COLUMNS

# By version: the size of a row in the index's first table, and in its second table.
_INDEX_ROWS = {
    FLUSHED_VERSION: (RUN_ROW.size, BATCH_BYTES),
    COMPACTED_VERSION: (COMPACTED_ROW.size, PLACE_ENTRY_BYTES),
}

HEADER_BYTES = _HEADER.size + _CRC.size
FOOTER_BYTES = _FOOTER.size + _FOOTER_END.size


class Identity(msgspec.Struct, frozen=True):
    """The fields of a segment that are in its header and its footer."""

    level: int
    segment_id: SegmentId
    created_ms: int  # since 1970, the writer's clock
    writer: str  # the flusher instance of a level-0 segment, otherwise ""
    version: int = FLUSHED_VERSION


class Footer(msgspec.Struct, frozen=True):
    """The position, size and checksum of the index, and the segment's identity."""

    index_position: int
    index_length: int
    index_crc: int
    run_count: int
    batch_count: int  # in version 2 the number of places
    identity: Identity

    @property
    def size_bytes(self) -> int:
        """The size of the whole object."""
        return self.index_position + self.index_length + FOOTER_BYTES


class SegmentIndex(msgspec.Struct, frozen=True):
    """The content of a flushed segment; `runs` are in file order, which is by (topic id, partition)."""

    segment_id: SegmentId
    level: int
    writer: str
    created_ms: int
    size_bytes: int
    runs: list[BatchRun]


def encode_header(identity: Identity) -> bytes:
    """The first `HEADER_BYTES` of a segment."""
    packed = _HEADER.pack(HEADER_MAGIC, identity.version, *_identity_fields(identity))
    return packed + _CRC.pack(crc32c.crc32c(packed))


def decode_header(data: bytes) -> Identity:
    """The identity in a header of exactly `HEADER_BYTES`; `Corrupt` if it is damaged."""
    if len(data) != HEADER_BYTES:
        raise Corrupt(f"segment header of {len(data)} bytes, expected {HEADER_BYTES}")
    magic, version, *fields = _HEADER.unpack_from(data)
    _check_frame(
        "header", data[: _HEADER.size], magic == HEADER_MAGIC, version, _CRC.unpack_from(data, _HEADER.size)[0]
    )
    return _identity(version, *fields)


def encode_footer(footer: Footer) -> bytes:
    """The last `FOOTER_BYTES` of a segment."""
    packed = _FOOTER.pack(
        footer.index_position,
        footer.index_length,
        footer.index_crc,
        footer.run_count,
        footer.batch_count,
        *_identity_fields(footer.identity),
        footer.identity.version,
    )
    return packed + _FOOTER_END.pack(crc32c.crc32c(packed), FOOTER_MAGIC)


def decode_footer(data: bytes) -> Footer:
    """The footer in exactly `FOOTER_BYTES`; `Corrupt` if it is damaged."""
    if len(data) != FOOTER_BYTES:
        raise Corrupt(f"segment footer of {len(data)} bytes, expected {FOOTER_BYTES}")
    position, length, index_crc, runs, batches, *fields, version = _FOOTER.unpack_from(data)
    crc, magic = _FOOTER_END.unpack_from(data, _FOOTER.size)
    _check_frame("footer", data[: _FOOTER.size], magic == FOOTER_MAGIC, version, crc)
    row_bytes, second_row_bytes = _INDEX_ROWS[version]
    if position < HEADER_BYTES or length != runs * row_bytes + batches * second_row_bytes:
        raise Corrupt(f"segment index of {length} bytes at {position} for {runs} runs and {batches} batches")
    return Footer(position, length, index_crc, runs, batches, _identity(version, *fields))


def _check_frame(part: str, framed: bytes, is_magic: bool, version: int, crc: int) -> None:
    if not is_magic:
        raise Corrupt(f"not a segment {part}: its magic is missing")
    if crc32c.crc32c(framed) != crc:
        raise Corrupt(f"segment {part} with crc {crc32c.crc32c(framed):08x}, expected {crc:08x}")
    if version not in _INDEX_ROWS:
        raise Corrupt(f"segment {part} of version {version}, this release knows {FLUSHED_VERSION}, {COMPACTED_VERSION}")


def _identity_fields(identity: Identity) -> tuple[int, int, bytes, int, bytes]:
    writer = check_token("writer", identity.writer).encode() if identity.writer else b""
    return identity.level, NO_FLAGS, identity.segment_id, identity.created_ms, writer


def _identity(version: int, level: int, flags: int, segment_id: bytes, created_ms: int, writer: bytes) -> Identity:
    if flags != NO_FLAGS:
        raise Corrupt(f"segment with flags {flags:#04x}, this release knows none")
    if level > LEVEL_MAX or (version == COMPACTED_VERSION and level == FLUSHED_LEVEL):
        raise Corrupt(f"segment of level {level} in version {version}")
    return Identity(level, segment_id, created_ms, _writer(writer), version)


def _writer(padded: bytes) -> str:
    name = padded.rstrip(b"\0")
    try:
        return check_token("writer", name.decode("ascii")) if name else ""
    except (UnicodeDecodeError, Invalid) as error:
        raise Corrupt(f"segment with an invalid writer: {name!r}") from error
