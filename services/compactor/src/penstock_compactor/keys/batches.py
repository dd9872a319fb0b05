"""Reads the batches of extents, each with its real offsets; `Corrupt` if they are damaged."""

from collections.abc import Iterable, Iterator, Sequence

import crc32c
import msgspec

from penstock.contracts.batches import NO_SEGMENT_ID, Marker
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import ulid_text
from penstock.kafkawire.records import (
    BATCH_OVERHEAD,
    CRC_START,
    MAGIC,
    BatchHeader,
    place_batch,
    read_batch_header,
    size_bytes,
)
from penstock.segment.transactions import marker_batch
from penstock.spark.ranges import Fragment
from penstock_compactor.keys.plan import KeyInput

FLUSHED_LEVEL = 0
NO_EPOCH = -1  # a gateway writes the epoch before it sends a batch to a client


class PlacedBatch(msgspec.Struct, frozen=True, gc=False):
    """One batch with a correct CRC; its bytes may still have the offsets that its producer wrote."""

    data: memoryview
    header: BatchHeader
    base_offset: int

    @property
    def last_offset(self) -> int:
        """The last offset of the batch; there may be no record with this offset."""
        return self.base_offset + self.header.last_offset_delta

    def placed_header(self) -> BatchHeader:
        """The header with the real offset."""
        if self.header.base_offset == self.base_offset:
            return self.header
        return msgspec.structs.replace(self.header, base_offset=self.base_offset, partition_leader_epoch=NO_EPOCH)

    def placed_data(self) -> Buffer:
        """The bytes with the real offset."""
        if self.header.base_offset == self.base_offset:
            return self.data
        data = bytearray(self.data)
        place_batch(data, 0, self.base_offset, NO_EPOCH)
        return data


def batches_of(
    inputs: Sequence[KeyInput], fragments: Iterable[Fragment], markers: Iterable[Marker] = ()
) -> Iterator[PlacedBatch]:
    """The batches of extents, in order; `fragments` has the stored ones, `markers` describes the others."""
    fragments = iter(fragments)
    by_offset = {marker.offset: marker for marker in markers}
    for each in inputs:
        if each.segment_id == NO_SEGMENT_ID:
            data = memoryview(marker_batch(by_offset[each.base_offset], NO_EPOCH))
            yield PlacedBatch(data, read_batch_header(data), each.base_offset)
        else:
            yield from _batches_of_one(each, fragments)


def _batches_of_one(each: KeyInput, fragments: Iterator[Fragment]) -> Iterator[PlacedBatch]:
    rest = memoryview(b"")
    offset, left_bytes = each.base_offset, each.length
    for fragment in fragments:
        data = memoryview(b"".join((rest, fragment.data))) if rest else fragment.data
        position = 0
        while position + BATCH_OVERHEAD <= len(data):
            header = read_batch_header(data, position)
            size = size_bytes(header)
            if not BATCH_OVERHEAD <= size <= left_bytes:
                raise _corrupt(each, f"a batch of {size} bytes in a rest of {left_bytes}")
            if position + size > len(data):
                break
            batch = _checked(each, data[position : position + size], header, offset)
            yield batch
            offset = batch.last_offset + 1
            position += size
            left_bytes -= size
        rest = data[position:]
        if fragment.is_last:
            break
    if rest or offset != each.last_offset + 1:
        raise _corrupt(each, f"after offset {offset - 1} there are {len(rest)} bytes that are no batch")


def _checked(each: KeyInput, data: memoryview, header: BatchHeader, offset: int) -> PlacedBatch:
    base_offset = offset if each.level == FLUSHED_LEVEL else header.base_offset
    last_offset = base_offset + header.last_offset_delta
    if header.magic != MAGIC or crc32c.crc32c(data[CRC_START:]) != header.crc:
        raise _corrupt(each, f"a batch at offset {base_offset} with a wrong crc")
    if not offset <= base_offset <= last_offset <= each.last_offset:
        raise _corrupt(each, f"a batch of offsets {base_offset} to {last_offset}, expected {offset} or more")
    return PlacedBatch(data, header, base_offset)


def _corrupt(each: KeyInput, reason: str) -> Corrupt:
    name = f"{each.level}-{ulid_text(each.segment_id)}"
    return Corrupt(f"segment {name}, extent of offset {each.base_offset} at {each.position}: {reason}")
