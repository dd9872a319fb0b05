"""Builds a flushed segment from record batches without copying them."""

import struct
from collections.abc import Sequence

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
    metas = [batch[2] for batch in ordered]
    lengths = [meta.length for meta in metas]
    assert lengths == [len(batch[3]) for batch in ordered], "a batch has another length than its metadata"
    runs, run_lengths = _runs(ordered, lengths)
    index_position = HEADER_BYTES + sum(lengths)
    index = _index(runs, run_lengths, metas)
    footer = Footer(index_position, len(index), crc32c.crc32c(index), len(runs), len(ordered), identity)
    buffers = [encode_header(identity), *[batch[3] for batch in ordered], index, encode_footer(footer)]
    return BuiltSegment(buffers, footer.size_bytes, runs, order)


def _runs(ordered: list[PlacedBatch], lengths: list[int]) -> tuple[list[BatchRun], list[int]]:
    """One run per partition, and the sizes of the runs in bytes."""
    runs: list[BatchRun] = []
    run_lengths: list[int] = []
    position = HEADER_BYTES
    latest: tuple[TopicId, int] | None = None
    for (topic_id, partition, meta, _), length in zip(ordered, lengths, strict=True):
        if (topic_id, partition) == latest:
            runs[-1].batches.append(meta)
            run_lengths[-1] += length
        else:
            latest = topic_id, partition
            runs.append(BatchRun(topic_id, partition, position, [meta]))
            run_lengths.append(length)
        position += length
    return runs, run_lengths


def _index(runs: list[BatchRun], run_lengths: list[int], metas: list[BatchMeta]) -> bytes:
    rows = [
        RUN_ROW.pack(run.topic_id, run.partition, run.position, length, len(run.batches))
        for run, length in zip(runs, run_lengths, strict=True)
    ]
    columns = zip(*map(msgspec.structs.astuple, metas), strict=True)
    packed = [
        struct.pack(f">{len(metas)}{kind}", *column) for kind, column in zip(BATCH_COLUMNS, columns, strict=False)
    ]
    return b"".join(rows + packed)


def run_length(run: BatchRun) -> int:
    """The size of a run's batches in bytes."""
    return sum(meta.length for meta in run.batches)
