"""Readers of compacted segments get every record once, from any offset, by one read, and while extents are replaced."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, PenstockError, Unavailable
from penstock.contracts.messages import SegmentRead
from penstock.kafkawire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import batches
from penstock.objectstore import ObjectStore
from penstock.objectstore.memory import MemoryStore
from penstock.segment import BatchFacts, CompactedWriter
from penstock_gateway.fetch.limits import ReadLimits
from penstock_gateway.fetch.offset_index import OffsetIndexes
from penstock_gateway.fetch.timestamp_search import TimeSearch, search
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.tail.tail_index import TailLimits
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.loads.compaction import Batch, empty_batch, extents_of
from tests.unit.gateway.gateway_compaction import all_batches, compact, key_of, remove_segment
from tests.unit.gateway.gateway_read_world import START_MS, World, asking, batch_of, partitions_of, values_of

SCAN_BYTES, PLACE_BYTES = 400, 150  # a few batches are a long run
LIMITS = GatewayLimits(read=ReadLimits(scan_bytes=SCAN_BYTES, indexed_bytes_min=SCAN_BYTES))
INDEXES_BYTES_MAX = 2**30
EXTENT_AGE_S_MAX = TailLimits().extent_age_s_max


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


@contextlib.asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[World]:
    made = World(**options)
    yield made
    assert made.log_reader.held_bytes == 0, "a fetch kept bytes of the budget"
    await made.close()


async def fetched(world: World, offset: int, partition_max_bytes: int = 1_048_576) -> bytes:
    answer = partitions_of(await world.fetch(asking({0: offset}, partition_max_bytes=partition_max_bytes)))[0]
    assert answer.error_code == ErrorCode.NONE
    return bytes(cast(Buffer, answer.records))


def expected(model: Sequence[Batch], offset: int, bytes_max: int) -> bytes:
    """A plain filter: whole batches from the one that ends at or after the offset, the first one of any size."""
    taken = b""
    for _, last, data in model:
        if last >= offset:
            if taken and len(taken) + len(data) > bytes_max:
                break
            taken += data
    return taken


# Records.


@given(
    sizes=st.lists(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 120)), max_size=12), min_size=1, max_size=3),
    outcomes=st.lists(st.sampled_from(["kept", "kept", "gone", "emptied"]), min_size=36, max_size=36),
    budgets=st.lists(st.integers(1, 3_000), min_size=1, max_size=5),
    levels=st.sampled_from([[1], [2], [1, 2]]),
)
@settings(max_examples=60, deadline=None)
async def test_a_fetch_from_any_offset_gets_the_records_that_compaction_left(
    sizes: list[list[tuple[int, int]]], outcomes: list[str], budgets: list[int], levels: list[int]
) -> None:
    world = World(limits=LIMITS)
    topic_id = await world.open()
    for segment in sizes:
        produced = [batch_of(*([b"v" * size] * count)) for count, size in segment]
        if produced:
            await world.produce(topic_id, {0: produced, 1: produced[:1]})
    if not extents_of(world.sequencer.state, topic_id, 0):
        return
    outcome_of = dict(zip((base for base, _, _ in await all_batches(world, topic_id)), outcomes, strict=False))

    def change(batch: Batch) -> bytes | None:
        outcome = outcome_of.get(batch[0], "kept")
        return batch[2] if outcome == "kept" else None if outcome == "gone" else empty_batch(batch[0], batch[1])

    for level in levels:
        await compact(world, topic_id, [0, 1], level=level, change=change, place_bytes=PLACE_BYTES)
    await world.produce(topic_id, {0: [batch_of(b"later")]})
    model = await all_batches(world, topic_id)
    end = model[-1][1] + 1
    for offset in range(end):
        for budget in budgets:
            answer = expected(model, offset, budget)
            got = await fetched(world, offset, budget)
            assert got and answer.startswith(got), (offset, budget)
        got = await fetched(world, offset)
        assert got == expected(model, offset, 1_048_576), offset
    assert await read_on(world, end, budgets[0]) == b"".join(data for _, _, data in model)
    await world.close()


async def read_on(world: World, end: int, partition_max_bytes: int = 1_048_576) -> bytes:
    """All that a consumer gets from offset 0 to the end."""
    offset, got = 0, b""
    while offset < end:
        records = await fetched(world, offset, partition_max_bytes)
        assert records, "a consumer that gets nothing is stuck"
        got += records
        *_, (_, header) = batches(records)
        offset = header.base_offset + header.last_offset_delta + 1
    return got


async def test_a_run_whose_records_are_all_gone_sends_readers_to_the_next(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a", b"b"), batch_of(b"c")]})
    await compact(world, topic_id, [0], change=lambda batch: None)
    await world.produce(topic_id, {0: [batch_of(b"d")]})
    for offset in range(3):
        records = await fetched(world, offset)
        assert [header.base_offset for _, header in batches(records)] == [2, 3]
        assert values_of(partitions_of(await world.fetch(asking({0: offset})))[0]) == {3: b"d"}


async def test_an_extent_that_does_not_end_with_its_last_batch_is_damaged(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a"), batch_of(b"b")]})
    ref = await compact(world, topic_id, [0])
    (extent,) = extents_of(world.sequencer.state, topic_id, 0)
    key = key_of(ref)
    data = bytearray(await world.store.get(key))
    second = extent.position + extent.length // 2
    struct.pack_into(">q", data, second, 0)  # so the second batch has the offset of the first
    await world.store.delete([key])
    await world.store.put(key, [data])
    answer = partitions_of(await world.fetch(asking({0: 1})))[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


# Costs.

BATCHES, BATCH_BYTES, RECORDS_EACH = 4_096, 256 * 1024, 10


class HugeRun:
    """A store with one compacted segment, whose only run is 1 GiB and generated during reads; it records the reads."""

    has_local_reads = False

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []
        self._tail: list[bytes] = []
        self._filler = bytes(BATCH_BYTES)
        writer = CompactedWriter(bytes(16), level=2, created_ms=START_MS, sink=self._take)
        writer.begin_run(bytes(16), 0)
        for number in range(BATCHES):
            base = number * RECORDS_EACH
            facts = BatchFacts(BATCH_BYTES, base, base + RECORDS_EACH - 1, START_MS + number, RECORDS_EACH)
            writer.add(self._filler, [facts])
        run = writer.end_run()
        self.index = writer.finish()
        segment = SegmentRef(bytes(16), 2, self.index.size_bytes, "", "")
        self.extent = Extent(run.first_offset, run.last_offset, segment, run.position, run.length, run.max_timestamp)

    def _take(self, data: Buffer) -> None:
        if data is not self._filler:
            self._tail.append(bytes(data))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        self.reads.append((position, length))
        end = position + length
        out = b""
        while position < end:
            number, inside = divmod(position - self.extent.position, BATCH_BYTES)
            part = self._batch(number)[inside:] if number < BATCHES else b"".join(self._tail[1:])[position - self.end :]
            out += part[: end - position]
            position += min(len(part), end - position)
        return out

    @property
    def end(self) -> int:
        return self.extent.position + self.extent.length

    def _batch(self, number: int) -> bytes:
        last_delta = RECORDS_EACH - 1
        base, timestamp = number * RECORDS_EACH, START_MS + number
        fields = (base, BATCH_BYTES - 12, 0, 2, 0, 0, last_delta, 0, timestamp, -1, -1, -1, RECORDS_EACH)
        header = struct.pack(">qiibIhiqqqhii", *fields)
        return header + bytes(BATCH_BYTES - len(header))


def huge_world() -> tuple[World, HugeRun]:
    huge = HugeRun()
    return World(store=cast(ObjectStore, huge)), huge


@pytest.mark.parametrize("number", [1, 17, BATCHES // 2, BATCHES - 1])
async def test_a_place_in_a_run_of_a_gibibyte_takes_one_read_once_its_index_is_kept(number: int) -> None:
    world, huge = huge_world()
    for offset in (number * RECORDS_EACH, number * RECORDS_EACH + 5):
        cursor = await world.log_reader.indexes.place(huge.extent, offset)
        assert (cursor.base_offset, cursor.position) == (
            number * RECORDS_EACH,
            huge.extent.position + number * BATCH_BYTES,
        )
    assert len(huge.reads) == 2, "the end of the segment, and the whole index"
    assert sum(length for _, length in huge.reads) < 512 * 1024
    await world.close()


async def test_a_time_in_a_run_of_a_gibibyte_is_found_without_reading_it() -> None:
    world, huge = huge_world()
    for number in (0, 1, 2_345, BATCHES - 1):
        huge.reads.clear()
        wanted = TimeSearch(huge.extent, START_MS + number)
        await search(world.log_reader, [wanted])
        assert wanted.found == (number * RECORDS_EACH, START_MS + number)
        assert sum(length for _, length in huge.reads) <= 2 * ReadLimits().scan_bytes
    await world.close()


class YieldingStore(MemoryStore):
    """A store whose reads let other tasks run first; it records the reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int]] = []

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        self.reads.append((position, length))
        await asyncio.sleep(0)
        return await super().get_range(key, position, length)


