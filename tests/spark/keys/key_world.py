"""A small topic for key compaction: segments in a folder, the real state machine, and jobs."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.contracts.batches import BatchMeta, Extent
from penstock.contracts.commands import CommitSegment, RaiseLevel, ReplaceExtents
from penstock.contracts.configs.topics import compaction_configs
from penstock.contracts.ids import new_segment_id, new_topic_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.queries.compaction import LogsQuery, LogView, SegmentExtentsQuery, SegmentsQuery
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.cleaning import delete_horizon_ms
from penstock.kafkawire.records import Record, batches, build_batch, decode_records, read_batch_header
from penstock.runtime.clock import Clock, SystemClock, SystemEntropy
from penstock.segment import build_segment
from penstock.segment.keys import segment_key
from penstock.spark.ranges import StoreRanges
from penstock_compactor.jobs.values import StorePlace
from penstock_compactor.keys.job import Commit, KeyCompaction, Report
from penstock_compactor.keys.limits import KeyJobLimits
from penstock_compactor.keys.plan import KeyExtent, KeyInput, KeyJob, KeyLimits, PartitionId, key_plans
from penstock_sequencer.core.log import segment_queries
from penstock_sequencer.core.queries import extent
from tests.unit.sequencer.core.core_world import World

CLUSTER = "lake"
TOPIC = new_topic_id((1).to_bytes(16, "big"))
OTHER_TOPIC = new_topic_id((2).to_bytes(16, "big"))
AT_ONCE = KeyLimits(flushed_age_min_ms=0, dirty_bytes_min=0)
JOB_LIMITS = KeyJobLimits()
HOUR_MS = 3_600_000

Kept = tuple[int, Record]  # the offset, and the record


class SetClock:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return 0.0


class InlineRdd:
    """Tasks that run in this process, one after the other."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def map(self, work: Any) -> "InlineRdd":
        return InlineRdd([work(each) for each in self._items])

    def collect(self) -> list[Any]:
        return list(self._items)


class InlineSpark:
    """The part of a Spark session that jobs on whole partitions need."""

    @property
    def sparkContext(self) -> "InlineSpark":
        return self

    def parallelize(self, items: Sequence[Any], slices: int) -> InlineRdd:
        assert slices > 0
        return InlineRdd(items)


