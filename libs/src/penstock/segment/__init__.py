"""Segments: the objects that hold record batches of many partitions, their index, and the keys of all objects.

Pure: no sockets and no store. It may import `penstock.kafkawire` and `penstock.contracts`. Start with `layout`, then
`writer` and `reader`.
"""

from penstock.segment.compacted import CompactedIndex, CompactedRun, OffsetIndex, Place
from penstock.segment.compacted_writer import BatchFacts, CompactedWriter, batch_facts
from penstock.segment.layout import FOOTER_BYTES, HEADER_BYTES, SegmentIndex
from penstock.segment.reader import (
    TAIL_BYTES,
    check_header,
    read_any_index_of,
    read_compacted_index,
    read_compacted_index_of,
    read_footer,
    read_index,
    read_index_of,
)
from penstock.segment.writer import BuiltSegment, build_segment

__all__ = [
    "BuiltSegment",
    "build_segment",
    "SegmentIndex",
    "read_index",
    "read_index_of",
    "BatchFacts",
    "batch_facts",
    "CompactedWriter",
    "CompactedIndex",
    "CompactedRun",
    "OffsetIndex",
    "Place",
    "read_compacted_index",
    "read_compacted_index_of",
    "read_any_index_of",
    "read_footer",
    "check_header",
    "HEADER_BYTES",
    "FOOTER_BYTES",
    "TAIL_BYTES",
]
