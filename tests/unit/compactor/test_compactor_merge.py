"""The merge task: every input record is in the output once, in order, at its offset. Damaged batches are not."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st

from penstock.kafkawire.records import CRC_START, MAGIC_POSITION, Record, batches, build_batch, decode_records
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.segment import HEADER_BYTES, read_compacted_index
from penstock_compactor.jobs.values import Failed, StorePlace
from penstock_compactor.merge.merge_task import merge
from penstock_compactor.merge.tasks import InputExtent, InputRun, InputSegment, Merged, MergeTask
from tests.unit.compactor.compactor_lake import Lake, Place, batch, topic

A0, A1, B0 = (topic(1), 0), (topic(1), 1), (topic(2), 0)


@pytest.fixture
def lake() -> Iterator[Lake]:
    with TemporaryDirectory() as folder:
        yield Lake(Path(folder))


def merged(lake: Lake, level: int, segments: list[InputSegment]) -> InputSegment:
    """Merge the segments, and replace them by the output."""
    task = lake.task(level, segments)
    result = merge(lake.place, task, SystemClock(), SystemEntropy())
    assert isinstance(result, Merged), result
    lake.replace(task, result)
    return InputSegment(result.segment_id, result.level)


def failure(lake: Lake, task: MergeTask) -> Failed:
    stored = lake.stored()
    result = merge(lake.place, task, SystemClock(), SystemEntropy())
    assert isinstance(result, Failed)
    assert lake.stored() == stored, "a failed task stored an output"
    return result


def values_of(lake: Lake, place: Place, segment: InputSegment) -> list[tuple[int, str]]:
    """Offsets and values of a partition in a compacted segment, as its batches state them."""
    data = lake.read(segment)
    index = read_compacted_index(data)
    found = []
    for run in index.runs:
        if (run.topic_id, run.partition) != place:
            continue
        for position, header in batches(data, run.position, run.position + run.length):
            for record in decode_records(memoryview(data)[position:]):
                found.append((header.base_offset + record.offset_delta, (record.value or b"").decode()))
    return found


Flushes = st.lists(
    st.lists(
        st.tuples(st.sampled_from([A0, A1, B0]), st.lists(st.text("xyz", max_size=9), min_size=1, max_size=4)),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25, deadline=None)
@given(Flushes, st.integers(0, 5))
def test_every_record_of_the_inputs_is_at_its_offset_in_the_output(
    flushes: list[list[tuple[Place, list[str]]]], rounds: int
) -> None:
    with TemporaryDirectory() as folder:
        lake = Lake(Path(folder))
        segments = [lake.flush([(place, batch(values)) for place, values in flush]) for flush in flushes]
        wanted: dict[Place, list[str]] = {}
        for flush in flushes:
            for place, values in flush:
                wanted.setdefault(place, []).extend(values)
        early, late = segments[:rounds], segments[rounds:]
        level = [merged(lake, 1, part) for part in (early, late) if part]
        output = merged(lake, 2, level)
        for place, values in wanted.items():
            assert values_of(lake, place, output) == list(enumerate(values))
        assert all(len(extents) == 1 for extents in lake.extents.values()), "a partition has several runs"


def test_bytes_under_the_crc_stay_as_the_producer_wrote_them(lake: Lake) -> None:
    produced = [batch(["a"] * 50, codec=codec) for codec in (0, 1, 2, 3, 4)]
    segment = lake.flush([(A0, data) for data in produced])
    output = lake.read(merged(lake, 1, [segment]))
    position = HEADER_BYTES
    for number, data in enumerate(produced):
        moved = output[position : position + len(data)]
        assert moved[MAGIC_POSITION:] == data[MAGIC_POSITION:]
        assert int.from_bytes(moved[:8], "big") == 50 * number
        position += len(data)


def test_a_gap_between_the_merged_extents_of_a_partition_stays(lake: Lake) -> None:
    first, middle, last = (lake.flush([(A0, batch([value]))]) for value in "abc")
    task = lake.task(1, [first, last])
    assert [len(run.extents) for run in task.runs] == [1, 1]
    output = merged(lake, 1, [first, last])
    assert values_of(lake, A0, output) == [(0, "a"), (2, "c")]
    assert [each.segment for each in lake.extents[A0]] == [output, middle, output]


def test_gaps_and_empty_batches_of_key_compaction_stay(lake: Lake) -> None:
    kept = [Record(offset_delta=delta, value=str(delta).encode()) for delta in (2, 5)]
    data = build_batch(kept, base_offset=10, last_offset_delta=9)
    segment = InputSegment(bytes([1]) * 16, 2)
    lake.overwrite(segment, data)
    run = InputRun(topic(1), 0, [InputExtent(0, 8, 19, 0, len(data))])
    result = merge(lake.place, MergeTask(2, [segment], [run]), SystemClock(), SystemEntropy())
    assert isinstance(result, Merged)
    output = InputSegment(result.segment_id, 2)
    assert values_of(lake, A0, output) == [(12, "2"), (15, "5")]
    (found,) = read_compacted_index(lake.read(output)).runs
    assert (found.first_offset, found.last_offset, found.record_count) == (8, 19, 2)


def test_large_batches_are_reassembled_from_many_small_fragments(lake: Lake) -> None:
    values = [str(number) * 300_000 for number in range(5)]
    segments = [lake.flush([(A0, batch([value])), (A1, batch([value]))]) for value in values]
    segments += [lake.flush([(B0, batch([value]))]) for value in values * 20]  # so many that blocks are the smallest
    output = merged(lake, 1, segments)
    assert values_of(lake, A0, output) == values_of(lake, A1, output) == list(enumerate(values))
    assert values_of(lake, B0, output) == list(enumerate(values * 20))


@pytest.mark.parametrize("place", [0, CRC_START, -1], ids=["length", "attributes", "record"])
def test_a_damaged_batch_is_reported_and_not_merged(lake: Lake, place: int) -> None:
    data = batch(["a", "b"])
    segment = lake.flush([(A0, data)])
    spot = HEADER_BYTES + (8 if not place else place % len(data))
    stored = bytearray(lake.read(segment))
    stored[spot] ^= 1
    lake.overwrite(segment, bytes(stored))
    result = failure(lake, lake.task(1, [segment]))
    assert result.kind == "Corrupt"
    assert "segment 01" in result.reason and "offsets 0 to 1" in result.reason


@pytest.mark.parametrize(
    ("base_offset", "last_offset", "cut", "reason"),
    [
        (0, 3, 0, "end with offset 1"),
        (0, 0, 0, "a batch of offsets 0 to 1, expected 0 or more"),
        (0, 1, 1, "bytes are no batch"),
    ],
)
def test_an_extent_that_does_not_fit_its_batches_is_corrupt(
    lake: Lake, base_offset: int, last_offset: int, cut: int, reason: str
) -> None:
    data = batch(["a", "b"])
    segment = lake.flush([(A0, data)])
    extent = InputExtent(0, base_offset, last_offset, HEADER_BYTES, len(data) - cut)
    result = failure(lake, MergeTask(1, [segment], [InputRun(*A0, [extent])]))
    assert result.kind == "Corrupt" and reason in result.reason


def test_a_missing_segment_is_a_failure_of_kind_not_found(lake: Lake) -> None:
    segment = lake.flush([(A0, batch(["a"]))])
    task = lake.task(1, [segment])
    lake.overwrite(InputSegment(bytes([1]) * 16, 1), b"other")
    gone = MergeTask(1, [InputSegment(bytes([1]) * 16, 2)], task.runs)
    assert failure(lake, gone).kind == "NotFound"


def test_the_address_of_a_store_is_never_shown() -> None:
    assert "secret" not in repr(StorePlace("s3://bucket?secret_key=secret", "default"))
