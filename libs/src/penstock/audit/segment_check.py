"""Reads the live extents of segments and checks every batch in them; runs in the tasks of Spark."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import crc32c
import msgspec

from penstock.audit.report import Finding
from penstock.contracts.batches import BatchRun
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, Invalid
from penstock.contracts.ids import TopicId
from penstock.kafkawire.records import (
    BATCH_OVERHEAD,
    CRC_START,
    MAGIC,
    BatchHeader,
    is_control,
    read_batch_header,
    size_bytes,
)
from penstock.objectstore.errors import NotFound
from penstock.segment import CompactedIndex, SegmentIndex, read_any_index_of
from penstock.segment.writer import run_length
from penstock.spark.window import Window

Stream = Callable[[Sequence[tuple[str, int, int]]], Iterator[Buffer]]  # bytes of ranges (key, position, length)


class ExtentCheck(msgspec.Struct, frozen=True, array_like=True):
    """A live extent, and the expected facts of its batches."""

    topic: str
    topic_id: TopicId
    partition: int
    base_offset: int
    last_offset: int
    position: int
    length: int
    max_timestamp: int
    may_have_gaps: bool  # compaction removes records: older ones of a key, or aborted ones


class SegmentCheck(msgspec.Struct, frozen=True, array_like=True):
    """An object and its live extents, in order of position."""

    key: str
    level: int
    size_bytes: int
    extents: list[ExtentCheck]

    @property
    def live_bytes(self) -> int:
        """The bytes that the check reads, without the index."""
        return sum(extent.length for extent in self.extents)


class Checked(msgspec.Struct, array_like=True):
    """The counts of checked data, and the findings."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = []

    def add(self, other: "Checked") -> None:
        """Add the counts and findings of another result."""
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.bytes += other.bytes
        self.findings += other.findings


def check_segments(checks: Sequence[SegmentCheck], stream: Stream) -> Checked:
    """Check segments one after the other; damage is a finding, but `Unavailable` ends the audit."""
    checked = Checked()
    for check in checks:
        checked.segments += 1
        try:
            _check_index(check, stream)
        except Corrupt as error:
            checked.findings.append(Finding("index-damaged", check.key, str(error)))
        except (NotFound, Invalid) as error:
            checked.findings.append(Finding("object-unreadable", check.key, str(error)))
            continue
        _check_extents(check, stream, checked)
    return checked


def _check_index(check: SegmentCheck, stream: Stream) -> None:
    async def get_range(position: int, length: int) -> bytes:
        return b"".join(stream([(check.key, position, length)]))

    index = asyncio.run(read_any_index_of(get_range, check.size_bytes))
    if index.level != check.level:
        raise Corrupt(f"the index has level {index.level}")
    runs = _places(index)
    for extent in check.extents:
        position, end = runs.get((extent.topic_id, extent.partition), (0, 0))
        if not position <= extent.position <= extent.position + extent.length <= end:
            raise Corrupt(f"the index has no run of {extent.topic}-{extent.partition} at byte {extent.position}")


def _places(index: SegmentIndex | CompactedIndex) -> dict[tuple[TopicId, int], tuple[int, int]]:
    """The start and end of each partition's runs; all runs of a partition lie next to each other."""
    places: dict[tuple[TopicId, int], tuple[int, int]] = {}
    for run in index.runs:
        length = run_length(run) if isinstance(run, BatchRun) else run.length
        key = (run.topic_id, run.partition)
        start, _ = places.get(key, (run.position, 0))
        places[key] = (start, run.position + length)
    return places


def _check_extents(check: SegmentCheck, stream: Stream, checked: Checked) -> None:
    """Read extent after extent; after a damaged extent, continue with a new stream."""
    left = list(check.extents)
    while left:
        window = Window(stream([(check.key, extent.position, extent.length) for extent in left]))
        while left:
            extent = left.pop(0)
            try:
                _check_extent(check, extent, window, checked)
            except Corrupt as error:
                checked.findings.append(Finding("batch-damaged", _place_of(check, extent), str(error)))
                break  # the window's position is unknown now: begin another one after this extent
            except (NotFound, Invalid) as error:
                checked.findings.append(Finding("object-unreadable", check.key, str(error)))
                return


def _check_extent(check: SegmentCheck, extent: ExtentCheck, window: Window, checked: Checked) -> None:
    offset, left_bytes = extent.base_offset, extent.length
    while left_bytes:
        if left_bytes < BATCH_OVERHEAD:
            raise Corrupt(f"the last {left_bytes} bytes are no batch")
        header = read_batch_header(window.peek(BATCH_OVERHEAD))
        size = size_bytes(header)
        if not BATCH_OVERHEAD <= size <= left_bytes or header.magic != MAGIC:
            raise Corrupt(f"the batch at offset {offset} has {size} bytes, but the extent has {left_bytes} left")
        crc = crc32c.crc32c(window.take(size)[CRC_START:])
        if crc != header.crc:
            raise Corrupt(f"the batch at offset {offset} has crc {crc:08x}, expected {header.crc:08x}")
        offset = _check_place(check.level, extent, header, offset) + 1
        left_bytes -= size
        checked.batches += 1
        checked.records += 0 if is_control(header) else header.record_count
        checked.bytes += size
    if offset != extent.last_offset + 1:
        raise Corrupt(f"the extent ends at offset {offset - 1} instead of {extent.last_offset}")


def _check_place(level: int, extent: ExtentCheck, header: BatchHeader, offset: int) -> int:
    """The batch's last offset; `Corrupt` if the batch does not fit at this offset of the extent."""
    base_offset = header.base_offset if level else offset
    last_offset = base_offset + header.last_offset_delta
    if not offset <= base_offset <= last_offset <= extent.last_offset:
        raise Corrupt(f"the batch at offset {offset} has the offsets {base_offset} to {last_offset}")
    is_dense = base_offset == offset and header.record_count == header.last_offset_delta + 1
    if not is_dense and not (level and extent.may_have_gaps):
        raise Corrupt(f"{header.record_count} records for the offsets {offset} to {last_offset}")
    # An empty batch in place of removed records keeps their largest timestamp, and markers have other timestamps.
    if header.record_count and not is_control(header) and header.max_timestamp > extent.max_timestamp:
        raise Corrupt(
            f"the batch at offset {base_offset} has timestamp {header.max_timestamp}, above the extent's "
            f"{extent.max_timestamp}"
        )
    return last_offset


def _place_of(check: SegmentCheck, extent: ExtentCheck) -> str:
    return f"{check.key} {extent.topic}-{extent.partition} {extent.base_offset}..{extent.last_offset}"
