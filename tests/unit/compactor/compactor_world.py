"""Compactors on the real state machine and a store in a folder. Spark is a fake that works in a thread."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from penstock.contracts.batches import Extent
from penstock.contracts.commands import Command, CommitSegment, CreateTopic, DeleteTopic, Outcome, Tick, TopicCreated
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId, new_landed_id, new_segment_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.queries.compaction import SegmentsQuery, SegmentView
from penstock.contracts.queries.log import PlanPartition, PlanQuery
from penstock.kafkawire.records import BATCH_OVERHEAD, batches, decode_records
from penstock.runtime.clock import Clock, SystemClock, SystemEntropy
from penstock.segment import HEADER_BYTES, build_segment
from penstock.segment.keys import segment_key
from penstock.spark.ranges import StoreRanges
from penstock_compactor.app import CompactorLimits
from penstock_compactor.jobs.job_client import JobClient
from penstock_compactor.jobs.slots import JobSlots
from penstock_compactor.jobs.spark_runner import SparkRunner
from penstock_compactor.jobs.values import StorePlace
from penstock_compactor.keys.plan import KeyLimits
from penstock_compactor.keys.work import KeyWork
from penstock_compactor.merge.work import MergeWork
from penstock_compactor.metrics import CompactorMetrics, SparkMetrics
from penstock_compactor.planning.planner import PlanLimits
from penstock_compactor.service import Compactor
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from tests.unit.compactor.compactor_lake import CLUSTER, batch, meta, topic

LIMITS = PlanLimits(flushed_count=3, flushed_rest_ms=0, class_count=3, topic_bytes_min=1, local_bytes_max=0)


class FakePlanned:
    """A list that is mapped in the calling thread, when it is collected."""

    def __init__(self, spark: "FakeSpark", items: Sequence[Any]) -> None:
        self._spark = spark
        self._items = items
        self._work: Callable[[Any], Any] = lambda item: item

    def map(self, work: Callable[[Any], Any]) -> "FakePlanned":
        self._work = work
        return self

    def collect(self) -> list[Any]:
        self._spark.before_collect()
        return [self._work(item) for item in self._items]


class FakeSpark:
    """The part of a Spark session that jobs use."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.groups: list[str] = []
        self.pools: list[str] = []
        self.cancelled: list[str] = []
        self.is_alive = True
        self.is_closed = False
        self.before_collect: Callable[[], None] = lambda: None
        self.on_cancel: Callable[[], None] = lambda: None

    def setJobGroup(self, group: str, _description: str, interruptOnCancel: bool) -> None:
        assert interruptOnCancel
        self.groups.append(group)

    def setLocalProperty(self, name: str, value: str) -> None:
        assert name == "spark.scheduler.pool"
        self.pools.append(value)

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)
        self.on_cancel()

    def parallelize(self, items: Sequence[Any], parts: int) -> FakePlanned:
        assert parts == len(items)
        return FakePlanned(self, items)


