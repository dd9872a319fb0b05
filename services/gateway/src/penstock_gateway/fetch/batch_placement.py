"""Writes the real offsets and the leader epoch of batches that a consumer gets, with as few copies as possible. Pure.

Only the first 16 bytes of a batch change. There are three ways, from the cheapest on:

- The bytes are in a buffer of this read alone: they are changed in place.
- The bytes are shared, and the batches large: new heads stand between views of the other bytes.
- The bytes are shared, and the batches small: they are copied.

A view keeps its whole buffer in memory while the client does not take the answer. So a small part of a buffer is
always copied.
"""

import struct
from collections.abc import Sequence

import msgspec

from penstock.contracts.codec import Buffer
from penstock.kafkawire.records import place_batch

# Base offset, length, leader epoch: the first bytes of a batch. Its CRC covers none of them.
_HEAD = struct.Struct(">qii")
# With batches below this mean size, two buffers for each of them cost more than a copy of their bytes.
SPLIT_BATCH_BYTES_MIN = 16 * 1024
# A view of less than 1/KEPT_SHARE of its buffer is copied.
KEPT_SHARE = 2


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A whole batch in a fragment's bytes, with its real offsets."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    record_count: int  # 0 if key compaction removed all records


def place_batches(data: Buffer, taken: Sequence[Placed], leader_epoch: int) -> list[Buffer]:
    """Neighbouring batches in `data`, with their offsets and leader epoch written, as buffers to send one by one.

    A writable memoryview as `data` means that its buffer belongs to this read alone, and may be changed.
    """
    start, end = taken[0].start, taken[-1].end
    size_bytes = end - start
    view = memoryview(data)
    is_kept = size_bytes * KEPT_SHARE >= len(data)
    if is_kept and isinstance(data, memoryview) and not data.readonly:
        _write(view, 0, taken, leader_epoch)
        return [view[start:end]]
    if is_kept and size_bytes >= SPLIT_BATCH_BYTES_MIN * len(taken):
        return _split(view, taken, leader_epoch)
    copied = bytearray(view[start:end])
    _write(copied, start, taken, leader_epoch)
    return [copied]


def _write(buffer: bytearray | memoryview, first: int, taken: Sequence[Placed], leader_epoch: int) -> None:
    """Write into a buffer that begins with the byte `first` of the data."""
    for placed in taken:
        place_batch(buffer, placed.start - first, placed.base_offset, leader_epoch)


def _split(view: memoryview, taken: Sequence[Placed], leader_epoch: int) -> list[Buffer]:
    buffers: list[Buffer] = []
    sent_to = taken[0].start
    for placed in taken:
        base_offset, length, epoch = _HEAD.unpack_from(view, placed.start)
        if (base_offset, epoch) == (placed.base_offset, leader_epoch):
            continue
        if sent_to < placed.start:
            buffers.append(view[sent_to : placed.start])
        buffers.append(_HEAD.pack(placed.base_offset, length, leader_epoch))
        sent_to = placed.start + _HEAD.size
    buffers.append(view[sent_to : taken[-1].end])
    return buffers
