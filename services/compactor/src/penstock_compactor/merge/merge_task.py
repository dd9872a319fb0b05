"""The merge task: streams ranges of segments from the store into one compacted segment.

Batches do not change, except for the two fields that their CRC does not cover. The base offset becomes the real one, as
in all segments above level 0. The leader epoch means nothing in a segment; gateways write it. Aborted records are left
out of runs with only ended transactions, and markers without bytes are stored (ADR 0012). The task checks every CRC and
every offset. If one is wrong, it raises `Corrupt` and writes no output.
"""

import struct
import time
from collections.abc import Callable, Iterator, Sequence

import crc32c
import msgspec

from penstock.contracts.batches import NO_SEGMENT_ID, Marker
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, PenstockError, Unavailable
from penstock.contracts.ids import ENTROPY_BYTES, new_segment_id, ulid_text
from penstock.kafkawire.cleaning import empty_batch
from penstock.kafkawire.records import BATCH_OVERHEAD, CONTROL, CRC_START, LENGTH_END, MAGIC, read_batch_header
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.process.memory import resident_bytes_max
from penstock.segment.compacted_writer import BatchFacts, CompactedWriter, batch_facts
from penstock.segment.keys import FLUSHED_LEVEL, segment_key
from penstock.segment.transactions import marker_batch
from penstock.spark.blocks import Range
from penstock.spark.ranges import Fragment, StoreRanges
from penstock_compactor.jobs.decided import Decided
from penstock_compactor.jobs.values import Failed, StorePlace
from penstock_compactor.merge.tasks import InputExtent, InputRun, Merged, MergeTask, OutputRun

NO_PREFIX = ""  # the store's URL already has the prefix

NO_EPOCH = -1  # a gateway writes the leader epoch before it sends a batch to a client

# Base offset, length; magic, CRC, attributes, last offset delta; max timestamp, producer id; record count.
_FACTS = struct.Struct(">qi4xbIhi8xqq6xi")
_BASE_OFFSET = struct.Struct(">q")


def _never() -> bool:
    return False


def merge(
    place: StorePlace, task: MergeTask, clock: Clock, entropy: Entropy, is_cancelled: Callable[[], bool] = _never
) -> Merged | Failed:
    """Write the task's output with a new id. A failure is a result, so that other tasks of the job continue.

    `is_cancelled` is asked before each extent. Then the task fails and stores nothing.
    """
    try:
        return _merge(place, task, clock, entropy, is_cancelled)
    except PenstockError as error:
        return Failed(type(error).__name__, str(error))


def _merge(
    place: StorePlace, task: MergeTask, clock: Clock, entropy: Entropy, is_cancelled: Callable[[], bool]
) -> Merged:
    began_s, began_cpu_s = clock.monotonic_s(), time.process_time()
    born_ms = clock.now_ms()
    segment_id = new_segment_id(born_ms, entropy.take(ENTROPY_BYTES))
    key = segment_key(NO_PREFIX, place.cluster, task.level, segment_id)
    keys = [segment_key(NO_PREFIX, place.cluster, each.level, each.segment_id) for each in task.segments]
    with StoreRanges(place.url) as ranges:
        with ranges.output(key) as output:
            writer = CompactedWriter(segment_id, level=task.level, created_ms=born_ms, sink=output.write)
            runs = write_runs(ranges, task, keys, writer, is_cancelled)
            writer.finish()
        size_bytes = output.size_bytes
    return Merged(
        segment_id=segment_id,
        level=task.level,
        size_bytes=size_bytes,
        runs=runs,
        seconds=clock.monotonic_s() - began_s,
        cpu_seconds=time.process_time() - began_cpu_s,
        resident_bytes_max=resident_bytes_max(),
    )


def write_runs(
    ranges: StoreRanges,
    task: MergeTask,
    keys: Sequence[str],
    writer: CompactedWriter,
    is_cancelled: Callable[[], bool] = _never,
) -> list[OutputRun]:
    """Stream the task's runs from its segments, the objects `keys`, into a writer."""
    stored = [each for run in task.runs for each in run.extents if not _is_marker(task, each)]
    fragments = ranges.stream([Range(keys[each.segment], each.position, each.length) for each in stored])
    written = []
    for run in task.runs:
        writer.begin_run(run.topic_id, run.partition, run.extents[0].base_offset)
        for data, facts in _batches_of(run, fragments, task, is_cancelled):
            writer.add(data, facts)
        done = writer.end_run()
        assert done.last_offset == run.extents[-1].last_offset, "extents were checked to their ends"
        written.append(OutputRun(done.position, done.length, done.max_timestamp))
    return written


_Stretch = tuple[Buffer, list[BatchFacts]]  # consecutive complete batches, and the facts of each


def _is_marker(task: MergeTask, extent: InputExtent) -> bool:
    return task.segments[extent.segment].segment_id == NO_SEGMENT_ID