async def test_many_readers_of_one_segment_read_its_index_once() -> None:
    store = YieldingStore()
    async with opened(limits=LIMITS, store=store) as world:
        topic_id = await world.open(partitions=20)
        await world.produce(topic_id, {number: [batch_of(bytes(300)) for _ in range(10)] for number in range(20)})
        ref = await compact(world, topic_id, list(range(20)), place_bytes=PLACE_BYTES)
        store.reads.clear()
        answers = partitions_of(await world.fetch(asking(dict.fromkeys(range(20), 7))))
    assert all(7 in values_of(answer) for answer in answers.values())
    tails = [position for position, length in store.reads if position + length == ref.size_bytes]
    assert len(tails) == 1, "one index for all"


class Segments:
    """Stored compacted segments of one long run each, with a count of reads."""

    def __init__(self, count: int) -> None:
        self.reads = 0
        self.error: PenstockError | None = None
        self.data: dict[bytes, bytes] = {}
        self.extents: list[Extent] = []
        for number in range(count):
            out: list[Buffer] = []
            writer = CompactedWriter(
                number.to_bytes(16), level=1, created_ms=START_MS, sink=out.append, place_bytes=PLACE_BYTES
            )
            writer.begin_run(bytes(16), 0)
            for offset in range(20):
                writer.add(empty_batch(offset, offset))
            run = writer.end_run()
            size_bytes = writer.finish().size_bytes
            self.data[number.to_bytes(16)] = b"".join(out)
            ref = SegmentRef(number.to_bytes(16), 1, size_bytes, "", "")
            self.extents.append(Extent(0, 19, ref, run.position, run.length, run.max_timestamp))

    async def read(self, reads: Sequence[SegmentRead]) -> list[memoryview | PenstockError]:
        self.reads += len(reads)
        if self.error is not None:
            return [self.error] * len(reads)
        return [
            memoryview(self.data[each.segment.segment_id])[each.position : each.position + each.length]
            for each in reads
        ]


