"""Compacted segments read back as they were written, in the documented format, and any damage is `Corrupt`."""

import itertools
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt
from penstock.kafkawire.control import control_batch
from penstock.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    BatchFacts,
    CompactedIndex,
    CompactedRun,
    CompactedWriter,
    Place,
    batch_facts,
    build_segment,
    check_header,
    read_any_index_of,
    read_compacted_index,
    read_compacted_index_of,
    read_footer,
    read_index,
)
from penstock.segment.compacted import NO_RECORDS_YET
from penstock.segment.compacted_writer import PLACE_BYTES
from penstock.segment.layout import COMPACTED_ROW, Footer, encode_footer

GOLDEN = Path(__file__).parent / "golden_compacted.hex"
TOPIC_A, TOPIC_B = bytes(range(16)), bytes(range(16, 32))
SEGMENT_ID = bytes(range(100, 116))
CREATED_MS = 1_700_000_000_123

# A description of a batch: base offset, last offset, max timestamp, records, bytes.
Described = tuple[int, int, int, int, int]
DescribedRun = tuple[bytes, int, int | None, list[Described]]


def batch_of(base: int, last: int, timestamp: int, count: int, size: int = 61) -> bytes:
    """A batch with valid values in the header fields that segments read."""
    header = struct.pack(">qiibIhiqqqhii", base, size - 12, 0, 2, 0, 0, last - base, 0, timestamp, -1, -1, -1, count)
    return header + bytes(size - len(header))


def written(runs: list[DescribedRun], level: int = 2) -> tuple[bytes, CompactedIndex]:
    out: list[Buffer] = []
    writer = CompactedWriter(SEGMENT_ID, level=level, created_ms=CREATED_MS, sink=out.append, writer="compactor-1")
    for topic_id, partition, first_offset, batches in runs:
        writer.begin_run(topic_id, partition, first_offset)
        for described in batches:
            writer.add(batch_of(*described))
        writer.end_run()
    index = writer.finish()
    data = b"".join(out)
    assert len(data) == writer.position == index.size_bytes
    return data, index


def golden_runs() -> list[DescribedRun]:
    big = PLACE_BYTES // 2
    return [
        (TOPIC_A, 2, 0, [(5, 9, 1_700_000_000_000, 3, 70)]),
        (TOPIC_A, 7, None, [(10, 19, 50, 10, big), (20, 20, 40, 1, big), (25, 30, 60, 2, 80), (31, 39, 99, 0, 61)]),
        (TOPIC_A, 7, None, [(50, 50, 7, 1, 61)]),
        (TOPIC_B, 0, 100, [(100, 2**31, 12345, 0, 61)]),
    ]