def _batches_of(
    run: InputRun, fragments: Iterator[Fragment], task: MergeTask, is_cancelled: Callable[[], bool]
) -> Iterator[_Stretch]:
    markers = {marker.offset: marker for marker in run.markers}
    decided = Decided(run.extents[0].base_offset, run.aborted) if run.without_aborted else None
    end = run.extents[-1].last_offset
    for extent in run.extents:
        if is_cancelled():
            raise Unavailable("the job was cancelled")
        if _is_marker(task, extent):
            yield from _marker(markers[extent.base_offset], decided, end)
        else:
            yield from _extent(fragments, extent, task, decided, end)


def _marker(marker: Marker, decided: Decided | None, end: int) -> Iterator[_Stretch]:
    data = marker_batch(marker)
    header = read_batch_header(data)
    if decided is not None and decided.leaves_out(header.attributes, marker.producer_id, marker.offset, data):
        if marker.offset != end:
            return
        data = empty_batch(header)
    yield data, list(batch_facts(data))


def _extent(
    fragments: Iterator[Fragment], extent: InputExtent, task: MergeTask, decided: Decided | None, end: int
) -> Iterator[_Stretch]:
    segment = task.segments[extent.segment]
    batches = _Batches(extent, decided, end, is_placed=segment.level != FLUSHED_LEVEL)
    try:
        for fragment in fragments:
            yield from batches.take(fragment.data)
            if fragment.is_last:
                break
        batches.check_end()
    except Corrupt as error:
        place = f"extent of offsets {extent.base_offset} to {extent.last_offset} at byte {extent.position}"
        raise Corrupt(f"segment {ulid_text(segment.segment_id)}: {place}: {error}") from error


class _Batches:
    """Complete batches from the fragments of an extent, checked, with their real offsets.

    `decided` selects batches to leave out. An empty batch replaces such a batch if it ends at `end`, the run's end.
    """

    def __init__(self, extent: InputExtent, decided: Decided | None, end: int, *, is_placed: bool) -> None:
        self._extent = extent
        self._decided = decided
        self._end = end
        self._is_placed = is_placed  # whether the batches already have real offsets
        self._next_offset = extent.base_offset
        self._rest = b""  # the end of the last fragment, with the beginning of a batch

    def take(self, fragment: memoryview) -> list[_Stretch]:
        """The complete batches in the rest and this fragment; one stretch if no batch is left out."""
        data = bytearray().join((self._rest, fragment))
        stretches: list[_Stretch] = []
        facts: list[BatchFacts] = []
        start, position, size = 0, 0, len(data)
        view = memoryview(data)
        while position + BATCH_OVERHEAD <= size:
            base_offset, length, magic, crc, attributes, last_delta, max_timestamp, producer_id, count = (
                _FACTS.unpack_from(data, position)
            )
            length += LENGTH_END
            if length < BATCH_OVERHEAD or magic != MAGIC:
                raise Corrupt(f"a batch of {length} bytes and magic {magic}")
            end = position + length
            if end > size:
                break
            if crc32c.crc32c(view[position + CRC_START : end]) != crc:
                raise Corrupt(f"the crc of the batch at offset {self._next_offset} is not {crc:08x}")
            base_offset, last_offset = self._offsets(base_offset, last_delta, count)
            _BASE_OFFSET.pack_into(data, position, base_offset)
            self._next_offset = last_offset + 1
            decided = self._decided
            if decided is not None and decided.leaves_out(attributes, producer_id, base_offset, view[position:end]):
                stretches.append((view[start:position], facts))
                stretches += self._substitute(view[position:end], last_offset)
                start, facts = end, []
            else:
                records = 0 if attributes & CONTROL else count
                facts.append(BatchFacts(length, base_offset, last_offset, max_timestamp, records))
            position = end
        self._rest = bytes(view[position:])
        stretches.append((view[start:position], facts))
        return [stretch for stretch in stretches if stretch[1]]

    def _substitute(self, batch: memoryview, last_offset: int) -> list[_Stretch]:
        """An empty batch in place of a batch that is left out, if that is the run's last one."""
        if last_offset != self._end:
            return []
        header = read_batch_header(batch)
        empty = empty_batch(msgspec.structs.replace(header, partition_leader_epoch=NO_EPOCH))
        return [(empty, list(batch_facts(empty)))]

    def check_end(self) -> None:
        """`Corrupt` unless the batches end exactly at the end of the extent."""
        if self._rest:
            raise Corrupt(f"the last {len(self._rest)} bytes are no batch")
        if self._next_offset != self._extent.last_offset + 1:
            raise Corrupt(f"its batches end with offset {self._next_offset - 1}")

    def _offsets(self, base_offset: int, last_delta: int, count: int) -> tuple[int, int]:
        """The real first and last offset of the next batch."""
        if not self._is_placed:
            base_offset, last_delta = self._next_offset, count - 1
        last_offset = base_offset + last_delta
        if not self._next_offset <= base_offset <= last_offset <= self._extent.last_offset:
            raise Corrupt(f"a batch of offsets {base_offset} to {last_offset}, expected {self._next_offset} or more")
        return base_offset, last_offset