def indexes_of(segments: Segments, bytes_max: int = INDEXES_BYTES_MAX) -> OffsetIndexes:
    return OffsetIndexes(segments.read, bytes_max=bytes_max, indexed_bytes_min=SCAN_BYTES)


async def test_indexes_are_kept_within_their_bytes_and_the_least_recently_used_are_evicted_first() -> None:
    segments = Segments(5)
    indexes = indexes_of(segments)
    await indexes.place(segments.extents[0], 5)
    bytes_max = 3 * indexes.held_bytes
    indexes = indexes_of(segments, bytes_max)
    for extent in segments.extents[:3]:
        await indexes.place(extent, 5)
    assert indexes.held_bytes == bytes_max
    await indexes.place(segments.extents[0], 9)
    await indexes.place(segments.extents[3], 5)
    segments.reads = 0
    await indexes.place(segments.extents[0], 5)
    assert segments.reads == 0
    await indexes.place(segments.extents[1], 5)
    assert segments.reads == 1
    assert indexes.held_bytes == bytes_max


async def test_an_index_that_cannot_be_read_is_read_again_next_time() -> None:
    segments = Segments(1)
    indexes = indexes_of(segments)
    segments.error = Unavailable("no answer")
    with pytest.raises(Unavailable):
        await indexes.place(segments.extents[0], 5)
    segments.error = None
    assert (await indexes.place(segments.extents[0], 5)).base_offset <= 5


