"""Reads keys, offsets and tombstones of many batches at once: Python visits the lengths, numpy reads the columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kafkawire.cleaning import plain_records
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import is_control
from penstock.spark.varints import read_varints, record_starts
from penstock_compactor.keys.batches import PlacedBatch

# numpy may read so many bytes past the last record: the fields before the key, each at its longest, and more.
_PADDING = bytes(64)

Ints = Any  # a numpy array of int64


class Records:
    """The records of several batches in columns, with the same facts as `scan_records`; positions are those in `data`.

    `DecodeError` in the same cases, but it may be about any of the batches.
    """

    def __init__(self, batches: Sequence[PlacedBatch], plains: Sequence[bytes]) -> None:
        starts: list[int] = []
        self.counts = np.array([batch.header.record_count for batch in batches], np.int64)
        begin = 0
        for batch, plain in zip(batches, plains, strict=True):
            found = record_starts(plain, batch.header.record_count)
            starts += [begin + start for start in found] if begin else found
            begin += len(plain)
        self.size = begin
        self.data = b"".join((*plains, _PADDING))
        self._bytes = np.frombuffer(self.data, np.uint8)
        self.starts = np.array(starts, np.int64)
        lengths, position = self._varints(self.starts)
        self.ends = position + lengths
        self.timestamp_deltas, position = self._varints(self._within(position + 1))
        self.offset_deltas, position = self._varints(position)
        self.key_lengths, self.key_starts = self._varints(position)
        value_lengths, position = self._varints(self._after(self.key_lengths, self.key_starts))
        self.is_tombstone = value_lengths < 0
        if (self._after(value_lengths, position) >= self.ends).any():
            raise DecodeError("a record ends before its value ends")
        self._check_offsets(batches)
        self.offsets = np.repeat(np.array([batch.base_offset for batch in batches], np.int64), self.counts)
        self.offsets += self.offset_deltas

    def keys(self) -> Any:
        """All keys as an Arrow array; null for a record without a key."""
        bounds = np.empty(2 * len(self.starts) + 1, np.int32)
        bounds[0:-1:2] = self.key_starts
        bounds[1::2] = self.key_starts + np.maximum(self.key_lengths, 0)
        bounds[-1] = bounds[-2] if len(bounds) > 1 else 0
        alternating = pa.Array.from_buffers(
            pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        )
        rows = 2 * np.arange(len(self.starts), dtype=np.int64)
        return alternating.take(pa.array(rows, mask=self.key_lengths < 0))

    def _check_offsets(self, batches: Sequence[PlacedBatch]) -> None:
        if not len(self.starts):
            return
        firsts = (np.cumsum(self.counts) - self.counts)[self.counts > 0]
        lasts = np.repeat(np.array([batch.header.last_offset_delta for batch in batches], np.int64), self.counts)
        ascends = np.diff(self.offset_deltas, prepend=-1) > 0
        ascends[firsts] = self.offset_deltas[firsts] >= 0
        if not ascends.all() or (self.offset_deltas > lasts).any():
            raise DecodeError("records whose offsets do not ascend")

    def _after(self, lengths: Ints, starts: Ints) -> Ints:
        """The positions after byte strings; a negative length is null."""
        if (lengths > self.size).any():
            raise DecodeError("a byte string of impossible length")
        return self._within(starts + np.maximum(lengths, 0))

    def _within(self, position: Ints) -> Ints:
        """Limit positions to one byte after the records; that is enough to detect wrong lengths."""
        return np.minimum(position, self.size + 1)

    def _varints(self, position: Ints) -> tuple[Ints, Ints]:
        """Zigzag numbers at these positions, and the positions after them."""
        return read_varints(self._bytes, position, self.size)


def read_records(batches: Sequence[PlacedBatch], plains: Sequence[bytes]) -> list[Records | PlacedBatch]:
    """The records of all batches together. If some cannot be read: batch by batch, and these batches unchanged."""
    try:
        return [Records(batches, plains)] if batches else []
    except DecodeError:
        return [_read_alone(batch, plain) for batch, plain in zip(batches, plains, strict=True)]


def _read_alone(batch: PlacedBatch, plain: bytes) -> Records | PlacedBatch:
    try:
        return Records([batch], [plain])
    except DecodeError:
        return batch


def plain_of(batch: PlacedBatch) -> bytes | None:
    """The decompressed records of a batch; None if that is not possible, or if the batch is a marker."""
    if is_control(batch.header):
        return None
    try:
        return bytes(plain_records(batch.data, batch.header))
    except DecodeError:
        return None
