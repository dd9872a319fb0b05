"""Retention keeps exactly the records that Kafka's broker would keep, for any writes, merges and configurations.

The model is a plain list of the segments of one log, with Kafka's three rules (UnifiedLog.deleteOldSegments). Segments
that end before the log's start are deleted first. Then the size limit applies, and then the age limit.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st

from penstock.contracts.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    DropExtents,
    ExpireLogs,
    LogOffset,
    LogRef,
)
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.queries.janitor import RetentionQuery
from penstock.contracts.queries.log import EARLIEST, OffsetOf, OffsetsQuery
from penstock_sequencer.core import queries
from penstock_sequencer.core.log import retention_queries
from penstock_sequencer.core.state.limits import Limits, LogLimits
from tests.unit.sequencer.core.core_world import START_MS, World, batch, topic_id

STEP_MS = 100
TIMES_MS = [*[None] * 6, *range(0, 12 * STEP_MS, STEP_MS // 2)]  # None: records without a time


class Segment(msgspec.Struct):
    """One file of a log in Kafka."""

    records: list[tuple[int, int | None]]  # offset, time
    size_bytes: int
    modified_ms: int

    def largest_ms(self) -> int:
        times_ms = [time_ms for _, time_ms in self.records if time_ms is not None]
        return max(times_ms, default=self.modified_ms)


class KafkaLog:
    """A log as Kafka's broker keeps it; each segment is closed."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.start = 0
        self.end = 0

    def write(self, times_ms: list[int | None], size_bytes: int, now_ms: int) -> None:
        records = list(enumerate(times_ms, self.end))
        self.segments.append(Segment(records, size_bytes, now_ms))
        self.end += len(times_ms)

    def merge(self, first: int, stop: int, now_ms: int) -> None:
        merged = self.segments[first:stop]
        records = [record for segment in merged for record in segment.records]
        self.segments[first:stop] = [Segment(records, sum(segment.size_bytes for segment in merged), now_ms)]

    def delete_old(self, now_ms: int, retention_ms: int, retention_bytes: int) -> None:
        self.delete_breached()
        if retention_bytes >= 0:
            self.delete_excess(retention_bytes)
        if retention_ms >= 0:
            self._delete_while(lambda segment: now_ms - segment.largest_ms() > retention_ms)

    def delete_breached(self) -> None:
        self._delete_while(lambda segment: segment.records[-1][0] < self.start)

    def delete_excess(self, retention_bytes: int) -> None:
        excess_bytes = sum(segment.size_bytes for segment in self.segments) - retention_bytes

        def is_excess(segment: Segment) -> bool:
            nonlocal excess_bytes
            if excess_bytes - segment.size_bytes < 0:
                return False
            excess_bytes -= segment.size_bytes
            return True

        self._delete_while(is_excess)

    def _delete_while(self, predicate: Callable[[Segment], bool]) -> None:
        gone = len(list(takewhile(predicate, self.segments)))
        del self.segments[:gone]
        self.start = max(self.start, self.segments[0].records[0][0] if self.segments else self.end)

    def bounds(self) -> list[tuple[int, int]]:
        return [(segment.records[0][0], segment.records[-1][0]) for segment in self.segments]