async def test_an_index_of_another_segment_or_run_is_corrupt() -> None:
    segments = Segments(2)
    one, other = segments.extents
    segments.data[one.segment.segment_id] = segments.data[other.segment.segment_id]
    with pytest.raises(Corrupt, match="index of segment"):
        await indexes_of(segments).place(one, 5)
    for position, length in ((other.position + 1, other.length), (other.position, other.length - 1)):
        extent = Extent(0, 19, other.segment, position, length, 0)
        with pytest.raises(Corrupt, match="run"):
            await indexes_of(segments).place(extent, 5)


async def test_the_start_of_a_run_and_short_runs_need_no_index() -> None:
    segments = Segments(1)
    (extent,) = segments.extents
    await OffsetIndexes(segments.read, bytes_max=INDEXES_BYTES_MAX, indexed_bytes_min=extent.length).place(extent, 5)
    await indexes_of(segments).place(extent, 0)
    assert segments.reads == 0
    await indexes_of(segments).place(extent, 5)
    assert segments.reads > 0


# Times.


async def found_at(world: World, timestamp: int) -> tuple[int, int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    answer = await world.list_offsets(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])]))
    (partition,) = answer.topics[0].partitions
    return partition.error_code, partition.offset, partition.timestamp


@given(
    times=st.lists(st.integers(0, 30), min_size=1, max_size=25),
    outcomes=st.lists(st.sampled_from(["kept", "gone", "emptied"]), min_size=25, max_size=25),
)
@settings(max_examples=60, deadline=None)
async def test_a_time_is_found_at_the_first_record_that_compaction_left_at_or_after_it(
    times: list[int], outcomes: list[str]
) -> None:
    world = World(limits=LIMITS)
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(bytes(60), timestamps=[time]) for time in times]})

    def change(batch: Batch) -> bytes | None:
        outcome = outcomes[batch[0]]
        return batch[2] if outcome == "kept" else None if outcome == "gone" else empty_batch(batch[0], batch[1], 1000)

    await compact(world, topic_id, [0], change=change, place_bytes=PLACE_BYTES)
    left = [(offset, time) for offset, time in enumerate(times) if outcomes[offset] == "kept"]
    for timestamp in range(32):
        offset, time = next(((offset, time) for offset, time in left if time >= timestamp), (-1, -1))
        assert await found_at(world, timestamp) == (0, offset, time)
    latest = max((time for _, time in left), default=-1)
    newest = next(((offset, time) for offset, time in left if time == latest), (-1, -1))
    assert await found_at(world, -3) == (0, *newest)
    await world.close()


# Replacement under a reader.


