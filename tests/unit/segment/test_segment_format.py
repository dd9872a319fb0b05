"""Flushed segments read back as they were built, in the documented format, and any damage is `Corrupt`."""

import struct
from collections.abc import Callable
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.batches import BatchMeta
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, Invalid
from penstock.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    TAIL_BYTES,
    BuiltSegment,
    build_segment,
    check_header,
    read_footer,
    read_index,
    read_index_of,
)
from penstock.segment.layout import BATCH_BYTES, RUN_ROW, Footer, encode_footer
from penstock.segment.writer import PlacedBatch, run_length

GOLDEN = Path(__file__).parent / "golden_segment.hex"
TOPIC_A, TOPIC_B = bytes(range(16)), bytes(range(16, 32))
SEGMENT_ID = bytes(range(100, 116))


def meta_of(data: Buffer, **fields: int) -> BatchMeta:
    known = {"record_count": 3, "max_timestamp": 1_700_000_000_000, "producer_id": -1, "producer_epoch": -1}
    return BatchMeta(length=len(data), **known | {"base_sequence": -1, "attributes": 0} | fields)


def built(batches: list[PlacedBatch], writer: str = "flusher-1", level: int = 0) -> BuiltSegment:
    return build_segment(SEGMENT_ID, writer=writer, created_ms=1_700_000_000_123, level=level, batches=batches)


def bytes_of(segment: BuiltSegment) -> bytes:
    return b"".join(segment.buffers)


def golden_batches() -> list[PlacedBatch]:
    return [
        (TOPIC_B, 0, meta_of(b"first of B-0"), b"first of B-0"),
        (TOPIC_A, 7, meta_of(b"A-7", producer_id=2**40, producer_epoch=5, base_sequence=2**31 - 1), b"A-7"),
        (TOPIC_B, 0, meta_of(b"second of B-0", record_count=2**31 - 1, attributes=0x12), b"second of B-0"),
        (TOPIC_A, 2, meta_of(b"A-2", max_timestamp=-1), b"A-2"),
    ]


