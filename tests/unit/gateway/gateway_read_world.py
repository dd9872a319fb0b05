"""The world of the read path's tests: the real state machine, segments in memory, a bus, and a gateway."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

from penstock.contracts import subjects
from penstock.contracts.batches import BatchMeta, Extent, SegmentRef
from penstock.contracts.codec import Buffer, encode
from penstock.contracts.commands import (
    Command,
    CommandReply,
    CommitSegment,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    LogOffset,
    LogsTrimmed,
    Outcome,
    TopicCreated,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import DEFAULT_POOL, TopicId, new_segment_id
from penstock.contracts.messages import Advanced, Presence
from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.kafkawire.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.kafkawire.records import Record, batches, build_batch, decode_records, is_transactional, read_batch_header
from penstock.objectstore import ObjectStore
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock.segment.keys import segment_key
from penstock.segment.writer import build_segment
from penstock_gateway.fetch.catch_up_throttle import CatchUpThrottle
from penstock_gateway.fetch.log_reader import LogReader, Segments
from penstock_gateway.handlers.data import fetch, list_offsets
from penstock_gateway.kafka.broker_view import node_of
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import BrokerSettings
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.parts import GatewayLimits, GatewayParts, SharedParts
from penstock_gateway.segments.segment_reader import SegmentReader
from penstock_gateway.tail.tail_index import TailIndex
from penstock_gateway.tail.tail_subscriber import TailSubscriber
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.testkit.waiting import until

CLUSTER = "c"
ZONE = "z"
UNSENT_BYTES_MAX = 1024
START_MS = 1_700_000_000_000


class LoopClock:
    """The event loop's time; the wall clock starts at START_MS, and the test moves it."""

    def __init__(self) -> None:
        self.later_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.later_ms

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


