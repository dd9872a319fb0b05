"""A log with a large first extent starts inside it, so that it keeps less than `segment.bytes` too much."""

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.commands import ExpireLogs, LogRef, LogTrimmed
from penstock.contracts.levels import NEWEST_LEVEL, SEGMENT_BYTES_LEVEL
from penstock.contracts.queries.janitor import RetentionQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from tests.unit.sequencer.core.core_world import World, batch, topic_id

MIB = 2**20


def sized_world(retention_bytes: int, segment_bytes: int, *sizes: tuple[int, int], level: int = NEWEST_LEVEL) -> World:
    """A world with one log of extents with these numbers of records and bytes."""
    world = World(level=level)
    world.topic(**{"retention.bytes": str(retention_bytes), "segment.bytes": str(segment_bytes)})
    for records, size_bytes in sizes:
        world.produce(batch(records, size_bytes))
    return world


def expire(world: World) -> LogTrimmed:
    (trimmed,) = world.do(ExpireLogs(world.now_ms, [LogRef(topic_id(1), 0)])).logs
    assert isinstance(trimmed, LogTrimmed)
    return trimmed


def overdue(world: World) -> int:
    return len(queries.QUERIES["retention"](world.state, RetentionQuery(0, world.now_ms)).logs)


def test_a_log_that_is_too_large_by_segment_bytes_starts_inside_its_first_extent() -> None:
    """Compaction has merged 20 MiB into one extent; Kafka would keep less than 1 MiB too much."""
    world = sized_world(100_000, MIB, (2_000, 20 * MIB))
    assert overdue(world) == 1
    assert expire(world) == LogTrimmed(Rejection.NONE, 1_900, 0, 0)
    assert len(world.extents()) == 1
    assert (overdue(world), expire(world).log_start_offset) == (0, 1_900)


@pytest.mark.parametrize(
    ("segment_bytes", "level"), [(2**30, NEWEST_LEVEL), (20 * MIB, NEWEST_LEVEL), (MIB, SEGMENT_BYTES_LEVEL - 1)]
)
def test_a_log_keeps_up_to_a_segment_too_much(segment_bytes: int, level: int) -> None:
    """With Kafka's default a segment is 1 GiB; and before its level the rule is not in force."""
    world = sized_world(100_000, segment_bytes, (2_000, 20 * MIB), level=level)
    assert overdue(world) == 0
    assert expire(world) == LogTrimmed(Rejection.NONE, 0, 0, 0)


@given(
    retention_bytes=st.integers(0, 8 * MIB),
    segment_bytes=st.integers(MIB, 6 * MIB),
    sizes=st.lists(st.tuples(st.integers(1, 3_000), st.integers(61, 9 * MIB)), min_size=1, max_size=6),
)
def test_the_start_only_rises_until_the_log_is_not_too_large(
    retention_bytes: int, segment_bytes: int, sizes: list[tuple[int, int]]
) -> None:
    world = sized_world(retention_bytes, segment_bytes, *sizes)
    starts = [0]
    for _ in range(10):
        if not overdue(world):
            break
        starts.append(expire(world).log_start_offset)
    assert starts == sorted(set(starts)) and overdue(world) == 0
    columns = world.partition().extents
    if not columns:
        assert retention_bytes == 0
        return
    base, last, length = (
        columns.base_offsets[columns.head],
        columns.last_offsets[columns.head],
        columns.lengths[columns.head],
    )
    record_bytes = length / (last + 1 - base)
    kept_bytes = world.partition().size_bytes - record_bytes * (starts[-1] - base)
    assert min(retention_bytes, sum(size for _, size in sizes)) - 1 <= kept_bytes
    assert kept_bytes < retention_bytes + segment_bytes + record_bytes + 1
    assert expire(world).log_start_offset == starts[-1]