@st.composite
def described_runs(draw: st.DrawFn) -> list[DescribedRun]:
    runs: list[DescribedRun] = []
    for topic_id in (TOPIC_A, TOPIC_B):
        for partition in draw(st.lists(st.integers(0, 5), unique=True).map(sorted)):
            offset = draw(st.integers(0, 2**40))
            first_offset = draw(st.sampled_from([None, offset]))
            batches: list[Described] = []
            for _ in range(draw(st.integers(1, 8))):
                base = offset + draw(st.integers(0, 3))
                last = base + draw(st.integers(0, 5))
                count = draw(st.integers(0, last - base + 1))
                size = draw(st.sampled_from([61, 100, PLACE_BYTES // 3, PLACE_BYTES]))
                batches.append((base, last, draw(st.integers(-5, 100)), count, size))
                offset = last + 1
            runs.append((topic_id, partition, first_offset, batches))
    return runs


@given(described_runs(), st.integers(1, 9))
def test_a_compacted_segment_reads_back_as_it_was(runs: list[DescribedRun], level: int) -> None:
    data, index = written(runs, level)
    assert read_compacted_index(data) == index
    assert (index.segment_id, index.level, index.writer) == (SEGMENT_ID, level, "compactor-1")
    check_header(data, index)
    for run, (topic_id, partition, first_offset, batches) in zip(index.runs, runs, strict=True):
        assert (run.topic_id, run.partition) == (topic_id, partition)
        assert run.first_offset == (batches[0][0] if first_offset is None else first_offset)
        assert run.last_offset == batches[-1][1]
        assert (run.batch_count, run.record_count) == (len(batches), sum(batch[3] for batch in batches))
        assert run.max_timestamp == max((batch[2] for batch in batches if batch[3]), default=-1)
        whole = data[run.position : run.position + run.length]
        assert [each.base_offset for each in batch_facts(whole)] == [batch[0] for batch in batches]


@given(described_runs(), st.integers(0, 2**41))
def test_an_offset_index_finds_the_last_place_that_misses_nothing(runs: list[DescribedRun], anywhere: int) -> None:
    data, index = written(runs)
    for number, run in enumerate(index.runs):
        assert index.run_at(run.position) == number
        offset_index = index.offset_index(number)
        for offset in {anywhere, *range(run.first_offset, min(run.last_offset, run.first_offset + 40) + 1)}:
            place = offset_index.find(offset)
            assert run.position <= place.position < run.position + run.length
            before = list(batch_facts(data[run.position : place.position]))
            assert not [each for each in before if each.last_offset >= offset]
            following = batch_facts(data[place.position : run.position + run.length])
            assert next(following).base_offset == place.offset
            skipped = [each for each in following if each.last_offset < offset]
            assert sum(each.length for each in skipped) <= 2 * PLACE_BYTES


@given(described_runs(), st.integers(-10, 110))
def test_an_offset_index_finds_the_first_batch_from_a_time_on(runs: list[DescribedRun], timestamp: int) -> None:
    data, index = written(runs)
    for number, run in enumerate(index.runs):
        batches = list(batch_facts(data[run.position : run.position + run.length]))
        found = [each for each in batches if each.record_count and each.max_timestamp >= timestamp]
        place = index.offset_index(number).find_timestamp(timestamp)
        if not found:
            assert place is None
            continue
        assert place is not None and place.offset <= found[0].base_offset
        on_the_way = data[place.position : run.position + run.length]
        skipped = [each.length for each in batch_facts(on_the_way) if each.base_offset < found[0].base_offset]
        assert sum(skipped) <= 2 * PLACE_BYTES


def test_places_are_a_quarter_of_a_mebibyte_apart() -> None:
    size = 10_000
    batches: list[Described] = [(offset, offset, offset, 1, size) for offset in range(1000)]
    _, index = written([(TOPIC_A, 0, None, batches)])
    places = index.offset_index(0).places()
    gaps = [later.position - earlier.position for earlier, later in itertools.pairwise(places)]
    assert places[0] == Place(0, HEADER_BYTES)
    assert all(PLACE_BYTES <= gap < PLACE_BYTES + size for gap in gaps)


def test_batches_with_known_facts_make_the_same_segment() -> None:
    expected, _ = written(golden_runs())
    out: list[Buffer] = []
    writer = CompactedWriter(SEGMENT_ID, level=2, created_ms=CREATED_MS, sink=out.append, writer="compactor-1")
    for topic_id, partition, first_offset, batches in golden_runs():
        writer.begin_run(topic_id, partition, first_offset)
        facts = [BatchFacts(size, base, last, timestamp, count) for base, last, timestamp, count, size in batches]
        chunk = b"".join(batch_of(*described) for described in batches)
        writer.add(memoryview(chunk), facts)
        assert isinstance(out[-1], memoryview) and out[-1].obj is chunk, "batches are not copied"
        writer.end_run()
    writer.finish()
    assert b"".join(out) == expected


def test_a_compacted_segment_is_byte_for_byte_the_documented_format() -> None:
    """The golden file may change only with the version of the format."""
    data, index = written(golden_runs())
    tail = data[read_footer(data).index_position :]
    assert data[:HEADER_BYTES] + tail == bytes.fromhex(GOLDEN.read_text())
    assert index.runs[1] == CompactedRun(TOPIC_A, 7, 174, PLACE_BYTES + 141, 10, 39, 60, 4, 13)
    assert index.offset_index(1).places() == [Place(10, 174), Place(25, 174 + PLACE_BYTES)]
    assert list(index.timestamps) == [1_700_000_000_000, 50, 60, 7, NO_RECORDS_YET]


def test_an_index_written_by_an_earlier_release_reads_back() -> None:
    _, index = written(golden_runs())
    golden = bytes.fromhex(GOLDEN.read_text())
    assert read_compacted_index(golden[HEADER_BYTES:]) == index
    check_header(golden, index)


def test_a_tail_cut_short_at_any_byte_is_corrupt() -> None:
    data, index = written(golden_runs())
    tail = data[read_footer(data).index_position :]
    assert read_compacted_index(tail) == index
    for length in range(len(tail)):
        with pytest.raises(Corrupt):
            read_compacted_index(tail[:length])
        with pytest.raises(Corrupt):
            read_compacted_index(tail[len(tail) - length :])


def test_a_flipped_bit_in_header_index_or_footer_is_corrupt() -> None:
    data, index = written(golden_runs())
    tail = data[read_footer(data).index_position :]
    for position in range(len(tail)):
        damaged = bytearray(tail)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(Corrupt):
            read_compacted_index(damaged)
    for position in range(HEADER_BYTES):
        damaged = bytearray(data[:HEADER_BYTES])
        damaged[position] ^= 1 << position % 8
        with pytest.raises(Corrupt):
            check_header(damaged, index)


@given(st.binary(max_size=1000))
def test_arbitrary_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        read_compacted_index(data)


def with_index(change: Callable[[bytearray], None], **footer_changes: int) -> bytes:
    """The golden segment's tail with a changed index and correct checksums."""
    data, _ = written(golden_runs())
    footer = read_footer(data)
    index = bytearray(data[footer.index_position : -FOOTER_BYTES])
    change(index)
    fields = {
        "index_position": footer.index_position,
        "index_length": len(index),
        "run_count": footer.run_count,
        "batch_count": footer.batch_count,
    } | footer_changes
    return bytes(index) + encode_footer(Footer(index_crc=crc32c.crc32c(index), identity=footer.identity, **fields))


ROW, COLUMN = COMPACTED_ROW.size, 5 * 8
PLACES = 4 * ROW


@pytest.mark.parametrize(
    ("position", "kind", "value"),
    [
        pytest.param(16, ">i", 8, id="partitions out of order"),
        pytest.param(16, ">i", -1, id="a negative partition"),
        pytest.param(20, ">Q", 105, id="a gap before the first run"),
        pytest.param(28, ">Q", 71, id="a run that overlaps the next"),
        pytest.param(36, ">q", -1, id="a negative offset"),
        pytest.param(36, ">q", 10, id="a run that ends before it begins"),
        pytest.param(52, ">q", 1, id="another largest timestamp than the places'"),
        pytest.param(60, ">I", 0, id="a run without batches"),
        pytest.param(64, ">Q", 11, id="more records than offsets"),
        pytest.param(72, ">I", 0, id="a run without places"),
        pytest.param(72, ">I", 2, id="a run with more places than batches"),
        pytest.param(2 * ROW + 36, ">q", 39, id="runs of one partition that overlap"),
        pytest.param(PLACES, ">q", -1, id="a place before the first offset"),
        pytest.param(PLACES + 16, ">q", 10, id="places whose offsets do not ascend"),
        pytest.param(PLACES + 16, ">q", 40, id="a place after the last offset"),
        pytest.param(PLACES + COLUMN + 8, ">q", 61, id="timestamps that descend"),
        pytest.param(PLACES + 2 * COLUMN, ">q", 105, id="a first place that is not the run's start"),
        pytest.param(PLACES + 2 * COLUMN + 16, ">q", 174, id="places whose positions do not ascend"),
        pytest.param(PLACES + 2 * COLUMN + 16, ">q", 174 + PLACE_BYTES + 141, id="a place after its run"),
    ],
)
def test_an_index_that_contradicts_itself_is_corrupt(position: int, kind: str, value: int) -> None:
    def change(index: bytearray) -> None:
        struct.pack_into(kind, index, position, value)

    read_compacted_index(with_index(lambda index: None))
    with pytest.raises(Corrupt):
        read_compacted_index(with_index(change))


@pytest.mark.parametrize(
    "changes", [{"run_count": 3}, {"run_count": 2**32 - 1}, {"batch_count": 4}, {"index_position": 103}]
)
def test_a_footer_that_contradicts_its_index_is_corrupt(changes: dict[str, int]) -> None:
    with pytest.raises(Corrupt):
        read_compacted_index(with_index(lambda index: None, **changes))


@given(st.data())
def test_a_forged_index_is_corrupt_or_read(data: st.DataObject) -> None:
    def change(index: bytearray) -> None:
        for position, byte in data.draw(st.lists(st.tuples(st.integers(0, len(index) - 1), st.integers(0, 255)))):
            index[position] = byte

    try:
        index = read_compacted_index(with_index(change))
    except Corrupt as error:
        assert "segment" in str(error)
    else:
        for number, run in enumerate(index.runs):
            assert run.position <= index.offset_index(number).find(2**62).position < run.position + run.length


def test_each_version_is_read_by_its_own_reader() -> None:
    compacted, _ = written(golden_runs())
    flushed = b"".join(build_segment(SEGMENT_ID, writer="", created_ms=CREATED_MS, level=0, batches=[]).buffers)
    with pytest.raises(Corrupt, match="version 2"):
        read_index(compacted)
    with pytest.raises(Corrupt, match="version 1"):
        read_compacted_index(flushed)


async def test_the_index_of_any_stored_segment_is_read() -> None:
    compacted, index = written(golden_runs())
    flushed = b"".join(build_segment(SEGMENT_ID, writer="", created_ms=CREATED_MS, level=0, batches=[]).buffers)
    for data, expected in ((compacted, index), (flushed, read_index(flushed))):

        async def get_range(position: int, length: int, data: bytes = data) -> bytes:
            return data[position : position + length]

        assert await read_any_index_of(get_range, len(data)) == expected


@pytest.mark.parametrize(("runs", "reads"), [(1, 1), (500, 1), (1000, 2)])
async def test_the_index_of_a_stored_segment_takes_one_read_seldom_two(runs: int, reads: int) -> None:
    data, index = written([(TOPIC_A, partition, None, [(0, 0, 0, 1, 61)]) for partition in range(runs)])
    ranges: list[tuple[int, int]] = []

    async def get_range(position: int, length: int) -> memoryview:
        ranges.append((position, length))
        return memoryview(data)[position : position + length]

    assert await read_compacted_index_of(get_range, len(data)) == index
    assert len(ranges) == reads


def test_batches_whose_offsets_do_not_ascend_are_corrupt() -> None:
    for batches in ([(5, 9, 0, 1, 61), (9, 10, 0, 1, 61)], [(-1, 3, 0, 1, 61)]):
        with pytest.raises(Corrupt, match="offsets"):
            written([(TOPIC_A, 0, None, batches)])
    with pytest.raises(Corrupt, match="follows offset 5"):
        written([(TOPIC_A, 0, 6, [(5, 9, 0, 1, 61)])])


@pytest.mark.parametrize(
    "data",
    [
        batch_of(0, 0, 0, 1)[:60],
        batch_of(0, 0, 0, 1) + b"x",
        batch_of(0, 0, 0, 1, 100)[:99],
        struct.pack(">qi", 0, 20) + bytes(60),
        batch_of(0, 0, 0, 2),
        batch_of(0, 0, 0, -1),
    ],
)
def test_bytes_that_are_not_complete_batches_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        list(batch_facts(data))


def test_the_memory_of_an_index_grows_with_its_size() -> None:
    _, small = written(golden_runs()[:1])
    _, large = written(golden_runs())
    assert 0 < small.memory_bytes < large.memory_bytes
    assert isinstance(large.offsets, array)


def test_control_batches_add_no_records_and_no_timestamp_to_a_run() -> None:
    """A search by time finds only records, but the offsets of markers belong to the run."""
    marker = control_batch(5, 7, 0, committed=True, coordinator_epoch=0, timestamp_ms=9_000)
    (facts,) = batch_facts(marker)
    assert (facts.base_offset, facts.last_offset, facts.record_count) == (5, 5, 0)
    out: list[Buffer] = []
    writer = CompactedWriter(SEGMENT_ID, level=1, created_ms=CREATED_MS, sink=out.append)
    writer.begin_run(TOPIC_A, 0)
    writer.add(batch_of(3, 4, 1_000, 2) + marker)
    writer.end_run()
    writer.begin_run(TOPIC_B, 0)
    writer.add(marker)
    writer.end_run()
    writer.finish()
    with_records, without = read_compacted_index(b"".join(out)).runs
    assert (with_records.last_offset, with_records.max_timestamp, with_records.record_count) == (5, 1_000, 2)
    assert (without.last_offset, without.max_timestamp, without.record_count) == (5, -1, 0)
