"""Reads the index from the end of a segment, flushed (version 1) or compacted (version 2); damage is `Corrupt`."""

import struct
from collections.abc import Awaitable, Callable

import crc32c

from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt
from penstock.segment.compacted import CompactedIndex, decode_index
from penstock.segment.layout import (
    BATCH_COLUMNS,
    COMPACTED_VERSION,
    FLUSHED_VERSION,
    FOOTER_BYTES,
    HEADER_BYTES,
    RUN_ROW,
    Footer,
    Identity,
    SegmentIndex,
    decode_footer,
    decode_header,
)

# One read of this length from the end gets the footer and the index of most segments: enough for 2,000 batches.
TAIL_BYTES = 64 * 1024


def read_footer(tail: Buffer) -> Footer:
    """The footer at the end of `tail`, the last part of a segment."""
    return decode_footer(bytes(memoryview(tail)[-FOOTER_BYTES:]))


def read_index(tail: Buffer) -> SegmentIndex:
    """The index of a flushed segment; `tail` is the last part of the segment and must contain the complete index."""
    footer = read_footer(tail)
    identity = footer.identity
    if identity.version != FLUSHED_VERSION:
        raise Corrupt(f"segment of version {identity.version}, expected {FLUSHED_VERSION}")
    index = _index_bytes(tail, footer)
    return SegmentIndex(
        segment_id=identity.segment_id,
        level=identity.level,
        writer=identity.writer,
        created_ms=identity.created_ms,
        size_bytes=footer.size_bytes,
        runs=_runs(index, footer),
    )


async def read_index_of(get_range: Callable[[int, int], Awaitable[Buffer]], size_bytes: int) -> SegmentIndex:
    """The index of a stored flushed segment, with one call of `get_range(position, length)`, seldom two."""
    return read_index(await read_tail(get_range, size_bytes))


def read_compacted_index(tail: Buffer) -> CompactedIndex:
    """The index of a compacted segment; `tail` is the last part of the segment and must contain the complete index."""
    footer = read_footer(tail)
    if footer.identity.version != COMPACTED_VERSION:
        raise Corrupt(f"segment of version {footer.identity.version}, expected {COMPACTED_VERSION}")
    return decode_index(_index_bytes(tail, footer), footer)


async def read_compacted_index_of(
    get_range: Callable[[int, int], Awaitable[Buffer]], size_bytes: int
) -> CompactedIndex:
    """The index of a stored compacted segment, with one or two calls of `get_range(position, length)`."""
    return read_compacted_index(await read_tail(get_range, size_bytes))


async def read_any_index_of(
    get_range: Callable[[int, int], Awaitable[Buffer]], size_bytes: int
) -> SegmentIndex | CompactedIndex:
    """The index of a stored segment of any version."""
    tail = await read_tail(get_range, size_bytes)
    is_compacted = read_footer(tail).identity.version == COMPACTED_VERSION
    return read_compacted_index(tail) if is_compacted else read_index(tail)


async def read_tail(get_range: Callable[[int, int], Awaitable[Buffer]], size_bytes: int) -> Buffer:
    """The end of a stored segment of any version, with its complete index; only the footer is checked."""
    if size_bytes < HEADER_BYTES + FOOTER_BYTES:
        raise Corrupt(f"segment of {size_bytes} bytes is shorter than its header and footer")
    length = min(size_bytes, TAIL_BYTES)
    tail = await get_range(size_bytes - length, length)
    footer = read_footer(tail)
    if footer.size_bytes != size_bytes:
        raise Corrupt(f"segment of {size_bytes} bytes, its footer is for {footer.size_bytes}")
    needed = footer.index_length + FOOTER_BYTES
    return tail if needed <= length else await get_range(size_bytes - needed, needed)


def _index_bytes(tail: Buffer, footer: Footer) -> memoryview:
    """The bytes of the index in a segment's tail, after the check of their CRC."""
    start = len(tail) - FOOTER_BYTES - footer.index_length
    if start < 0 or len(tail) > footer.size_bytes:
        raise Corrupt(f"{len(tail)} bytes are not the end of a segment of {footer.size_bytes} with its complete index")
    index = memoryview(tail)[start : start + footer.index_length]
    if crc32c.crc32c(index) != footer.index_crc:
        raise Corrupt(f"segment index with crc {crc32c.crc32c(index):08x}, expected {footer.index_crc:08x}")
    return index


def check_header(header: Buffer, index: SegmentIndex | CompactedIndex) -> None:
    """`Corrupt` if the first bytes of a segment do not belong to this index."""
    identity = decode_header(bytes(memoryview(header)[:HEADER_BYTES]))
    version = FLUSHED_VERSION if isinstance(index, SegmentIndex) else COMPACTED_VERSION
    if identity != Identity(index.level, index.segment_id, index.created_ms, index.writer, version):
        raise Corrupt(f"segment header of {identity} before the index of {index.segment_id.hex()}")


def _runs(index: memoryview, footer: Footer) -> list[BatchRun]:
    metas = _metas(index[footer.run_count * RUN_ROW.size :], footer.batch_count)
    runs: list[BatchRun] = []
    position, taken = HEADER_BYTES, 0
    for row in RUN_ROW.iter_unpack(index[: footer.run_count * RUN_ROW.size]):
        topic_id, partition, run_position, length, count = row
        batches = metas[taken : taken + count]
        if run_position != position or not count or length != sum(meta.length for meta in batches):
            raise Corrupt(f"segment run of {count} batches, {length} bytes at {run_position}, expected at {position}")
        if runs and (runs[-1].topic_id, runs[-1].partition) >= (topic_id, partition):
            raise Corrupt(f"segment run of partition {partition} of topic {topic_id.hex()} is out of order")
        runs.append(BatchRun(topic_id, partition, position, batches))
        position += length
        taken += count
    if position != footer.index_position or taken != len(metas):
        raise Corrupt(f"segment runs of {taken} batches end at {position}, the index is at {footer.index_position}")
    return runs


def _metas(columns: memoryview, count: int) -> list[BatchMeta]:
    unpacked = []
    position = 0
    for kind in BATCH_COLUMNS:
        column = struct.Struct(f">{count}{kind}")
        unpacked.append(column.unpack_from(columns, position))
        position += column.size
    return list(map(BatchMeta, *unpacked))
