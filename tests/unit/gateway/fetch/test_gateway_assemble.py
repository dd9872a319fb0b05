"""The batches that a consumer gets from extents, compared with a model that has all batches in a list."""

from collections.abc import Sequence

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given, settings

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.messages import SegmentRead
from penstock.kafkawire.records import BATCH_OVERHEAD, batches, place_batch
from penstock_gateway.fetch.batch_assembly import Cursor, Fragment, assemble, fragments_from, read_of, start_of, walk
from penstock_gateway.fetch.catch_up_throttle import CatchUpThrottle
from penstock_gateway.fetch.limits import ReadLimits
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.fetch.partition_read import PartitionRead
from penstock_gateway.fetch.position_cache import PositionCache
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.segments.segment_reader import Data
from tests.testkit.fakes.clock import ManualClock
from tests.unit.gateway.gateway_read_world import above_level_0, batch_of

KEY = (bytes(16), 0)
EPOCH = 5


class Log:
    """One partition's batches, each with its real base offset, in extents in segments."""

    def __init__(self, extents: Sequence[Sequence[tuple[int, int]]], level: int = 0, gap: int = 0) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # base offset, last offset, bytes as consumers get them
        self.extents: list[Extent] = []
        self.segments: dict[bytes, bytes] = {}
        offset = 0
        for number, sizes in enumerate(extents):
            base, data = offset, b""
            for count, value_bytes in sizes:
                raw = bytearray(batch_of(*([b"v" * value_bytes] * count)))
                placed = bytearray(raw)
                place_batch(placed, 0, offset, EPOCH)
                data += bytes(placed if level else raw)
                self.batches.append((offset, offset + count - 1, bytes(placed)))
                offset += count + gap
            segment_id = number.to_bytes(16)
            self.segments[segment_id] = b"head" + data + b"tail"
            segment = SegmentRef(segment_id, level, len(data) + 8, "", "")
            self.extents.append(Extent(base, self.batches[-1][1], segment, 4, len(data), 0))
        self.end = offset

    def bytes_of(self, read: SegmentRead) -> bytes:
        return self.segments[read.segment.segment_id][read.position : read.position + read.length]

    def answer(self, offset: int, end_offset: int, bytes_max: int, whole_first: bool) -> bytes:
        taken: list[bytes] = []
        for base, last, data in self.batches:
            if last < offset:
                continue
            fits = len(data) <= bytes_max or (whole_first and not taken)
            if base >= end_offset or not fits:
                break
            taken.append(data)
            bytes_max -= len(data)
        return b"".join(taken)


