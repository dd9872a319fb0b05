"""Janitors in virtual time on the real state machine, with a bus and a bucket in memory. Any call may crash one."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from penstock.contracts import codec, subjects
from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import (
    AlterConfigs,
    Command,
    CommandReply,
    CommandRequest,
    CommitSegment,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
    DeleteTopic,
    Done,
    Outcome,
    RaiseLevel,
    Rejected,
    Tick,
    TopicCreated,
)
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.ids import NO_TOPIC_ID, SegmentId, TopicId, new_segment_id, new_topic_id
from penstock.contracts.levels import NEWEST_LEVEL, level_of
from penstock.contracts.queries.janitor import JournalQuery, JournalView
from penstock.contracts.rejections import Rejection
from penstock.objectstore import NotDeleted, Throttled, Unfinished
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.store import LIST_LIMIT_MAX, Listing, PartedPut
from penstock.runtime.bus.bus import Handler, Inbound, Payload, Subscription
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.segment.keys import SHARDS, segment_key
from penstock_janitor.app import JanitorLimits, build_janitor
from penstock_janitor.config import JanitorConfig
from penstock_janitor.coordination.guard import marker_key
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.rules.journal import Identity
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits
from penstock_sequencer.serving.query_table import QUERY_HANDLERS
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.testkit.fakes.virtual_time import START_MS, VirtualClock

CLUSTER = "test"
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
GRACE_S = 600.0
SEGMENT_BYTES = 100
IDENTITY = Identity(subjects.journal_stream(CLUSTER), "2026-01-01T00:00:00Z")


class Crash(BaseException):
    """The process has crashed: none of its later calls has an effect."""


class CrashPlan:
    """Crashes a janitor at a call with the given name, before or after the call's effect. Counts all calls."""

    def __init__(self, name: str = "", occurrence: int = 1, *, after: bool = False) -> None:
        self.calls: Counter[str] = Counter()
        self._name = name
        self._occurrence = occurrence
        self._after = after
        self.has_crashed = False
        self.in_flight = 0

    async def call(self, name: str, work: Callable[[], Any]) -> Any:
        self._check_alive()
        self.calls[name] += 1
        is_last = name == self._name and self.calls[name] == self._occurrence
        if is_last and not self._after:
            self._crash()
        self.in_flight += 1
        try:
            result = await work()
        finally:
            self.in_flight -= 1
        self._check_alive()
        if is_last:
            self._crash()
        return result

    def _check_alive(self) -> None:
        if self.has_crashed:
            raise Crash

    def _crash(self) -> None:
        self.has_crashed = True
        raise Crash


class CrashingBus:
    """A janitor's bus. The janitor may crash at each request."""

    def __init__(self, inner: Any, plan: CrashPlan) -> None:
        self._inner = inner
        self._plan = plan
        self.message_bytes_max = inner.message_bytes_max
        self.is_connected = True

    async def request(self, subject: str, data: Payload, timeout_s: float) -> bytes:
        name = subject.rpartition(".")[2]
        if subject == subjects.sequencer_command(CLUSTER, subjects.Sender.JANITOR):
            name = "+".join(dict.fromkeys(type(each).__name__ for each in codec.decode(data, CommandRequest).commands))
        answer: bytes = await self._plan.call(name, lambda: self._inner.request(subject, data, timeout_s))
        return answer

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        subscription: Subscription = await self._inner.subscribe(subject, handler, queue)
        return subscription


class CheckedStore:
    """The bucket of all janitors: records deletions, fails if a test wants it, and checks that no live object goes."""

    def __init__(self, world: "World") -> None:
        self.objects = MemoryStore(now_ms=world.clock.now_ms)
        self.deleted: list[str] = []  # keys in the order of the requests, also those that failed
        self.rejected: set[str] = set()  # keys that cannot be deleted
        self.kept_uploads: set[str] = set()  # keys whose uploads cannot be aborted
        self.throttled = 0  # the number of next deletions that are throttled
        self.delete_times_s: list[float] = []
        self._world = world

    async def delete(self, keys: Sequence[str]) -> None:
        self.delete_times_s.append(asyncio.get_running_loop().time())
        if self.throttled:
            self.throttled -= 1
            raise Throttled("503 SlowDown")
        self.deleted += keys
        self._world.check_dead(keys)
        left = [key for key in keys if key in self.rejected]
        await self.objects.delete([key for key in keys if key not in self.rejected])
        if left:
            raise NotDeleted("access denied", left, left)

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        if unfinished.key in self.kept_uploads:
            raise Invalid("access denied")
        await self.objects.abort_unfinished(unfinished)

    async def keys(self) -> list[str]:
        return [info.key for info in await self.objects.list("")]


