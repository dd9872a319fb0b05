"""Writes a compacted segment of any size as a stream: bytes go to a sink, and only the index stays in memory."""

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence

import crc32c
import msgspec

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import SegmentId, TopicId
from penstock.kafkawire.records import BATCH_OVERHEAD, CONTROL, LENGTH_END
from penstock.segment.compacted import (
    NO_RECORDS_YET,
    NO_TIMESTAMP,
    CompactedIndex,
    CompactedRun,
    encode_index,
)
from penstock.segment.keys import FLUSHED_LEVEL, LEVEL_MAX
from penstock.segment.layout import (
    COMPACTED_VERSION,
    Footer,
    Identity,
    encode_footer,
    encode_header,
)

# The distance of two places: the first batch that begins this far after the last place is the next one. A fetch reads
# up to this many bytes before its first batch. A smaller distance makes larger indexes, which gateways keep in memory.
PLACE_BYTES = 256 * 1024

# Base offset, length; attributes, last offset delta; max timestamp; record count.
_FACTS = struct.Struct(">qi9xhi8xq14xi")


class BatchFacts(msgspec.Struct, frozen=True, gc=False):
    """The header fields of a batch that carries its real offsets."""

    length: int  # bytes, header included
    base_offset: int
    last_offset: int
    max_timestamp: int  # ms since 1970; without meaning if there are no records
    record_count: int  # 0 for a control batch, and for an empty batch that compaction keeps for its offsets


class _OpenRun:
    """The run that is being written."""

    def __init__(self, topic_id: TopicId, partition: int, position: int, first_offset: int | None) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.position = position
        self.first_offset = first_offset
        self.next_offset = first_offset or 0
        self.latest = NO_RECORDS_YET
        self.batch_count = 0
        self.record_count = 0
        self.place_start = 0


class CompactedWriter:
    """One compacted segment: call `begin_run`, `add` and `end_run` for each run in order, then `finish`.

    Runs are sorted by (topic id, partition, first offset). Buffers go to `sink` unchanged and in order, and must not
    change afterwards. Raises `Corrupt` for bytes that are not batches, or whose offsets do not ascend.
    """

    def __init__(
        self,
        segment_id: SegmentId,
        *,
        level: int,
        created_ms: int,
        sink: Callable[[Buffer], None],
        writer: str = "",
        place_bytes: int = PLACE_BYTES,
    ) -> None:
        assert FLUSHED_LEVEL < level <= LEVEL_MAX, f"compacted segment of level {level}"
        self._identity = Identity(level, segment_id, created_ms, writer, COMPACTED_VERSION)
        self._sink = sink
        self._place_bytes = place_bytes
        self._runs: list[CompactedRun] = []
        self._place_counts: list[int] = []
        self._offsets, self._timestamps, self._positions = array("q"), array("q"), array("q")
        self._open: _OpenRun | None = None
        self.position = 0  # bytes given to the sink
        self._emit(encode_header(self._identity))

    def begin_run(self, topic_id: TopicId, partition: int, first_offset: int | None = None) -> None:
        """Begin a partition's run for offsets from `first_offset` on; the default is its first batch's offset."""
        assert self._open is None, "the previous run has not ended"
        if self._runs:
            before = self._runs[-1]
            assert (before.topic_id, before.partition) <= (topic_id, partition), "runs are not in order"
        self._open = _OpenRun(topic_id, partition, self.position, first_offset)
        self._open.place_start = len(self._offsets)

    def add(self, data: Buffer, facts: Sequence[BatchFacts] | None = None) -> None:
        """Add adjacent complete batches; the caller passes their `facts` if it has read them already."""
        run = self._open
        assert run is not None, "no run has begun"
        position = self.position
        for batch in batch_facts(data) if facts is None else facts:
            self._record(run, batch, position)
            position += batch.length
        assert position == self.position + len(data), "the facts belong to other batches"
        self._emit(data)

    def end_run(self) -> CompactedRun:
        """End the run at the last offset of its last batch, and return it."""
        open_run = self._open
        assert open_run is not None and open_run.batch_count, "the run has no batches"
        run = CompactedRun(
            topic_id=open_run.topic_id,
            partition=open_run.partition,
            position=open_run.position,
            length=self.position - open_run.position,
            first_offset=open_run.first_offset or 0,
            last_offset=open_run.next_offset - 1,
            max_timestamp=NO_TIMESTAMP if open_run.latest == NO_RECORDS_YET else open_run.latest,
            batch_count=open_run.batch_count,
            record_count=open_run.record_count,
        )
        self._check_order(run)
        self._runs.append(run)
        self._place_counts.append(len(self._offsets) - open_run.place_start)
        self._open = None
        return run

    def finish(self) -> CompactedIndex:
        """Write index and footer; nothing can be added afterwards."""
        assert self._open is None, "the last run has not ended"
        columns = (self._offsets, self._timestamps, self._positions)
        index, places = encode_index(self._runs, self._place_counts, columns)
        footer = Footer(self.position, len(index), crc32c.crc32c(index), len(self._runs), places, self._identity)
        self._emit(index)
        self._emit(encode_footer(footer))
        starts = array("q", [0])
        for count in self._place_counts:
            starts.append(starts[-1] + count)
        identity = self._identity
        return CompactedIndex(
            segment_id=identity.segment_id,
            level=identity.level,
            writer=identity.writer,
            created_ms=identity.created_ms,
            size_bytes=footer.size_bytes,
            runs=self._runs,
            offsets=self._offsets,
            timestamps=self._timestamps,
            positions=self._positions,
            place_starts=starts,
        )

    def _record(self, run: _OpenRun, batch: BatchFacts, position: int) -> None:
        if run.first_offset is None:
            run.first_offset = run.next_offset = batch.base_offset
        if not 0 <= run.next_offset <= batch.base_offset <= batch.last_offset:
            raise Corrupt(
                f"batch with offsets {batch.base_offset} to {batch.last_offset} follows offset {run.next_offset - 1} "
                f"of partition {run.partition} of topic {run.topic_id.hex()}"
            )
        if not run.batch_count or position - self._positions[-1] >= self._place_bytes:
            self._offsets.append(batch.base_offset)
            self._positions.append(position)
            self._timestamps.append(run.latest)
        if batch.record_count and batch.max_timestamp > run.latest:
            run.latest = self._timestamps[-1] = batch.max_timestamp
        run.batch_count += 1
        run.record_count += batch.record_count
        run.next_offset = batch.last_offset + 1

    def _check_order(self, run: CompactedRun) -> None:
        if self._runs:
            before = self._runs[-1]
            is_same = (before.topic_id, before.partition) == (run.topic_id, run.partition)
            assert not is_same or before.last_offset < run.first_offset, "runs of a partition are not in order"

    def _emit(self, data: Buffer) -> None:
        self.position += len(data)
        self._sink(data)


def batch_facts(data: Buffer) -> Iterator[BatchFacts]:
    """The facts of the complete batches, with real offsets, in `data`; `Corrupt` for any other bytes."""
    position, size = 0, len(data)
    while position < size:
        if size - position < BATCH_OVERHEAD:
            raise Corrupt(f"{size - position} bytes that are no batch")
        base_offset, length, attributes, last_delta, max_timestamp, count = _FACTS.unpack_from(data, position)
        length += LENGTH_END
        if not BATCH_OVERHEAD <= length <= size - position or count < 0 or count > last_delta + 1:
            raise Corrupt(f"batch of {length} bytes and {count} records in {size - position} bytes")
        records = 0 if attributes & CONTROL else count
        yield BatchFacts(length, base_offset, base_offset + last_delta, max_timestamp, records)
        position += length