class KeyWorld:
    """One compacted topic, and another topic with batches in the same segments."""

    def __init__(self, folder: Path, *, partitions: int = 1, clock: Any = None, **configs: str) -> None:
        self.clock = clock or SystemClock()
        self.place = StorePlace(f"file://{folder}", CLUSTER)
        self.machine = World()
        self.partitions = partitions
        self.configs = {"cleanup.policy": "compact", **configs}
        self.appended: dict[int, list[Kept]] = {number: [] for number in range(partitions)}
        self.segments = 0
        self.set_time()
        self.machine.do(RaiseLevel(self.machine.now_ms, NEWEST_LEVEL))
        self.machine.topic("t", partitions, 1, **self.configs)
        self.machine.topic("other", 1, 2)

    def set_time(self) -> None:
        self.machine.now_ms = self.clock.now_ms()

    def flush(self, *batches_in: tuple[int, Sequence[Record]], **options: Any) -> None:
        """Store one level-0 segment with batches of (partition, records), among batches of the other topic."""
        self.flush_built([(partition, build_batch(records, **options)) for partition, records in batches_in])
        for partition, records in batches_in:
            appended = self.appended[partition]
            base_offset = appended[-1][0] + 1 if appended else 0
            appended += [(base_offset + each.offset_delta, each) for each in records]

    def flush_built(self, built_batches: Sequence[tuple[int, bytes]]) -> None:
        """The same for built batches, which the model does not track."""
        self.set_time()
        now_ms = self.machine.now_ms
        self.segments += 1
        segment_id = new_segment_id(now_ms, self.segments.to_bytes(10, "big"))
        placed = [(TOPIC, partition, _meta(data), data) for partition, data in built_batches]
        for data in (build_batch([Record(0, 5, b"elsewhere", b"x" * 30)]), build_batch([Record(0, 6, None, b"y")])):
            placed.append((OTHER_TOPIC, 0, _meta(data), data))
        built = build_segment(segment_id, writer="f1", created_ms=now_ms, level=0, batches=placed)
        with StoreRanges(self.place.url) as ranges:
            key = segment_key("", CLUSTER, 0, segment_id)
            ranges.call(lambda store: store.put(key, built.buffers))
        self.machine.do(CommitSegment(now_ms, segment_id, built.size_bytes, "f1", "z1", built.runs))

    def jobs(self, limits: KeyLimits = AT_ONCE) -> list[KeyJob]:
        """The jobs that the planner finds now."""
        self.set_time()
        configs = {TOPIC: compaction_configs(self.configs)}
        return key_plans(self.logs(), configs, self.extents(), self.machine.now_ms, limits)

    def logs(self) -> list[LogView]:
        return segment_queries.logs(self.machine.state, LogsQuery(0, [TOPIC])).logs

    def extents(self) -> dict[PartitionId, list[KeyExtent]]:
        """All extents in the answers of the queries."""
        found: dict[PartitionId, list[KeyExtent]] = {}
        state = self.machine.state
        for segment in segment_queries.segments(state, SegmentsQuery(0, 0, [], 100_000)).segments:
            view = segment_queries.segment_extents(state, SegmentExtentsQuery(0, [segment.row]))
            for each in view.extents[0]:
                read = KeyInput(
                    segment.segment_id,
                    segment.level,
                    each.base_offset,
                    each.last_offset,
                    each.position,
                    each.length,
                    each.max_timestamp,
                )
                found.setdefault((each.topic_id, each.partition), []).append(KeyExtent(read, segment.leased))
        for extents in found.values():
            extents.sort(key=lambda each: each.input.base_offset)
        return found

    def compaction(
        self, session: Any = None, limits: KeyJobLimits = JOB_LIMITS, clock: Clock | None = None
    ) -> KeyCompaction:
        return KeyCompaction(session or InlineSpark(), self.place, clock or self.clock, SystemEntropy(), limits=limits)

    def commit(self, command: ReplaceExtents) -> bool:
        """Send the command to the state machine; return whether it accepted every run."""
        self.set_time()
        outcome = self.machine.do(msgspec.structs.replace(command, now_ms=self.machine.now_ms))
        return all(rejection == Rejection.NONE for rejection in outcome.rejections)

    def compact(
        self,
        session: Any = None,
        limits: KeyLimits = AT_ONCE,
        commit: Commit | None = None,
        job_limits: KeyJobLimits = JOB_LIMITS,
    ) -> list[Report]:
        """Run every present job, with a new plan for each."""
        reports = []
        for number, job in enumerate(self.jobs(limits)):
            compaction = self.compaction(session, job_limits)
            reports.append(compaction.run(f"job-{number}", job, commit or self.commit))
        return reports

    def live(self, partition: int = 0) -> list[Extent]:
        """The partition's extents."""
        log = self.machine.state.topics["t"].partitions[partition]
        columns = log.extents
        return [extent(self.machine.state, log, row, {}) for row in range(columns.head, columns.end)]

    def batches(self, partition: int = 0) -> list[bytes]:
        """Every live batch with its real offset; checks that no offset is wrong."""
        found, next_offset = [], 0
        for each in self.live(partition):
            key = segment_key("", CLUSTER, each.segment.level, each.segment.segment_id)
            with StoreRanges(self.place.url) as ranges:
                place = (key, each.position, each.length)
                data = ranges.call(lambda store, place=place: store.get_range(*place))  # type: ignore[misc]
            assert each.base_offset == next_offset
            for position, header in batches(data):
                batch = bytearray(data[position : position + header.length + 12])
                if each.segment.level == 0:
                    batch[:8] = next_offset.to_bytes(8, "big")
                header = read_batch_header(batch)
                assert header.base_offset >= next_offset
                next_offset = header.base_offset + header.last_offset_delta + 1
                found.append(bytes(batch))
            assert next_offset == each.last_offset + 1
        return found

    def read(self, partition: int = 0) -> list[Kept]:
        """Every live record."""
        kept = []
        for batch in self.batches(partition):
            base_offset = read_batch_header(batch).base_offset
            kept += [(base_offset + each.offset_delta, _plain(each)) for each in decode_records(batch)]
        return kept

    def expected(self, partition: int = 0, up_to: int | None = None) -> list[Kept]:
        """The records that a dictionary gives: the last of every key below `up_to`, and all records from there on."""
        appended = self.appended[partition]
        end = len(appended) if up_to is None else up_to
        latest = {record.key: offset for offset, record in appended if offset < end and record.key is not None}
        kept = set(latest.values())
        return [(offset, _plain(record)) for offset, record in appended if offset >= end or offset in kept]

    def horizons(self, partition: int = 0) -> list[int]:
        return [delete_horizon_ms(read_batch_header(batch)) for batch in self.batches(partition)]


def random_records(chance: random.Random, keys: int, count: int, *, tombstones: float = 0.2) -> list[Record]:
    """Random records for one batch."""
    return [
        Record(
            offset_delta=number,
            timestamp=1_690_000_000_000 + chance.randrange(10**9),
            key=b"key-%d" % chance.randrange(keys) * chance.choice((1, 1, 1, 12)),
            value=None if chance.random() < tombstones else chance.randbytes(chance.choice((0, 3, 40, 400))),
            headers=(("h", b"x"), ("n", None)) if chance.random() < 0.2 else (),
        )
        for number in range(count)
    ]


def _plain(record: Record) -> Record:
    """The record without its place in the batch."""
    return Record(0, record.timestamp, record.key, record.value, record.headers)


def _meta(data: bytes) -> BatchMeta:
    header = read_batch_header(data)
    return BatchMeta(
        len(data),
        header.record_count,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.attributes,
    )