class CrashingStore:
    """One janitor's access to the bucket. The janitor may crash at each call."""

    def __init__(self, shared: CheckedStore, plan: CrashPlan) -> None:
        self._shared = shared
        self._objects = shared.objects
        self._plan = plan

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        raise AssertionError("a janitor stores nothing")

    async def get(self, key: str) -> bytes:
        data: bytes = await self._plan.call("get", lambda: self._objects.get(key))
        return data

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        raise AssertionError("a janitor reads no segment")

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        name = "list shard" if "/segments/" in prefix else "list"
        listing: Listing = await self._plan.call(name, lambda: self._objects.list(prefix, after, limit))
        return listing

    async def delete(self, keys: Sequence[str]) -> None:
        await self._plan.call("delete", lambda: self._shared.delete(keys))

    async def begin_parts(self, key: str, part_bytes: int) -> PartedPut:
        raise AssertionError("a janitor stores nothing")

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        uploads: Sequence[Unfinished] = await self._plan.call(
            "unfinished", lambda: self._objects.unfinished(prefix, limit)
        )
        return uploads

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        await self._plan.call("abort_unfinished", lambda: self._shared.abort_unfinished(unfinished))

    async def close(self) -> None:
        """There is nothing to close."""


class SeededEntropy:
    """`Entropy` that is the same in every run."""

    def __init__(self) -> None:
        self._random = random.Random(7)

    def take(self, count: int) -> bytes:
        return self._random.randbytes(count)