class CountingEntropy:
    """Counts, so that each fetch starts at the next partition."""

    def __init__(self) -> None:
        self.count = -1

    def take(self, count: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(count)


class FixedDirectory:
    """Exactly the instances that a test names."""

    def __init__(self) -> None:
        self.cachers: list[str] = []
        self.gateways: list[str] = []
        self._callbacks: list[Callable[[], None]] = []

    def live(self, role: str, zone: str | None = None, pool: str | None = None) -> list[Presence]:
        if role == "gateway":
            return [Presence(role, ZONE, name, "1") for name in self.gateways]
        assert (role, zone, pool) == ("cacher", ZONE, DEFAULT_POOL)
        return [Presence(role, ZONE, name, "1") for name in self.cachers]

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def change(self, cachers: list[str]) -> None:
        self.cachers = cachers
        for callback in self._callbacks:
            callback()


class CoreSequencer:
    """The state machine without a journal. Its answers may come from an older state, as from a slow replica."""

    def __init__(self) -> None:
        self.state: State = new_state()
        self.entries: list[list[Command]] = []
        self.behind: State | None = None  # answers queries that are not fresh and whose sender has seen nothing newer
        self.seen_sequence = 0
        self.seen_level: int | None = None
        self.asked: list[str] = []
        self.is_down = False
        self.gate = asyncio.Event()
        self.gate.set()

    def record_sequence(self, sequence: int) -> None:
        self.seen_sequence = max(self.seen_sequence, sequence)

    def record_level(self, level: int) -> None:
        self.seen_level = max(self.seen_level or 0, level)

    def apply(self, commands: list[Command]) -> tuple[list[Outcome], Advanced]:
        self.entries.append(commands)
        (outcomes,), effects = apply_entry(self.state, len(self.entries), [commands])
        letters = len(self.state.dead_letters)
        announced = Advanced(
            len(self.entries), effects.partitions, effects.topics, self.state.level, dead_letter_groups=letters
        )
        return outcomes, announced

    def fall_behind(self) -> None:
        self.behind = new_state(self.state.limits)
        for sequence, commands in enumerate(self.entries, 1):
            apply_entry(self.behind, sequence, [commands])

    async def command(self, commands: list[Command], *, deadline_s: float) -> list[Outcome]:
        outcomes, _ = self.apply(commands)
        self.record_sequence(len(self.entries))
        return outcomes

    async def command_reply(self, commands: list[Command], *, deadline_s: float) -> CommandReply:
        outcomes = await self.command(commands, deadline_s=deadline_s)
        return CommandReply(self.seen_sequence, outcomes)

    async def query(self, name: str, query: Any, view: type[Any], *, deadline_s: float = 10.0) -> Any:
        self.asked.append(name)
        await self.gate.wait()
        if self.is_down:
            raise Unavailable("no sequencer answered")
        state = self.state
        wants_newest = getattr(query, "fresh", False)
        if self.behind is not None and self.behind.sequence >= self.seen_sequence and not wants_newest:
            state = self.behind
        answer = getattr(queries, name)(state, query)
        self.record_sequence(answer.sequence)
        return answer


class World:
    """A gateway's read path with all parts that it needs."""

    def __init__(
        self,
        bus: Bus | None = None,
        publisher: Bus | None = None,
        *,
        limits: GatewayLimits | None = None,
        store: ObjectStore | None = None,
        wrap_segments: Callable[[Segments], Segments] = lambda segments: segments,
        bytes_per_second: int = 0,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        make_traces: Callable[[Clock], Traces] = lambda clock: NO_TRACES,
    ) -> None:
        limits = limits or GatewayLimits()
        hub = MemoryHub()
        self.bus = bus or hub.connect("gateway")
        self.publisher = publisher or hub.connect("sequencer")
        self.store = store or MemoryStore()
        self.sequencer = CoreSequencer()
        self.directory = FixedDirectory()
        self.clock = LoopClock()
        self.traces = make_traces(self.clock)
        self.entropy = CountingEntropy()
        self.registry = CollectorRegistry()
        self.metrics = GatewayMetrics(self.registry)
        self.topics = TopicCache(cast(Any, self.sequencer))
        self.tail = TailSubscriber(
            bus=self.bus,
            cluster=CLUSTER,
            clock=self.clock,
            sequencer=self.sequencer,
            topics=self.topics,
            registry=self.registry,
            index=TailIndex(limits.tail, monotonic_s=self.clock.monotonic_s),
            record_changed_topics=self.metrics.topic_bytes.record_changed,
        )
        self.response_memory = ResponseMemory(unsent_bytes_max)
        self.segment_reader = SegmentReader(
            bus=self.bus,
            cluster=CLUSTER,
            zone=ZONE,
            pool=DEFAULT_POOL,
            directory=self.directory,
            store=self.store,
            clock=self.clock,
            registry=self.registry,
            limits=limits.segments,
            traces=self.traces,
        )
        self.throttle = CatchUpThrottle(bytes_per_second, self.clock, limits.read.throttle)
        self.log_reader = LogReader(
            segments=wrap_segments(self.segment_reader),
            clock=self.clock,
            response_memory=self.response_memory,
            throttle=self.throttle,
            limits=limits.read,
        )
        self.client = Client(host="127.0.0.1", zone=ZONE)
        self.segments = 0
        self.gateway = self.new_gateway(limits)

    def new_gateway(self, limits: GatewayLimits | None = None) -> GatewayParts:
        """A gateway on the read path of this world. Several gateways share all parts except those of share groups."""
        none = cast(Any, None)
        return GatewayParts.build(
            SharedParts(
                settings=BrokerSettings(cluster=CLUSTER, zone=ZONE, share_groups=True),
                nodes={"PLAINTEXT": node_of("127.0.0.1", 9092, ZONE)},
                clock=self.clock,
                entropy=self.entropy,
                directory=cast(Any, self.directory),
                sequencer=cast(Any, self.sequencer),
                transaction_commands=none,
                topics=self.topics,
                tail=self.tail,
                log_reader=self.log_reader,
                response_memory=self.response_memory,
                metrics=self.metrics,
                quotas=none,
                security=none,
                delegation_tokens=none,
                telemetry=none,
                authorizer=none,
                logins=none,
                traces=self.traces,
            ),
            flush_router=none,
            limits=limits or GatewayLimits(),
        )

    async def open(self, *, partitions: int = 3, name: str = "t") -> TopicId:
        await self.tail.open()
        await self.bus.flush()
        return await self.create(name, partitions)

    async def close(self) -> None:
        await self.tail.close()
        await self.bus.close()
        await self.publisher.close()

    async def create(self, name: str, partitions: int = 1) -> TopicId:
        topic_id = name.encode().ljust(16, b"\1")
        (outcome,) = await self.commit([CreateTopic(START_MS, name, topic_id, partitions, {})])
        assert isinstance(outcome, TopicCreated)
        return topic_id

    async def delete(self, name: str) -> None:
        await self.commit([DeleteTopic(START_MS, name, bytes(16))])

    async def delete_records(self, topic_id: TopicId, offsets: dict[int, int], *, announce: bool = True) -> None:
        """Let logs start at these offsets, by partition."""
        logs = [LogOffset(topic_id, partition, offset) for partition, offset in offsets.items()]
        (outcome,) = await self.commit([DeleteRecords(START_MS, logs)], announce=announce)
        assert isinstance(outcome, LogsTrimmed), outcome
        assert [each.log_start_offset for each in outcome.logs] == list(offsets.values())

    async def commit(self, commands: list[Command], *, announce: bool = True) -> list[Outcome]:
        outcomes, advanced = self.sequencer.apply(commands)
        if announce:
            await self.publisher.publish(subjects.advanced(CLUSTER), encode(advanced))
            await until(lambda: (self.tail.applied_sequence or 0) >= advanced.sequence)
        return outcomes

    async def produce(
        self, topic_id: TopicId, produced: dict[int, Sequence[bytes]], *, announce: bool = True, stored: bool = True
    ) -> SegmentRef:
        """Commit one segment with these batches per partition."""
        self.segments += 1
        now_ms = self.clock.now_ms()
        segment_id = new_segment_id(now_ms, self.segments.to_bytes(10))
        placed = [
            (topic_id, partition, meta_of(batch), cast(Buffer, batch))
            for partition, its_batches in produced.items()
            for batch in its_batches
        ]
        built = build_segment(segment_id, writer="f", created_ms=now_ms, level=0, batches=placed)
        if stored:
            await self.store.put(segment_key("", CLUSTER, 0, segment_id), built.buffers)
        await self.commit(
            [CommitSegment(now_ms, segment_id, built.size_bytes, "f", ZONE, built.runs)], announce=announce
        )
        return SegmentRef(segment_id, 0, built.size_bytes, "f", ZONE)

    async def fetch(self, request: FetchRequest, version: int = 12) -> FetchResponse:
        return await fetch.handle(self.gateway, self.client, version, request)

    async def list_offsets(self, request: ListOffsetsRequest, version: int = 7) -> ListOffsetsResponse:
        return await list_offsets.handle(self.gateway, self.client, version, request)


def batch_of(*values: bytes, timestamps: Sequence[int] = (), codec: int = 0) -> bytes:
    """A batch as a producer sends it, with an arbitrary base offset."""
    times = timestamps or [START_MS] * len(values)
    records = [Record(delta, time, None, value) for delta, (value, time) in enumerate(zip(values, times, strict=True))]
    return build_batch(records, base_offset=7_777, codec=codec)


def meta_of(batch: Buffer) -> BatchMeta:
    header = read_batch_header(batch)
    return BatchMeta(
        len(batch),
        header.record_count,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.attributes,
        adds_partition=is_transactional(header),
    )


def asking(
    offsets: dict[int, int],
    *,
    topic: str = "t",
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_048_576,
    isolation_level: int = 0,
    leader_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """A fetch of one topic from these offsets."""
    partitions = [
        FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=leader_epoch,
        )
        for partition, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )


def partitions_of(response: FetchResponse) -> dict[int, PartitionData]:
    """The answers by partition, with the records of each in one buffer, as a client gets them."""
    return {
        partition.partition_index: msgspec.structs.replace(partition, records=_joined(partition.records))
        for topic in response.responses
        for partition in topic.partitions
    }


def _joined(records: Buffer | list[Buffer] | None) -> Buffer | None:
    return b"".join(records) if isinstance(records, list) else records


def values_of(data: PartitionData) -> dict[int, bytes | None]:
    """The records of an answer, by offset."""
    found: dict[int, bytes | None] = {}
    buffer = bytes(_joined(data.records) or b"")
    for position, header in batches(buffer):
        for record in decode_records(buffer[position:]):
            found[header.base_offset + record.offset_delta] = record.value
    return found


def above_level_0(extent: Extent) -> Extent:
    """The same extent, as if compaction had written it."""
    segment = msgspec.structs.replace(extent.segment, level=1, writer="")
    return msgspec.structs.replace(extent, segment=segment)