def int_of(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def placed_batches(draw: st.DrawFn) -> PlacedBatch:
    data = draw(st.binary(max_size=100))
    meta = BatchMeta(
        length=len(data),
        record_count=draw(int_of(32)),
        max_timestamp=draw(int_of(64)),
        producer_id=draw(int_of(64)),
        producer_epoch=draw(int_of(16)),
        base_sequence=draw(int_of(32)),
        attributes=draw(int_of(16)),
    )
    return draw(st.sampled_from([TOPIC_A, TOPIC_B, bytes(16)])), draw(st.integers(0, 3)), meta, memoryview(data)


@given(
    batches=st.lists(placed_batches(), max_size=30),
    level=st.integers(0, 9),
    writer=st.from_regex(r"[A-Za-z0-9_-]{0,64}", fullmatch=True),
    created_ms=st.integers(0, 2**48 - 1),
)
def test_a_segment_reads_back_as_built(batches: list[PlacedBatch], level: int, writer: str, created_ms: int) -> None:
    segment = build_segment(SEGMENT_ID, writer=writer, created_ms=created_ms, level=level, batches=batches)
    data = bytes_of(segment)
    index = read_index(data)
    assert index.runs == segment.runs
    assert index.size_bytes == segment.size_bytes == len(data)
    assert (index.segment_id, index.level, index.writer, index.created_ms) == (SEGMENT_ID, level, writer, created_ms)
    check_header(data, index)


@given(st.lists(placed_batches(), max_size=30))
def test_batches_are_sorted_by_partition_in_their_order_of_arrival(batches: list[PlacedBatch]) -> None:
    segment = built(batches)
    data = bytes_of(segment)
    assert segment.order == sorted(range(len(batches)), key=lambda index: (*batches[index][:2], index))
    position = HEADER_BYTES
    for index in segment.order:
        _, _, meta, original = batches[index]
        assert data[position : position + meta.length] == original
        position += meta.length
    assert [(run.topic_id, run.partition) for run in segment.runs] == sorted({batch[:2] for batch in batches})
    assert sum(run_length(run) for run in segment.runs) == position - HEADER_BYTES


def test_building_copies_no_record_bytes() -> None:
    batches = golden_batches()
    segment = built(batches)
    assert [id(buffer) for buffer in segment.buffers[1:-2]] == [id(batches[index][3]) for index in segment.order]


def test_a_segment_is_byte_for_byte_the_documented_format() -> None:
    """The golden file may change only with the version of the format."""
    assert bytes_of(built(golden_batches())) == bytes.fromhex(GOLDEN.read_text())


def test_a_segment_written_by_an_earlier_release_reads_back() -> None:
    index = read_index(bytes.fromhex(GOLDEN.read_text()))
    assert index.runs == built(golden_batches()).runs
    assert [(run.topic_id, run.partition, run.position) for run in index.runs] == [
        (TOPIC_A, 2, 104),
        (TOPIC_A, 7, 107),
        (TOPIC_B, 0, 110),
    ]


@pytest.mark.parametrize("writer", ["x" * 65, "two words", "dot.ted", "ä"])
def test_a_writer_that_is_not_a_token_is_invalid(writer: str) -> None:
    with pytest.raises(Invalid):
        built([], writer=writer)


def test_a_segment_cut_short_at_any_byte_is_corrupt() -> None:
    data = bytes_of(built(golden_batches()))
    for length in range(len(data)):
        with pytest.raises(Corrupt):
            read_index(data[:length])


def test_any_last_part_with_the_complete_index_is_enough() -> None:
    data = bytes_of(built(golden_batches()))
    whole = read_index(data)
    enough = 3 * RUN_ROW.size + 4 * BATCH_BYTES + FOOTER_BYTES
    for length in range(len(data) + 1):
        if length >= enough:
            assert read_index(data[len(data) - length :]) == whole
        else:
            with pytest.raises(Corrupt):
                read_index(data[len(data) - length :])


def test_bytes_before_a_segment_are_noticed() -> None:
    with pytest.raises(Corrupt):
        read_index(b"x" + bytes_of(built(golden_batches())))


def test_a_flipped_bit_outside_of_the_batches_is_corrupt() -> None:
    """Inside a batch its own CRC detects the damage."""
    data = bytes_of(built(golden_batches()))
    batches = range(HEADER_BYTES, read_footer(data).index_position)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            if position not in batches:
                with pytest.raises(Corrupt):
                    check_header(damaged, read_index(damaged))
            else:
                check_header(damaged, read_index(damaged))


@given(st.binary(max_size=1000))
def test_arbitrary_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        read_index(data)
    with pytest.raises(Corrupt):
        check_header(data, read_index(bytes_of(built([]))))


def with_index(data: bytes, change: Callable[[bytearray], None], **footer_changes: int) -> bytes:
    """The segment with a changed index and correct checksums."""
    footer = read_footer(data)
    index = bytearray(data[footer.index_position : -FOOTER_BYTES])
    change(index)
    fields = {
        "index_position": footer.index_position,
        "index_length": len(index),
        "run_count": footer.run_count,
        "batch_count": footer.batch_count,
    } | footer_changes
    rewritten = Footer(index_crc=crc32c.crc32c(index), identity=footer.identity, **fields)
    return data[: footer.index_position] + index + encode_footer(rewritten)


@pytest.mark.parametrize(
    ("position", "kind", "value"),
    [
        pytest.param(16, ">i", 8, id="partitions out of order"),
        pytest.param(20, ">Q", 105, id="a gap before the first run"),
        pytest.param(28, ">Q", 4, id="a run longer than its batches"),
        pytest.param(36, ">I", 2, id="a run with a batch of the next"),
        pytest.param(36, ">I", 0, id="a run without batches"),
        pytest.param(2 * RUN_ROW.size + 36, ">I", 1, id="a batch of no run"),
        pytest.param(3 * RUN_ROW.size + 12, ">I", 14, id="a last batch that reaches into the index"),
    ],
)
def test_an_index_that_contradicts_itself_is_corrupt(position: int, kind: str, value: int) -> None:
    def change(index: bytearray) -> None:
        struct.pack_into(kind, index, position, value)

    data = bytes_of(built(golden_batches()))
    assert read_index(with_index(data, lambda index: None)) == read_index(data)
    with pytest.raises(Corrupt):
        read_index(with_index(data, change))


@pytest.mark.parametrize(
    "changes", [{"run_count": 2}, {"run_count": 2**32 - 1}, {"batch_count": 3}, {"index_position": 103}]
)
def test_a_footer_that_contradicts_its_index_is_corrupt(changes: dict[str, int]) -> None:
    with pytest.raises(Corrupt):
        read_index(with_index(bytes_of(built(golden_batches())), lambda index: None, **changes))


@given(st.data())
def test_a_forged_index_is_corrupt_or_read(data: st.DataObject) -> None:
    whole = bytes_of(built(golden_batches()))

    def change(index: bytearray) -> None:
        for position, byte in data.draw(st.lists(st.tuples(st.integers(0, len(index) - 1), st.integers(0, 255)))):
            index[position] = byte

    try:
        read_index(with_index(whole, change))
    except Corrupt as error:
        assert "segment" in str(error)


def test_another_version_or_flag_is_rejected_by_name() -> None:
    data = bytearray(bytes_of(built([])))
    footer = memoryview(data)[-FOOTER_BYTES:]

    def signed(position: int, byte: int) -> bytes:
        changed = bytearray(data)
        changed[len(data) - FOOTER_BYTES + position] = byte
        struct.pack_into(">I", changed, len(changed) - 12, crc32c.crc32c(bytes(changed[-FOOTER_BYTES:-12])))
        return bytes(changed)

    assert footer[115] == 1
    with pytest.raises(Corrupt, match="version 3, this release knows 1, 2"):
        read_index(signed(115, 3))
    with pytest.raises(Corrupt, match="level 0 in version 2"):
        read_index(signed(115, 2))
    with pytest.raises(Corrupt, match="level 10"):
        read_index(signed(24, 10))
    with pytest.raises(Corrupt, match="flags 0x01"):
        read_index(signed(25, 1))
    with pytest.raises(Corrupt, match="invalid writer"):
        read_index(signed(60, ord("x")))


def test_a_header_of_another_segment_is_corrupt() -> None:
    index = read_index(bytes_of(built([])))
    with pytest.raises(Corrupt, match="header"):
        check_header(bytes_of(built([], writer="flusher-2")), index)


class Reads:
    """A stored object that counts its reads."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    async def get_range(self, position: int, length: int) -> bytes:
        self.ranges.append((position, length))
        return self.data[position : position + length]


@pytest.mark.parametrize(("batches", "reads"), [(0, 1), (100, 1), (2040, 1), (2050, 2), (8000, 2)])
async def test_the_index_of_a_stored_segment_takes_one_read_seldom_two(batches: int, reads: int) -> None:
    segment = built([(TOPIC_A, 0, meta_of(b"bytes"), b"bytes")] * batches)
    stored = Reads(bytes_of(segment))
    index = await read_index_of(stored.get_range, segment.size_bytes)
    assert index.runs == segment.runs
    assert len(stored.ranges) == reads
    assert all(position >= 0 and length <= max(TAIL_BYTES, segment.size_bytes) for position, length in stored.ranges)


async def test_a_stored_segment_of_the_wrong_size_is_corrupt() -> None:
    data = bytes_of(built(golden_batches()))
    for wrong in (b"", data[:100], data[1:], data + b"x", b"x" + data):
        with pytest.raises(Corrupt):
            await read_index_of(Reads(wrong).get_range, len(wrong))
