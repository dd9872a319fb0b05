"""Builds a flushed segment from record batches without copying them."""

import operator
import struct
from collections.abc import Sequence
from itertools import groupby

import crc32c
import msgspec

from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.codec import Buffer
from penstock.contracts.ids import SegmentId, TopicId
from penstock.segment.layout import (
    BATCH_COLUMNS,
    HEADER_BYTES,
    RUN_ROW,
    Footer,
    Identity,
    encode_footer,
    encode_header,
)

PlacedBatch = tuple[TopicId, int, BatchMeta, Buffer]  # topic id, partition, metadata, bytes


class BuiltSegment(msgspec.Struct, frozen=True):
    """A segment that is ready to be stored."""

    buffers: list[Buffer]  # the object's bytes, in this order; batches are the caller's own buffers
    size_bytes: int
    runs: list[BatchRun]
    order: list[int]  # order[i] is the caller's index of the i-th batch in the segment


def build_segment(
    segment_id: SegmentId, *, writer: str, created_ms: int, level: int, batches: Sequence[PlacedBatch]
) -> BuiltSegment:
    """Sort batches by (topic id, partition), keep their order in each partition, and append index and footer.

    Each batch must have exactly the length in its metadata; `Invalid` for a writer that is not a token.
    """
    identity = Identity(level, segment_id, created_ms, writer)
    places = [batch[:2] for batch in batches]
    order = sorted(range(len(batches)), key=places.__getitem__)
    ordered = [batches[index] for index in order]
    assert all(len(data) == meta.length for _, _, meta, data in ordered), "a batch has another length than its metadata"
    runs, index_position = _runs(ordered)
    index = _index(runs, [meta for _, _, meta, _ in ordered])
    footer = Footer(index_position, len(index), crc32c.crc32c(index), len(runs), len(ordered), identity)
    buffers = [encode_header(identity), *(data for _, _, _, data in ordered), index, encode_footer(footer)]
    return BuiltSegment(buffers, footer.size_bytes, runs, order)


def _runs(ordered: list[PlacedBatch]) -> tuple[list[BatchRun], int]:
    """One run per partition, and the position after the last run."""
    runs = []
    position = HEADER_BYTES
    for (topic_id, partition), group in groupby(ordered, key=operator.itemgetter(0, 1)):
        run = BatchRun(topic_id, partition, position, [meta for _, _, meta, _ in group])
        runs.append(run)
        position += run_length(run)
    return runs, position


def _index(runs: list[BatchRun], metas: list[BatchMeta]) -> bytes:
    rows = [RUN_ROW.pack(run.topic_id, run.partition, run.position, run_length(run), len(run.batches)) for run in runs]
    columns = zip(*map(msgspec.structs.astuple, metas), strict=True)
    packed = [
        struct.pack(f">{len(metas)}{kind}", *column) for kind, column in zip(BATCH_COLUMNS, columns, strict=False)
    ]
    return b"".join(rows + packed)


def run_length(run: BatchRun) -> int:
    """The size of a run's batches in bytes."""
    return sum(meta.length for meta in run.batches)
