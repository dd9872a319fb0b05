"""The index of a compacted segment (version 2): its runs, each with an offset index that finds offsets and times.

All integers are checked when an index is read; contradictions are `Corrupt`.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import SegmentId, TopicId
from penstock.segment.layout import (
    COMPACTED_ROW,
    HEADER_BYTES,
    PLACE_COLUMNS,
    PLACE_ENTRY_BYTES,
    Footer,
)

NO_RECORDS_YET = -(2**63)  # in an offset index: there are no records from the run's start to this place
NO_TIMESTAMP = -1  # of a run without records

_RUN_MEMORY_BYTES = 320  # one run's struct, its numbers and its entries in the lists


class CompactedRun(msgspec.Struct, frozen=True, gc=False):
    """One partition's batches from byte `position` on, with real offsets, which may have gaps."""

    topic_id: TopicId
    partition: int
    position: int
    length: int  # bytes
    first_offset: int  # of the run's range; its first batch may begin later
    last_offset: int  # of its last batch
    max_timestamp: int  # ms since 1970; NO_TIMESTAMP without records
    batch_count: int
    record_count: int


class Place(msgspec.Struct, frozen=True, gc=False):
    """The start of a batch: its base offset, and its byte in the segment."""

    offset: int
    position: int


class OffsetIndex:
    """Places in one run in ascending order, some batches apart; the first place is the run's start."""

    __slots__ = ("_end", "_offsets", "_positions", "_start", "_timestamps")

    def __init__(
        self, offsets: "array[int]", timestamps: "array[int]", positions: "array[int]", start: int, end: int
    ) -> None:
        self._offsets, self._timestamps, self._positions = offsets, timestamps, positions
        self._start, self._end = start, end

    def __len__(self) -> int:
        return self._end - self._start

    def find(self, offset: int) -> Place:
        """The last place from which a read misses no batch at or above the offset."""
        return self._at(max(bisect_right(self._offsets, offset, self._start, self._end) - 1, self._start))

    def find_timestamp(self, timestamp: int) -> Place | None:
        """The last place that is not after the first batch with a time from `timestamp` on; None without a batch."""
        index = bisect_left(self._timestamps, timestamp, self._start, self._end)
        return self._at(index) if index < self._end else None

    def places(self) -> list[Place]:
        """All places of the run."""
        return [self._at(index) for index in range(self._start, self._end)]

    def _at(self, index: int) -> Place:
        return Place(self._offsets[index], self._positions[index])


class CompactedIndex(msgspec.Struct, frozen=True):
    """The content of a compacted segment; `runs` are in file order, which is by (topic id, partition, first offset).

    Three columns hold the offset indexes of all runs, one after the other. The timestamp of a place is the largest one
    from the run's start up to the next place.
    """

    segment_id: SegmentId
    level: int
    writer: str
    created_ms: int
    size_bytes: int
    runs: list[CompactedRun]
    offsets: "array[int]"
    timestamps: "array[int]"
    positions: "array[int]"
    place_starts: "array[int]"  # the first place of each run, and the end of the last run's places

    def run_at(self, position: int) -> int:
        """The index of the run that begins at `position`; `Corrupt` if there is none."""
        index = bisect_left(self.runs, position, key=_position)
        if index == len(self.runs) or self.runs[index].position != position:
            raise Corrupt(f"segment {self.segment_id.hex()} has no run at byte {position}")
        return index

    def offset_index(self, run_index: int) -> OffsetIndex:
        """The offset index of a run."""
        start, end = self.place_starts[run_index], self.place_starts[run_index + 1]
        return OffsetIndex(self.offsets, self.timestamps, self.positions, start, end)

    @property
    def memory_bytes(self) -> int:
        """The approximate size of this index in memory."""
        return len(self.runs) * _RUN_MEMORY_BYTES + len(self.offsets) * PLACE_ENTRY_BYTES


def encode_index(
    runs: Sequence[CompactedRun], place_counts: Sequence[int], columns: Sequence["array[int]"]
) -> tuple[bytes, int]:
    """The bytes of the index, and the number of its places."""
    rows = [
        COMPACTED_ROW.pack(*msgspec.structs.astuple(run), count) for run, count in zip(runs, place_counts, strict=True)
    ]
    return b"".join([*rows, *map(_big_endian, columns)]), len(columns[0])