class Pair:
    """The machine and the model, with the same input."""

    def __init__(self, extents_per_command: int) -> None:
        self.per_command = extents_per_command
        limits = Limits(log=LogLimits(extents_dropped_per_command_max=extents_per_command))
        self.world = World(limits, JANITOR_LEVEL)
        self.log = KafkaLog()
        self.configs = {"retention.ms": -1, "retention.bytes": -1}
        self.world.topic(**{name: str(value) for name, value in self.configs.items()})

    def write(self, times_ms: list[int | None], length: int) -> None:
        stamps = [-1 if each is None else START_MS + each for each in times_ms]
        self.world.produce(*(batch(1, length, stamp) for stamp in stamps))
        known = [None if each is None else START_MS + each for each in times_ms]
        self.log.write(known, length * len(times_ms), self.world.now_ms)

    def merge(self, first: int, count: int) -> None:
        first = min(first, len(self.log.segments) - 2)
        stop = min(first + count, len(self.log.segments))
        if first >= 0 and len(self.log.segments) == len(self.world.extents()):
            self.world.do(self.world.job((1, 0, first, stop)))
            self.log.merge(first, stop, self.world.now_ms)

    def alter(self, name: str, value: int) -> None:
        self.configs[name] = value
        change = ConfigChange(name, ConfigOperation.SET, str(value))
        self.world.do(AlterConfigs(self.world.now_ms, "t", [change]))

    def delete(self, offset: int) -> None:
        offset = min(offset, self.log.end)
        outcome: Any = self.world.do(DeleteRecords(self.world.now_ms, [LogOffset(topic_id(1), 0, offset)]))
        self.log.start = max(self.log.start, offset)
        assert outcome.logs[0].log_start_offset == self.log.start
        (earliest,) = queries.offsets(
            self.world.state, OffsetsQuery(0, [OffsetOf(topic_id(1), 0, EARLIEST)])
        ).partitions
        assert earliest.offset == self.log.start

    def wait(self, steps: int) -> None:
        self.world.wait(steps * STEP_MS)

    def expire(self) -> None:
        """Expire records like a janitor, step by step until there are no more; then no record is overdue."""
        self.log.delete_old(self.world.now_ms, self.configs["retention.ms"], self.configs["retention.bytes"])
        is_more = True
        while is_more:
            before = self.world.state.extent_count
            outcome: Any = self.world.do(ExpireLogs(self.world.now_ms, [LogRef(topic_id(1), 0)]))
            dropped = before - self.world.state.extent_count
            assert dropped == outcome.logs[0].extents <= self.per_command
            is_more = outcome.is_more
            assert dropped or not is_more
        assert self.world.partition().log_start_offset == self.log.start
        assert [(first, last) for first, last, _ in self.world.extents()] == self.log.bounds()
        assert retention_queries.retention(self.world.state, RetentionQuery(0, self.world.now_ms)).logs == []

    def drop(self) -> None:
        """Drop one step of the deleted extents; after the last step none is left."""
        before = self.world.state.extent_count
        outcome: Any = self.world.do(DropExtents(self.world.now_ms))
        assert before - self.world.state.extent_count == outcome.extents <= self.per_command
        if not outcome.is_more:
            self.log.delete_breached()
            assert [(first, last) for first, last, _ in self.world.extents()] == self.log.bounds()


writes = st.tuples(
    st.just(Pair.write), st.lists(st.sampled_from(TIMES_MS), min_size=1, max_size=3), st.sampled_from([10, 10, 30])
)
ages = st.tuples(st.just(Pair.alter), st.just("retention.ms"), st.sampled_from([-1, 0, STEP_MS, 5 * STEP_MS]))
sizes = st.tuples(st.just(Pair.alter), st.just("retention.bytes"), st.sampled_from([-1, 0, 10, 30, 45, 100]))
others = st.one_of(
    st.tuples(st.just(Pair.merge), st.integers(0, 5), st.integers(2, 4)),
    st.tuples(st.just(Pair.delete), st.integers(0, 30)),
    st.tuples(st.just(Pair.wait), st.integers(0, 4)),
    st.tuples(st.just(Pair.drop)),
)
expiries = st.tuples(st.just(Pair.expire))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 4), st.lists(st.one_of(writes, writes, writes, ages, sizes, others, expiries), max_size=40))
def test_the_machine_keeps_exactly_the_records_that_kafka_keeps(
    extents_per_command: int, steps: list[tuple[Any, ...]]
) -> None:
    pair = Pair(extents_per_command)
    for function, *arguments in [*steps, (Pair.expire,)]:
        function(pair, *arguments)