class WrongClock(VirtualClock):
    """A janitor's clocks: the wall clock is wrong, and the monotonic clock is right."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Running:
    """One janitor and the task that runs it."""

    def __init__(self, world: "World", name: str, plan: CrashPlan, ahead_ms: int, settings: dict[str, Any]) -> None:
        self.name = name
        self.plan = plan
        self.registry = CollectorRegistry()
        self.degraded: dict[str, str] = {}  # part of the janitor -> why it is degraded, or "" if it is not
        self.clock = WrongClock(ahead_ms)
        config = JanitorConfig(cluster=CLUSTER, instance=name, **settings)
        bus: Any = CrashingBus(world.hub.connect(name), plan)
        self.janitor = build_janitor(
            config=config,
            bus=bus,
            sequencers=SequencerClient(bus, CLUSTER, self.clock, sender=subjects.Sender.JANITOR),
            store=CrashingStore(world.store, plan),
            clock=self.clock,
            entropy=world.entropy,
            metrics=JanitorMetrics(self.registry),
            set_degraded=self.degraded.__setitem__,
            limits=world.limits,
        )
        self.task = asyncio.create_task(self.janitor.run())

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"penstock_janitor_{name}", labels) or 0.0


class World:
    """A cluster: topics, segments, sequencers that answer, a bucket, and janitors."""

    def __init__(self, core_limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = JanitorLimits()  # of janitors that start from now on
        self.clock = VirtualClock()
        self.entropy = SeededEntropy()
        self.shards = range(SHARDS)  # the shards of new segments
        self.query_step_ms = 0  # if not 0, the journal's clock advances by this at each query, and only then
        self.hub = MemoryHub()
        self.state: State = new_state(core_limits)
        self.identity = IDENTITY
        self.journal_ahead_ms = 0
        self.takes_snapshots = True
        self.is_down = False
        self.rejects: tuple[type[Command], ...] = ()  # kinds of commands
        self.store = CheckedStore(self)
        self.running: dict[str, Running] = {}
        self.applied: list[Command] = []
        self.client = self.hub.connect("client")
        self._bus = self.hub.connect("sequencer")

    async def open(self) -> None:
        queue = subjects.SEQUENCER_QUEUE
        await self._bus.subscribe(
            subjects.sequencer_command(CLUSTER, subjects.Sender.JANITOR), self._take_commands, queue
        )
        for name in QUERY_HANDLERS:
            await self._bus.subscribe(subjects.sequencer_query(CLUSTER, name), self._take_query, queue)
        await self.write_marker(IDENTITY)

    def raise_level(self, level: int) -> None:
        """Raise the cluster's level to this one, step by step."""
        for each in range(self.state.level + 1, level + 1):
            self._apply([RaiseLevel(0, each)])

    async def write_marker(self, identity: Identity) -> None:
        await self.store.objects.delete([marker_key(CLUSTER)])
        await self.store.objects.put(marker_key(CLUSTER), [msgspec.json.encode(identity)])

    # The sequencers

    async def _take_commands(self, message: Inbound) -> None:
        if self.is_down:
            return
        commands = codec.decode(message.data, CommandRequest).commands
        failure = None if level_of(commands) <= self.state.level else f"commands of level {level_of(commands)}"
        outcomes = self._outcomes(commands) if failure is None else []
        await message.respond(codec.encode(CommandReply(self.state.sequence, outcomes, failure, self.state.clock_ms)))

    def _outcomes(self, commands: list[Command]) -> list[Outcome]:
        """The outcomes of the state machine, or rejections of the kinds of commands that the test rejects."""
        accepted = iter(self.apply(*(each for each in commands if not isinstance(each, self.rejects))))
        rejected = Rejected(Rejection.INVALID_REQUEST)
        return [rejected if isinstance(each, self.rejects) else next(accepted) for each in commands]

    async def _take_query(self, message: Inbound) -> None:
        if self.is_down:
            return
        self.tick()
        name = message.subject.rpartition(".")[2]
        query = codec.decode(message.data, QUERY_HANDLERS[name].kind)
        if isinstance(query, JournalQuery):
            answer: Any = JournalView(self.state.sequence, self.identity.stream, self.identity.created)
        else:
            assert query.min_sequence <= self.state.sequence
            answer = QUERY_HANDLERS[name].answer(self.state, query)  # type: ignore[misc]
        await message.respond(codec.encode(answer))

    def tick(self) -> None:
        """Set the journal's clock to the world's clock, ahead of it by `journal_ahead_ms`."""
        if self.query_step_ms:
            self._apply([Tick(self.state.clock_ms + self.query_step_ms)])
            return
        now_ms = self.clock.now_ms() + self.journal_ahead_ms
        if now_ms - self.state.clock_ms >= SECOND_MS:
            self._apply([Tick(now_ms)])

    def apply(self, *commands: Command) -> list[Outcome]:
        self.tick()
        self.applied += commands
        return self._apply(list(commands))

    def _apply(self, commands: list[Command]) -> list[Outcome]:
        ((outcomes,), _) = apply_entry(self.state, self.state.sequence + 1, [commands])
        if self.takes_snapshots:
            self.state.custody.snapshots = [self.state.sequence - 1, self.state.sequence]
        return outcomes

    # The data of the cluster

    def create_topic(self, name: str, *, partitions: int = 1, **configs: str) -> TopicId:
        topic_id = new_topic_id(name.encode().ljust(16, b".")[:16])
        named = {key.replace("_", "."): value for key, value in configs.items()}
        (outcome,) = self.apply(CreateTopic(0, name, topic_id, partitions, named))
        assert isinstance(outcome, TopicCreated), outcome
        return topic_id

    def alter(self, name: str, **configs: str) -> None:
        changes = [ConfigChange(key.replace("_", "."), ConfigOperation.SET, value) for key, value in configs.items()]
        (outcome,) = self.apply(AlterConfigs(0, name, changes))
        assert isinstance(outcome, Done), outcome

    def delete_topic(self, name: str) -> None:
        self.apply(DeleteTopic(0, name, NO_TOPIC_ID))

    async def flush(self, *topics: str, timestamp_ms: int | None = None, partition: int = 0) -> str:
        """Store and commit a segment with a batch of one record for each topic; return its key."""
        command = await self.upload(*topics, timestamp_ms=timestamp_ms, partition=partition)
        self.apply(command)
        return segment_key("", CLUSTER, 0, command.segment_id)

    async def upload(self, *topics: str, timestamp_ms: int | None = None, partition: int = 0) -> CommitSegment:
        """Store a segment; return the command that commits it."""
        now_ms = self.clock.now_ms() + self.journal_ahead_ms
        segment_id = self.new_id(now_ms)
        when_ms = now_ms if timestamp_ms is None else timestamp_ms
        runs = []
        for position, topic_id in enumerate(sorted(self.state.topics[name].topic_id for name in topics)):
            runs.append(BatchRun(topic_id, partition, position * SEGMENT_BYTES, [_batch(when_ms)]))
        await self.put(segment_id)
        return CommitSegment(now_ms, segment_id, SEGMENT_BYTES * len(topics), "flusher-1", "z1", runs)

    async def put(self, segment_id: SegmentId, level: int = 0) -> str:
        """Store an object without a commit; return its key."""
        key = segment_key("", CLUSTER, level, segment_id)
        await self.store.objects.put(key, [bytes(SEGMENT_BYTES)])
        return key

    def new_id(self, born_ms: int) -> SegmentId:
        while True:
            segment_id = new_segment_id(born_ms, self.entropy.take(10))
            if int(segment_key("", CLUSTER, 0, segment_id).split("/")[2]) in self.shards:
                return segment_id

    # Janitors

    def start(
        self, name: str = "janitor-1", *, plan: CrashPlan | None = None, ahead_ms: int = 0, **settings: Any
    ) -> Running:
        running = self.running[name] = Running(self, name, plan or CrashPlan(), ahead_ms, settings)
        return running

    async def stop(self, name: str) -> None:
        """Stop a janitor as SIGTERM does: it drains, then it ends."""
        running = self.running.pop(name)
        await running.janitor.drain()
        await _end(running.task)
        self.hub.kill(name)

    async def kill(self, name: str) -> None:
        """End a janitor's process without a drain."""
        running = self.running.pop(name)
        self.hub.kill(name)
        await _end(running.task)

    async def until_crashed(self, name: str) -> None:
        await asyncio.wait([self.running[name].task])
        assert self.running[name].plan.has_crashed, self.running[name].task.exception()
        await self.kill(name)

    async def go_on(self, seconds: float) -> None:
        """Let time pass. An error that ends a janitor is raised."""
        tasks = [running.task for running in self.running.values()]
        passing = asyncio.create_task(asyncio.sleep(seconds))
        await asyncio.wait([passing, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        await passing

    async def pass_by(self, seconds: float) -> None:
        """Let time pass, in which janitors may crash."""
        await asyncio.sleep(seconds)

    # Checks

    def check_dead(self, keys: Sequence[str]) -> None:
        """Check that no live extent points to any of these objects."""
        live = {key for key, count in self.live().items() if count}
        assert not live.intersection(keys), "a live object is deleted"

    def live(self) -> dict[str, int]:
        """The number of live extents of every segment in the table, by key."""
        from penstock.contracts.queries.compaction import SegmentsQuery

        view = QUERY_HANDLERS["segments"].answer(self.state, SegmentsQuery(0, 0, [], 5_000, dead=True))  # type: ignore[misc]
        return {
            segment_key("", CLUSTER, each.level, each.segment_id): each.live_extents
            for each in view.segments  # type: ignore[attr-defined]
        }


def _batch(timestamp_ms: int) -> BatchMeta:
    return BatchMeta(SEGMENT_BYTES, 1, timestamp_ms, -1, -1, -1, 0)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None and not _is_crash(error):
        raise error


def _is_crash(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_crash, error.exceptions))
    return isinstance(error, Crash)


@contextlib.asynccontextmanager
async def world(level: int = NEWEST_LEVEL, core_limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[World]:
    """An empty world, whose janitors end with the block."""
    built = World(core_limits)
    await built.open()
    built.raise_level(level)
    try:
        yield built
    finally:
        for name in list(built.running):
            await built.kill(name)
        await built.hub.close()


__all__ = [
    "CLUSTER",
    "GRACE_S",
    "HOUR_MS",
    "IDENTITY",
    "MINUTE_MS",
    "SEGMENT_BYTES",
    "START_MS",
    "Crash",
    "CrashPlan",
    "Running",
    "Unavailable",
    "World",
    "world",
]