class WrongClock(SystemClock):
    """A wall clock that is wrong."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


class Machine:
    """A sequencer client over the state machine itself. Tests apply commands of other clients to it."""

    def __init__(self) -> None:
        self.state: State = new_state()
        self.state.level = NEWEST_LEVEL
        self.clock = SystemClock()
        self.sent: list[Command] = []
        self.lost_answers: set[type[Command]] = (
            set()
        )  # the next command of such a type is applied, but its answer is lost
        self.is_down = False
        self.seen_clock_ms = 0
        self.clock_seen_s = 0.0

    async def command(self, commands: list[Command], *, deadline_s: float) -> list[Outcome]:
        while True:
            if self.is_down:
                raise Unavailable("no sequencer answered")
            self.sent += commands
            now_ms = max(self.clock.now_ms(), self.state.clock_ms)
            outcomes = self.apply(*(replace(each, now_ms=min(each.now_ms, now_ms)) for each in commands))
            self.seen_clock_ms, self.clock_seen_s = self.state.clock_ms, self.clock.monotonic_s()
            lost = self.lost_answers & {type(each) for each in commands}
            if not lost:
                return outcomes
            self.lost_answers -= lost  # the loop sends the commands again

    async def query(
        self, name: str, query: msgspec.Struct, _view: type[Any], *, deadline_s: float | None = None
    ) -> Any:
        if self.is_down:
            raise Unavailable("no sequencer answered")
        return queries.QUERIES[name](self.state, query)

    def apply(self, *commands: Command) -> list[Outcome]:
        return apply_entry(self.state, self.state.sequence + 1, [list(commands)])[0][0]

    def pass_time(self, duration_ms: int) -> None:
        self.apply(Tick(max(self.state.clock_ms, self.clock.now_ms()) + duration_ms))


class World:
    """Topics, flushed segments, and compactors."""

    def __init__(self, folder: Path, limits: PlanLimits = LIMITS, spark: Any = None) -> None:
        self.machine = Machine()
        self.clock: Clock = self.machine.clock  # of compactors
        self.place = StorePlace(f"file://{folder}", CLUSTER)
        self.plan_limits = limits
        self.limits = CompactorLimits()  # of all parts built from now on
        self.key_interval_s = 0.01
        self.key_limits = KeyLimits(flushed_age_min_ms=0, dirty_bytes_min=0)
        self.written: dict[tuple[TopicId, int], list[str]] = {}
        self.degraded: dict[str, str] = {}  # part of the compactor -> why it is degraded, or "" if it is not
        self.missing = ""
        self.slots: JobSlots | None = None  # that several worlds share
        self.spark = spark or FakeSpark()
        self.sessions: list[Any] = []
        self.registry = CollectorRegistry()
        self.metrics = CompactorMetrics(self.registry)
        self.spark_metrics = SparkMetrics(self.registry)

    def create_topic(self, number: int, partitions: int = 1, **configs: str) -> TopicId:
        topic_id = topic(number)
        command = CreateTopic(self.machine.clock.now_ms(), f"t{number}", topic_id, partitions, configs)
        (outcome,) = self.machine.apply(command)
        assert isinstance(outcome, TopicCreated), outcome
        return topic_id

    def delete_topic(self, number: int) -> None:
        self.machine.apply(DeleteTopic(self.machine.clock.now_ms(), f"t{number}", bytes(16)))

    def flush(self, *batches: tuple[TopicId, int, Sequence[str]], is_express: bool = False) -> bytes:
        """Store and commit a level-0 segment of these values."""
        now_ms = self.machine.clock.now_ms()
        segment_id = (new_landed_id if is_express else new_segment_id)(now_ms, os.urandom(10))
        placed = [(topic_id, number, batch(values)) for topic_id, number, values in batches]
        built = build_segment(
            segment_id,
            writer="flusher-1",
            created_ms=now_ms,
            level=0,
            batches=[(*each[:2], meta(each[2]), each[2]) for each in placed],
        )
        with StoreRanges(self.place.url) as ranges:
            ranges.call(lambda store: store.put(segment_key("", CLUSTER, 0, segment_id), built.buffers))
        self.machine.apply(CommitSegment(now_ms, segment_id, built.size_bytes, "flusher-1", "z1", built.runs))
        for topic_id, number, values in batches:
            self.written.setdefault((topic_id, number), []).extend(values)
        return segment_id

    def segments(self) -> list[SegmentView]:
        return list(queries.QUERIES["segments"](self.machine.state, SegmentsQuery(0, 0, [], 1000)).segments)

    def levels(self) -> list[int]:
        return sorted(segment.level for segment in self.segments())

    def extents(self, topic_id: TopicId, partition: int = 0) -> list[Extent]:
        query = PlanQuery(0, [PlanPartition(topic_id, partition, 0, 2**40)], 2**40)
        return list(queries.QUERIES["plan"](self.machine.state, query).partitions[0].extents)

    def damage(self, segment_id: bytes) -> None:
        """Change a byte of the segment's first batch."""
        key = segment_key("", CLUSTER, 0, segment_id)
        with StoreRanges(self.place.url) as ranges:
            data = bytearray(ranges.call(lambda store: store.get(key)))
            data[HEADER_BYTES + BATCH_OVERHEAD] ^= 1
            ranges.call(lambda store: store.delete([key]))
            ranges.call(lambda store: store.put(key, [data]))

    def check_all_readable(self) -> None:
        """Every value of every existing topic is readable: once, in order, at its offset."""
        for (topic_id, partition), values in self.written.items():
            if topic_id in self.machine.state.topics_by_id:
                assert self.read(topic_id, partition) == list(enumerate(values))

    def read(self, topic_id: TopicId, partition: int) -> list[tuple[int, str]]:
        found = []
        with StoreRanges(self.place.url) as ranges:
            for extent in self.extents(topic_id, partition):
                key = segment_key("", CLUSTER, extent.segment.level, extent.segment.segment_id)
                data = ranges.call(lambda store, key=key, at=extent: store.get_range(key, at.position, at.length))  # type: ignore[misc]
                offset = extent.base_offset
                for position, header in batches(data):
                    base = offset if extent.segment.level == 0 else header.base_offset
                    for record in decode_records(data[position:]):
                        found.append((base + record.offset_delta, (record.value or b"").decode()))
                    offset = base + header.last_offset_delta + 1
                assert offset == extent.last_offset + 1
        return found

    def runner(self, **changes: Any) -> SparkRunner:
        configs: dict[str, Any] = {
            "open_session": self._open_session,
            "close_session": lambda session: setattr(session, "is_closed", True),
            "is_alive": lambda session: bool(getattr(session, "is_alive", True)),
            "clock": self.clock,
            "metrics": self.spark_metrics,
        }
        return SparkRunner(**configs | changes)

    def client(self, holder: str = "compactor-1") -> JobClient:
        return JobClient(
            holder=holder,
            sequencers=self.machine,  # type: ignore[arg-type]
            clock=self.clock,
            entropy=SystemEntropy(),
            metrics=self.metrics,
            limits=self.limits.jobs,
        )

    def merging(
        self, holder: str = "compactor-1", runner: SparkRunner | None = None, client: JobClient | None = None
    ) -> MergeWork:
        return MergeWork(
            place=self.place,
            client=client or self.client(holder),
            spark=runner or self.runner(),
            plan_limits=self.plan_limits,
            clock=self.clock,
            entropy=SystemEntropy(),
            metrics=self.metrics,
            limits=self.limits.merge,
        )

    def keys(self, runner: SparkRunner, client: JobClient | None = None) -> KeyWork:
        return KeyWork(
            place=self.place,
            sequencers=self.machine,  # type: ignore[arg-type]
            client=client or self.client(),
            spark=runner,
            plan_limits=self.key_limits,
            clock=self.clock,
            entropy=SystemEntropy(),
            metrics=self.metrics,
            interval_s=self.key_interval_s,
            limits=self.limits.keys,
        )

    def compactor(self, holder: str = "compactor-1", jobs_max: int = 2, idle_s: float = 600) -> Compactor:
        runner = self.runner()
        client = self.client(holder)
        return Compactor(
            sequencers=self.machine,  # type: ignore[arg-type]
            client=client,
            merging=self.merging(holder, runner, client),
            keys=self.keys(runner, client),
            spark=runner,
            plan_limits=self.plan_limits,
            clock=self.clock,
            metrics=self.metrics,
            missing=lambda: self.missing,
            set_degraded=self.degraded.__setitem__,
            slots=self.slots or JobSlots(jobs_max),
            jobs_max=jobs_max,
            interval_s=0.01,
            idle_s=idle_s,
            limits=self.limits.loop,
        )

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"penstock_compactor_{name}", labels) or 0.0

    def _open_session(self) -> Any:
        self.sessions.append(self.spark)
        return self.spark


async def while_running(compactors: Iterable[Compactor], work: Callable[[], Any]) -> None:
    """Run compactors while `work` is awaited. An error that ends a compactor is raised."""
    running = [asyncio.create_task(compactor.run()) for compactor in compactors]
    working = asyncio.ensure_future(work())
    try:
        await asyncio.wait([working, *running], return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            assert not task.done(), task.exception()
        await working
    finally:
        for task in [working, *running]:
            task.cancel()
        await asyncio.wait([working, *running])
