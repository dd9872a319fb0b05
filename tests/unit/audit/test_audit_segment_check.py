"""The findings of reading a segment: damage, wrong offsets, missing objects, and nothing in undamaged segments."""

from collections.abc import Iterator, Sequence

import pytest

from penstock.audit.segment_check import Checked, ExtentCheck, SegmentCheck, check_segments
from penstock.contracts.batches import BatchMeta
from penstock.contracts.codec import Buffer
from penstock.contracts.ids import new_segment_id, new_topic_id
from penstock.kafkawire.cleaning import empty_batch
from penstock.kafkawire.control import control_batch
from penstock.kafkawire.records import Record, build_batch, place_batch, read_batch_header
from penstock.objectstore.errors import NotFound
from penstock.segment import CompactedWriter, build_segment

TOPIC = new_topic_id(bytes(range(16)))
SEGMENT = new_segment_id(1_800_000_000_000, bytes(10))
KEY = "c/segments/000/0-X"
FIRST_OFFSET = 100
FRAGMENT_BYTES = 50  # smaller than a batch, so that every batch is put together from fragments


class Objects(dict[str, bytes]):
    """Stored objects, read in small fragments."""

    def stream(self, ranges: Sequence[tuple[str, int, int]]) -> Iterator[Buffer]:
        for key, position, length in ranges:
            if key not in self:
                raise NotFound(key)
            for start in range(position, position + length, FRAGMENT_BYTES):
                yield self[key][start : min(start + FRAGMENT_BYTES, position + length)]


def batch(count: int, timestamp: int = 5) -> bytes:
    return build_batch([Record(number, timestamp, b"k", b"v" * 30) for number in range(count)])


def extent(position: int, length: int, count: int, *, may_have_gaps: bool = False) -> ExtentCheck:
    last_offset = FIRST_OFFSET + count - 1
    return ExtentCheck("t", TOPIC, 0, FIRST_OFFSET, last_offset, position, length, 5, may_have_gaps)


def flushed(batches: Sequence[bytes], counts: Sequence[int]) -> tuple[Objects, SegmentCheck]:
    """A level-0 segment of one partition."""
    metas = [BatchMeta(len(each), count, 5, -1, -1, -1, 0) for each, count in zip(batches, counts, strict=True)]
    placed = [(TOPIC, 0, meta, each) for meta, each in zip(metas, batches, strict=True)]
    built = build_segment(SEGMENT, writer="f", created_ms=1, level=0, batches=placed)
    data = b"".join(built.buffers)
    everything = extent(built.runs[0].position, sum(map(len, batches)), sum(counts))
    return Objects({KEY: data}), SegmentCheck(KEY, 0, len(data), [everything])


def compacted(offsets: Sequence[int], count: int, *, may_have_gaps: bool) -> tuple[Objects, SegmentCheck]:
    """A compacted segment with batches of two records at these offsets."""
    buffers: list[Buffer] = []
    writer = CompactedWriter(SEGMENT, level=2, created_ms=1, sink=buffers.append)
    writer.begin_run(TOPIC, 0, FIRST_OFFSET)
    position = writer.position
    for offset in offsets:
        data = bytearray(batch(2))
        place_batch(data, 0, offset, 1)
        writer.add(bytes(data))
    length = writer.position - position
    writer.end_run()
    writer.finish()
    data = b"".join(buffers)
    everything = extent(position, length, count, may_have_gaps=may_have_gaps)
    return Objects({KEY: data}), SegmentCheck(KEY, 2, len(data), [everything])


def kinds(checked: Checked) -> list[str]:
    return [finding.kind for finding in checked.findings]


def test_an_undamaged_flushed_segment_has_no_findings() -> None:
    objects, check = flushed([batch(3), batch(2)], [3, 2])
    checked = check_segments([check], objects.stream)
    assert checked == Checked(1, 2, 5, check.live_bytes, [])


def test_an_undamaged_compacted_segment_has_no_findings() -> None:
    objects, check = compacted([100, 102], 4, may_have_gaps=False)
    assert check_segments([check], objects.stream) == Checked(1, 2, 4, check.live_bytes, [])


@pytest.mark.parametrize("may_have_gaps", [True, False])
def test_gaps_are_allowed_only_where_compaction_removes_records(may_have_gaps: bool) -> None:
    objects, check = compacted([101, 104], 6, may_have_gaps=may_have_gaps)
    checked = check_segments([check], objects.stream)
    assert kinds(checked) == ([] if may_have_gaps else ["batch-damaged"])


def test_every_changed_byte_of_a_batch_except_its_offset_and_epoch_is_found() -> None:
    objects, check = flushed([batch(3), batch(2)], [3, 2])
    undamaged = objects[KEY]
    start = check.extents[0].position
    for position in range(start, start + check.live_bytes):
        place = (position - start) if position - start < len(batch(3)) else position - start - len(batch(3))
        if place < 8 or 12 <= place < 16:  # the base offset and leader epoch of a flushed batch mean nothing
            continue
        objects[KEY] = undamaged[:position] + bytes([undamaged[position] ^ 0x40]) + undamaged[position + 1 :]
        assert kinds(check_segments([check], objects.stream)) == ["batch-damaged"], f"byte {place} of a batch"