async def test_a_reader_whose_extents_were_replaced_and_deleted_is_answered_from_their_successors(world: World) -> None:
    """This gateway's tail index got no announcement, and its plan is older than the grace."""
    topic_id = await world.open()
    await world.fetch(asking({0: 0}))
    old = [await world.produce(topic_id, {0: [batch_of(b"%d" % number)], 1: [batch_of(b"x")]}) for number in range(3)]
    await compact(world, topic_id, [0])
    for segment in old:
        await remove_segment(world, segment)
    before = world.sequencer.asked.count("plan")
    answers = partitions_of(await world.fetch(asking({0: 1})))
    assert (answers[0].error_code, values_of(answers[0])) == (0, {1: b"1", 2: b"2"})
    assert world.sequencer.asked.count("plan") == before + 1


async def test_only_deleted_segments_are_read_again_and_within_the_budget(world: World) -> None:
    topic_id = await world.open()
    await world.fetch(asking({0: 0, 1: 0}))
    gone = await world.produce(topic_id, {0: [batch_of(bytes(100)), batch_of(bytes(100))]})
    await world.produce(topic_id, {1: [batch_of(bytes(100))]})
    await compact(world, topic_id, [0])
    await remove_segment(world, gone)
    size = len(batch_of(bytes(100)))
    answers = partitions_of(await world.fetch(asking({0: 0, 1: 0}, max_bytes=2 * size + 10)))
    assert [answer.error_code for answer in answers.values()] == [0, 0]
    assert [list(values_of(answer)) for answer in answers.values()] == [[0], [0]]


async def test_a_segment_that_stays_missing_is_an_error_after_one_more_plan(world: World) -> None:
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await remove_segment(world, await compact(world, topic_id, [0]))
    answer = partitions_of(await world.fetch(asking({0: 0})))[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.sequencer.asked.count("plan") == 2


async def test_a_time_is_searched_again_if_its_segment_is_gone(world: World) -> None:
    topic_id = await world.open()
    old = await world.produce(topic_id, {0: [batch_of(b"a", b"b", timestamps=[10, 20])]})
    world.sequencer.fall_behind()
    await compact(world, topic_id, [0])
    await remove_segment(world, old)
    stale, world.sequencer.behind = world.sequencer.behind, None
    real_query = world.sequencer.query
    asked: list[str] = []

    async def query(name: str, query: object, view: type) -> object:
        asked.append(name)
        is_first = name == "offsets" and asked.count("offsets") == 1
        state, world.sequencer.state = world.sequencer.state, stale if is_first and stale else world.sequencer.state
        try:
            return await real_query(name, query, view)
        finally:
            world.sequencer.state = state

    world.sequencer.query = query  # type: ignore[method-assign]
    assert await found_at(world, 15) == (0, 1, 20)
    assert asked.count("offsets") == 2


@in_virtual_time
async def test_extents_are_used_for_two_minutes() -> None:
    world = World()
    topic_id = await world.open()
    await world.fetch(asking({0: 0}))
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    asked = world.sequencer.asked.count("plan")
    await asyncio.sleep(EXTENT_AGE_S_MAX - 1)
    assert values_of(partitions_of(await world.fetch(asking({0: 0})))[0]) == {0: b"a"}
    assert world.sequencer.asked.count("plan") == asked
    await asyncio.sleep(2)
    assert values_of(partitions_of(await world.fetch(asking({0: 0})))[0]) == {0: b"a"}
    assert world.sequencer.asked.count("plan") == asked + 1
    await world.close()


@in_virtual_time
async def test_a_fetch_that_waits_for_more_does_not_read_by_an_old_plan() -> None:
    world = World()
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, min_bytes=10_000, max_wait_ms=200_000)))
    await asyncio.sleep(1)
    (old,) = [extent.segment for extent in extents_of(world.sequencer.state, topic_id, 0)]
    await compact(world, topic_id, [0])
    await asyncio.sleep(EXTENT_AGE_S_MAX + 1)
    await remove_segment(world, old)
    asked = world.sequencer.asked.count("plan")
    assert values_of(partitions_of(await waiting)[0]) == {0: b"a"}
    assert world.sequencer.asked.count("plan") == asked, "the fetch had looked again already"
    await world.close()