class LogSegments:
    """The segments of a log in memory, with the number of bytes that were read."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.read_bytes = 0

    async def load_ahead(self, reads: Sequence[SegmentRead]) -> None:
        pass

    async def read(self, reads: Sequence[SegmentRead]) -> list[Data]:
        self.read_bytes += sum(read.length for read in reads)
        return [memoryview(self.log.bytes_of(read)) for read in reads]


def log_reader(segments: LogSegments) -> LogReader:
    """A reader that searches without offset indexes, because the segments here have none."""
    clock = ManualClock()
    return LogReader(
        segments=segments,
        clock=clock,
        response_memory=ResponseMemory(2**30),
        throttle=CatchUpThrottle(0, clock),
        limits=ReadLimits(indexed_bytes_min=2**30),
    )


def partition_read(
    log: Log, offset: int, *, bytes_max: int, cursor: Cursor | None = None, **kwargs: object
) -> PartitionRead:
    extents = [each for each in log.extents if each.last_offset >= offset]
    settings: dict[str, object] = {"end_offset": log.end, "whole_first": True, "read_bytes": bytes_max} | kwargs
    return PartitionRead(
        key=KEY,
        offset=offset,
        leader_epoch=EPOCH,
        extents=extents,
        cursor=cursor or start_of(extents[0]),
        bytes_max=bytes_max,
        **settings,  # type: ignore[arg-type]
    )


async def read(log: Log, offset: int, **kwargs: int) -> bytes:
    wanted = partition_read(log, offset, **kwargs)
    await log_reader(LogSegments(log)).read([wanted])
    assert wanted.error is None
    return b"".join(wanted.records or ())


batch_sizes = st.tuples(st.integers(1, 5), st.integers(0, 60))
logs = st.builds(
    Log,
    st.lists(st.lists(batch_sizes, min_size=1, max_size=6), min_size=1, max_size=4),
    level=st.sampled_from([0, 0, 1]),
)


@settings(max_examples=200, deadline=None)
@given(log=logs, data=st.data())
async def test_batches_are_whole_in_order_with_their_offsets_and_within_the_budget(
    log: Log, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(0, log.end - 1))
    end_offset = data.draw(st.sampled_from([log.end, log.end, offset + 1]))
    bytes_max = data.draw(st.integers(1, 2_000))
    whole_first = data.draw(st.booleans())
    expected = log.answer(offset, end_offset, bytes_max, whole_first)
    everything = sum(each.length for each in log.extents)
    got = await read(
        log, offset, bytes_max=bytes_max, end_offset=end_offset, whole_first=whole_first, read_bytes=everything
    )
    assert got == expected
    less = data.draw(st.integers(BATCH_OVERHEAD, 1_000))
    got = await read(log, offset, bytes_max=bytes_max, end_offset=end_offset, whole_first=whole_first, read_bytes=less)
    assert expected.startswith(got)
    assert bool(got) == bool(expected)


@settings(max_examples=100, deadline=None)
@given(log=logs, bytes_max=st.integers(1, 1_500))
async def test_a_consumer_that_continues_where_it_stopped_gets_every_batch_once(log: Log, bytes_max: int) -> None:
    reader = log_reader(LogSegments(log))
    offset, got = 0, b""
    while offset < log.end:
        extent = next(each for each in log.extents if each.last_offset >= offset)
        cursor = reader.known_place(KEY, offset, extent)
        wanted = partition_read(log, offset, bytes_max=bytes_max, cursor=cursor)
        await reader.read([wanted])
        assert wanted.records, "a consumer that gets nothing is stuck"
        records = b"".join(wanted.records)
        got += records
        *_, (_, header) = batches(records)
        offset = header.base_offset + header.last_offset_delta + 1
    assert got == b"".join(data for _, _, data in log.batches)


async def test_a_consumer_in_a_large_extent_does_not_search_from_its_start_again() -> None:
    log = Log([[(1, 1_000)] * 100])
    segments = LogSegments(log)
    reader = log_reader(segments)
    for offset in range(100):
        cursor = reader.known_place(KEY, offset, log.extents[0])
        assert cursor is not None and cursor.base_offset == offset
        await reader.read([partition_read(log, offset, bytes_max=1_100, cursor=cursor)])
    assert segments.read_bytes <= 100 * 1_100


async def test_a_batch_above_level_0_keeps_the_offset_it_carries() -> None:
    log = Log([[(2, 5), (3, 5)], [(1, 5)]], level=1, gap=10)
    got = await read(log, 3, bytes_max=10_000)
    assert [header.base_offset for _, header in batches(got)] == [12, 25]


async def test_an_offset_between_compacted_batches_gives_the_next_one() -> None:
    log = Log([[(1, 5), (1, 5)]], level=1, gap=4)
    assert await read(log, 2, bytes_max=10_000) == log.batches[1][2]


async def test_a_search_that_is_cut_short_continues_where_it_ended() -> None:
    log = Log([[(1, 1_000_000)] * 20])
    segments = LogSegments(log)
    reader = log_reader(segments)
    offset, rounds = 19, 0
    while True:
        rounds += 1
        cursor = reader.known_place(KEY, offset, log.extents[0])
        wanted = partition_read(log, offset, bytes_max=1_100_000, cursor=cursor)
        await reader.read([wanted])
        if wanted.records:
            break
    assert b"".join(wanted.records) == log.batches[19][2]
    assert rounds > 1, "the extent is too short for this test"
    assert segments.read_bytes < 2 * log.extents[0].length


def damaged(log: Log, position: int, value: bytes) -> bytes:
    raw = bytearray(log.bytes_of(read_of(Fragment(start_of(log.extents[0]), log.extents[0].length))))
    raw[position : position + len(value)] = value
    return bytes(raw)


LOG = Log([[(2, 10), (3, 10)]])
SIZE = len(LOG.batches[0][2])


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (8, b"\xff\xff\xff\xff"),
        (8, b"\x00\x00\x00\x00"),
        (8, b"\x7f\xff\xff\xff"),
        (8, (SIZE + 100).to_bytes(4)),
        (57, b"\x00\x00\x00\x00"),
        (57, b"\xff\xff\xff\xff"),
        (57, b"\x00\x00\x00\x01"),
        (57, b"\x00\x00\x00\x03"),
        (57, b"\x00\x00\x10\x00"),
        (SIZE + 57, b"\x00\x00\x00\x04"),
    ],
)
def test_bytes_that_are_not_the_extents_are_never_returned(position: int, value: bytes) -> None:
    extent = LOG.extents[0]
    fragment = Fragment(start_of(extent), extent.length)
    with pytest.raises(Corrupt, match="segment 0000"):
        list(walk(fragment, damaged(LOG, position, value)))


def test_an_extent_that_ends_in_the_middle_of_a_header_is_corrupt() -> None:
    extent = msgspec.structs.replace(LOG.extents[0], length=SIZE + 20)
    with pytest.raises(Corrupt, match="no batch"):
        list(
            walk(
                Fragment(start_of(extent), extent.length),
                LOG.bytes_of(read_of(Fragment(start_of(extent), extent.length))),
            )
        )


@given(noise=st.binary(max_size=400), level=st.sampled_from([0, 1]))
@example(noise=bytes(400), level=1)
def test_any_bytes_at_all_are_batches_of_the_extent_or_corrupt(noise: bytes, level: int) -> None:
    extent = LOG.extents[0] if level == 0 else above_level_0(LOG.extents[0])
    data = noise.ljust(extent.length, b"\0")[: extent.length]
    with pytest.raises(Corrupt):
        list(walk(Fragment(start_of(extent), extent.length), data))


def test_a_fragment_that_could_not_be_read_ends_the_answer() -> None:
    log = Log([[(1, 5)], [(1, 5)]])
    first, second = (Fragment(start_of(extent), extent.length) for extent in log.extents)
    failure = Unavailable("no answer")
    arguments = {"bytes_max": 1_000, "whole_first": True, "leader_epoch": EPOCH, "scan_bytes": 1_000}
    taken = assemble(0, 2, [(first, log.bytes_of(read_of(first))), (second, failure)], **arguments)  # type: ignore[arg-type]
    assert taken.records == [log.batches[0][2]]
    with pytest.raises(Unavailable, match="no answer"):
        assemble(0, 2, [(first, failure), (second, log.bytes_of(read_of(second)))], **arguments)  # type: ignore[arg-type]


def test_fragments_go_through_the_extents_until_the_bytes_are_used_up() -> None:
    log = Log([[(1, 100)], [(1, 100)], [(1, 100)]])
    length = log.extents[0].length
    fragments = fragments_from(start_of(log.extents[1]), log.extents, length + 100)
    assert [(fragment.cursor.extent.base_offset, fragment.length) for fragment in fragments] == [(1, length), (2, 100)]
    assert len(fragments_from(start_of(log.extents[1]), log.extents, length + BATCH_OVERHEAD - 1)) == 1


def test_a_cached_position_of_another_segment_or_offset_is_not_used() -> None:
    log = Log([[(2, 5), (2, 5)], [(2, 5), (2, 5)]])
    positions = PositionCache(10)
    first, second = log.extents
    middle = Cursor(first, first.position + first.length // 2, 2)
    positions.record(KEY, 2, middle)
    assert positions.place(KEY, 2, first) == middle
    assert positions.place(KEY, 2, msgspec.structs.replace(first, length=10)) is None
    assert positions.place(KEY, 2, msgspec.structs.replace(first, segment=second.segment)) is None
    assert positions.place(KEY, 3, first) is None


def test_the_least_recently_used_positions_are_evicted_first() -> None:
    log = Log([[(1, 5)] * 5])
    extent = log.extents[0]
    size = extent.length // 5
    positions = PositionCache(2)
    cursors = {offset: Cursor(extent, extent.position + offset * size, offset) for offset in (1, 2, 3)}
    positions.record(KEY, 1, cursors[1])
    positions.record(KEY, 2, cursors[2])
    assert positions.place(KEY, 1, extent) == cursors[1]
    positions.record(KEY, 3, cursors[3])
    assert [positions.place(KEY, offset, extent) == cursors[offset] for offset in (1, 2, 3)] == [True, False, True]


async def test_a_batch_too_large_for_its_share_is_not_read_for_nothing() -> None:
    log = Log([[(1, 50_000)]])
    segments = LogSegments(log)
    wanted = partition_read(log, 0, bytes_max=1_000, whole_first=False)
    await log_reader(segments).read([wanted])
    assert (wanted.records, segments.read_bytes) == (None, 1_000)