def test_reading_continues_after_a_damaged_extent() -> None:
    first, second = batch(3), batch(2)
    objects, check = flushed([first, second], [3, 2])
    start = check.extents[0].position
    halves = [
        ExtentCheck("t", TOPIC, 0, 100, 102, start, len(first), 5, False),
        ExtentCheck("t", TOPIC, 0, 103, 104, start + len(first), len(second), 5, False),
    ]
    check = SegmentCheck(KEY, 0, check.size_bytes, halves)
    damaged = bytearray(objects[KEY])
    damaged[start + 70] ^= 1
    objects[KEY] = bytes(damaged)
    checked = check_segments([check], objects.stream)
    assert [(each.kind, each.subject) for each in checked.findings] == [("batch-damaged", f"{KEY} t-0 100..102")]
    assert checked.records == 2


@pytest.mark.parametrize("count", [4, 6])
def test_an_extent_with_other_offsets_than_its_batches_is_found(count: int) -> None:
    objects, check = flushed([batch(3), batch(2)], [3, 2])
    wrong = SegmentCheck(KEY, 0, check.size_bytes, [extent(check.extents[0].position, check.live_bytes, count)])
    assert kinds(check_segments([wrong], objects.stream)) == ["batch-damaged"]


def test_a_batch_with_a_later_timestamp_than_its_extent_is_found() -> None:
    objects, check = flushed([batch(3, timestamp=6)], [3])
    assert kinds(check_segments([check], objects.stream)) == ["batch-damaged"]


def test_a_batch_without_records_may_have_a_later_timestamp_than_its_extent() -> None:
    """The last record of a log was an expired tombstone: its batch stays without records, to hold its offsets."""
    buffers: list[Buffer] = []
    writer = CompactedWriter(SEGMENT, level=2, created_ms=1, sink=buffers.append)
    writer.begin_run(TOPIC, 0, FIRST_OFFSET)
    position = writer.position
    for offset, timestamp in ((FIRST_OFFSET, 5), (FIRST_OFFSET + 2, 9)):
        placed = bytearray(batch(2, timestamp))
        place_batch(placed, 0, offset, 1)
        writer.add(bytes(placed) if timestamp == 5 else empty_batch(read_batch_header(placed)))
    length = writer.position - position
    assert writer.end_run().max_timestamp == 5
    writer.finish()
    data = b"".join(buffers)
    check = SegmentCheck(KEY, 2, len(data), [extent(position, length, 4, may_have_gaps=True)])
    assert check_segments([check], Objects({KEY: data}).stream) == Checked(1, 2, 2, length, [])


def test_a_stored_marker_is_no_record_and_may_have_a_later_timestamp_than_its_extent() -> None:
    buffers: list[Buffer] = []
    writer = CompactedWriter(SEGMENT, level=1, created_ms=1, sink=buffers.append)
    writer.begin_run(TOPIC, 0, FIRST_OFFSET)
    position = writer.position
    placed = bytearray(batch(2, 5))
    place_batch(placed, 0, FIRST_OFFSET, 1)
    writer.add(bytes(placed))
    writer.add(control_batch(FIRST_OFFSET + 2, 7, 0, committed=True, coordinator_epoch=0, timestamp_ms=9_999))
    length = writer.position - position
    assert writer.end_run().max_timestamp == 5
    writer.finish()
    data = b"".join(buffers)
    check = SegmentCheck(KEY, 1, len(data), [extent(position, length, 3)])
    assert check_segments([check], Objects({KEY: data}).stream) == Checked(1, 2, 2, length, [])


def test_a_damaged_index_is_found_and_the_records_are_still_read() -> None:
    objects, check = flushed([batch(3)], [3])
    damaged = bytearray(objects[KEY])
    damaged[-130] ^= 1  # just before the footer
    objects[KEY] = bytes(damaged)
    checked = check_segments([check], objects.stream)
    assert kinds(checked) == ["index-damaged"]
    assert checked.records == 3


def test_an_index_without_the_extent_s_partition_is_found() -> None:
    objects, check = flushed([batch(3)], [3])
    other = SegmentCheck(
        KEY, 0, check.size_bytes, [ExtentCheck("t", TOPIC, 1, 100, 102, 104, check.live_bytes, 5, False)]
    )
    assert kinds(check_segments([other], objects.stream)) == ["index-damaged"]


def test_an_object_that_is_not_there_is_found_once_and_the_next_is_read() -> None:
    objects, check = flushed([batch(3)], [3])
    absent = SegmentCheck("c/segments/000/0-Y", 0, check.size_bytes, check.extents)
    checked = check_segments([absent, check], objects.stream)
    assert [(each.kind, each.subject) for each in checked.findings] == [("object-unreadable", absent.key)]
    assert checked.records == 3