def decode_index(index: memoryview, footer: Footer) -> CompactedIndex:
    """The index in bytes whose CRC was checked."""
    rows_bytes = footer.run_count * COMPACTED_ROW.size
    rows = [CompactedRun(*row[:-1]) for row in COMPACTED_ROW.iter_unpack(index[:rows_bytes])]
    place_counts = [row[-1] for row in COMPACTED_ROW.iter_unpack(index[:rows_bytes])]
    offsets, timestamps, positions = _columns(index[rows_bytes:], footer.batch_count)
    place_starts = _starts(place_counts, footer.batch_count)
    _check_runs(rows, footer.index_position)
    for run, start, end in zip(rows, place_starts, place_starts[1:], strict=False):
        _check_places(run, offsets[start:end], timestamps[start:end], positions[start:end])
    identity = footer.identity
    return CompactedIndex(
        segment_id=identity.segment_id,
        level=identity.level,
        writer=identity.writer,
        created_ms=identity.created_ms,
        size_bytes=footer.size_bytes,
        runs=rows,
        offsets=offsets,
        timestamps=timestamps,
        positions=positions,
        place_starts=place_starts,
    )


def _check_runs(runs: Sequence[CompactedRun], end: int) -> None:
    position = HEADER_BYTES
    before: CompactedRun | None = None
    for run in runs:
        if run.position != position or not run.length or not run.batch_count:
            raise Corrupt(f"segment run of {run.length} bytes at {run.position}, expected at {position}")
        if run.partition < 0 or not 0 <= run.first_offset <= run.last_offset:
            raise Corrupt(f"segment run of partition {run.partition}, offsets {run.first_offset} to {run.last_offset}")
        if run.record_count > run.last_offset - run.first_offset + 1:
            raise Corrupt(f"segment run with {run.record_count} records, {run.first_offset} to {run.last_offset}")
        if before is not None and not _follows(before, run):
            raise Corrupt(f"segment run of partition {run.partition} of topic {run.topic_id.hex()} is out of order")
        position += run.length
        before = run
    if position != end:
        raise Corrupt(f"segment runs end at {position}, the index is at {end}")


def _follows(before: CompactedRun, run: CompactedRun) -> bool:
    earlier, later = (before.topic_id, before.partition), (run.topic_id, run.partition)
    return earlier < later or (earlier == later and before.last_offset < run.first_offset)


def _check_places(run: CompactedRun, offsets: "array[int]", timestamps: "array[int]", positions: "array[int]") -> None:
    """`Corrupt` unless the places ascend from the run's start and lie inside the run."""
    if not 1 <= len(offsets) <= run.batch_count:
        raise Corrupt(f"segment run of {run.batch_count} batches with {len(offsets)} places")
    is_inside = positions[0] == run.position and positions[-1] < run.position + run.length
    is_inside &= run.first_offset <= offsets[0] and offsets[-1] <= run.last_offset
    if not is_inside or not _ascends(positions) or not _ascends(offsets):
        raise Corrupt(f"segment run at {run.position} with places outside of it or out of order")
    latest = NO_TIMESTAMP if timestamps[-1] == NO_RECORDS_YET and not run.record_count else timestamps[-1]
    if latest != run.max_timestamp or list(timestamps) != sorted(timestamps):
        raise Corrupt(
            f"segment run at {run.position} with times to {run.max_timestamp}, its places to {timestamps[-1]}"
        )


def _ascends(column: "array[int]") -> bool:
    return all(map(int.__lt__, column, column[1:]))


def _starts(place_counts: Sequence[int], total: int) -> "array[int]":
    starts = array("q", [0])
    for count in place_counts:
        starts.append(starts[-1] + count)
    if starts[-1] != total:
        raise Corrupt(f"segment runs with {starts[-1]} places, the footer has {total}")
    return starts


def _columns(data: memoryview, count: int) -> list["array[int]"]:
    columns = []
    for number in range(PLACE_COLUMNS):
        column = array("q", bytes(data[number * count * 8 : (number + 1) * count * 8]))
        if sys.byteorder == "little":
            column.byteswap()
        columns.append(column)
    return columns


def _big_endian(column: "array[int]") -> bytes:
    if sys.byteorder != "little":
        return column.tobytes()
    swapped = array("q", column)
    swapped.byteswap()
    return swapped.tobytes()


def _position(run: CompactedRun) -> int:
    return run.position
