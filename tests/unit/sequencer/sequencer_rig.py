"""Several sequencers over one bus and one journal in memory, for tests: start them, kill them, send requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from penstock.contracts import codec, subjects
from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import CommitSegment, CreateTopic, GroupProtocol, JoinGroup
from penstock.contracts.entries import Entry, decode_entry
from penstock.contracts.ids import TopicId, new_segment_id, new_topic_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.messages import Advanced
from penstock.objectstore import ObjectStore
from penstock.runtime.bus.bus import Handler, Inbound, Payload, Subscription
from penstock.runtime.process.health import Health
from penstock_sequencer.custodian.fork_capture import Capture, capture_inline
from penstock_sequencer.custodian.snapshot_schedule import SnapshotSettings
from penstock_sequencer.limits import SequencerLimits
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.service import Sequencer, no_answers
from penstock_sequencer.serving.request_server import RequestServer
from tests.testkit.every_sender import EverySender
from tests.testkit.fakes.memory_bus import MemoryBus, MemoryHub
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import CountingEntropy, VirtualClock

CLUSTER = "test"
ADVANCED = subjects.advanced(CLUSTER)


class HeldJournal(MemoryJournal):
    """Accepts appends only while its gate is open."""

    def __init__(self, store: MemoryJournalStore) -> None:
        super().__init__(store)
        self.gate = asyncio.Event()

    async def append(self, entry_id: str, data: bytes) -> int:
        await self.gate.wait()
        return await super().append(entry_id, data)


class RecordingJournal(MemoryJournal):
    """Keeps the bytes of every attempt to append, even of failed ones."""

    def __init__(self, store: MemoryJournalStore) -> None:
        super().__init__(store)
        self.attempts: list[bytes] = []

    async def append(self, entry_id: str, data: bytes) -> int:
        self.attempts.append(data)
        return await super().append(entry_id, data)


class NoSubscription:
    """The subscription of a process that accepts no requests."""

    async def unsubscribe(self) -> None:
        """Do nothing."""


class GatedBus:
    """The bus of a sequencer; its requests can be held back, as if the process did not read its socket."""

    def __init__(self, bus: MemoryBus, *, takes_requests: bool = True) -> None:
        self.arrived: list[str] = []  # the subjects of requests since the gate was first closed
        self._bus = bus
        self._takes_requests = takes_requests
        self._was_closed = False
        self._open = asyncio.Event()
        self._open.set()

    @property
    def message_bytes_max(self) -> int:
        return self._bus.message_bytes_max

    @property
    def is_connected(self) -> bool:
        return self._bus.is_connected

    def close_gate(self) -> None:
        """Hold back the requests that arrive from now on."""
        self._was_closed = True
        self._open.clear()

    def open_gate(self) -> None:
        """Deliver the requests that were held back."""
        self._open.set()

    async def publish(self, subject: str, data: Payload) -> None:
        await self._bus.publish(subject, data)

    async def request(self, subject: str, data: Payload, timeout_s: float) -> bytes:
        return await self._bus.request(subject, data, timeout_s)

    async def subscribe(
        self, subject: str, handler: Handler, queue: str = "", *, may_be_denied: bool = False
    ) -> Subscription:
        if not queue:
            return await self._bus.subscribe(subject, handler)
        if not self._takes_requests:
            return NoSubscription()

        async def pass_on(message: Inbound) -> None:
            if self._was_closed:
                self.arrived.append(subject)
            await self._open.wait()
            await handler(message)

        return await self._bus.subscribe(subject, pass_on, queue)

    async def flush(self) -> None:
        await self._bus.flush()

    async def run_until_closed(self) -> None:
        await self._bus.run_until_closed()

    async def close(self) -> None:
        await self._bus.close()


class FreezingClock(VirtualClock):
    """The clock of one process that can be stopped: a frozen clock shows no time, and after that all of it at once."""

    def __init__(self) -> None:
        self.ahead_ms = 0  # of all other clocks
        self._frozen_s: float | None = None
        self._skipped_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self._skipped_s if self._frozen_s is None else self._frozen_s

    def skip(self, duration_s: float) -> None:
        """Let time pass in this moment, without a turn for any task."""
        self._skipped_s += duration_s

    def freeze(self) -> None:
        self._frozen_s = self.monotonic_s()

    def thaw(self) -> None:
        self._frozen_s = None


class Running:
    """One sequencer and the task that runs it."""

    def __init__(
        self, name: str, rig: "SequencerRig", known_level: int = NEWEST_LEVEL, *, takes_requests: bool = True
    ) -> None:
        self.name = name
        self.bus: MemoryBus = rig.hub.connect(name)
        self.gate = GatedBus(self.bus, takes_requests=takes_requests)
        self.journal = rig.make_journal(rig.store)
        self.registry = CollectorRegistry()
        self.clock = FreezingClock()
        self.health = Health()
        self.sequencer = Sequencer(
            journal=self.journal,
            bus=self.gate,
            cluster=CLUSTER,
            author=f"{name}.{rig.entropy.take(2).hex()}",
            clock=self.clock,
            entropy=rig.entropy,
            metrics=SequencerMetrics(self.registry),
            store=rig.objects,
            snapshots=rig.snapshots,
            known_level=known_level,
            health=self.health,
            capture=rig.capture,
            limits=rig.limits,
            make_request_server=rig.make_request_server,
            until_answered=rig.until_answered,
        )
        self.task = asyncio.create_task(self.sequencer.run())

    @property
    def applied(self) -> int:
        return self.sequencer.replica.applied_sequence

    def metric(self, name: str) -> float:
        value = self.registry.get_sample_value(f"penstock_sequencer_{name}")
        assert value is not None, f"there is no metric {name}"
        return value

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


class SequencerRig:
    """The bus, the journal and the sequencers on them."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.entropy = CountingEntropy()
        self.hub = MemoryHub()
        self.store = MemoryJournalStore()
        self.make_journal: Callable[[MemoryJournalStore], MemoryJournal] = MemoryJournal
        self.objects: ObjectStore | None = None  # with a store they archive, take snapshots and trim the journal
        self.snapshots = SnapshotSettings()
        self.capture: Capture = capture_inline
        self.limits = SequencerLimits()
        self.make_request_server: Callable[..., RequestServer] = RequestServer
        self.until_answered: Callable[[], Coroutine[Any, Any, object]] = no_answers
        self.running: dict[str, Running] = {}
        self.client_bus = self.hub.connect("client")
        self.client = EverySender(self.client_bus, CLUSTER, self.clock)

    async def start(self, name: str, known_level: int = NEWEST_LEVEL, *, takes_requests: bool = True) -> Running:
        """Start a sequencer that serves; one that takes no requests still hears the other replicas."""
        running = self.running[name] = Running(name, self, known_level, takes_requests=takes_requests)
        serving = asyncio.create_task(running.sequencer.until_serving())
        await asyncio.wait({serving, running.task}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        if running.task.done():
            del self.running[name]
            running.task.result()
        return running

    @property
    def level(self) -> int:
        """The cluster's level, which all replicas have reached."""
        return min(running.sequencer.replica.state.level for running in self.running.values())

    async def kill(self, name: str) -> None:
        """End the process in the middle of its work."""
        self.hub.kill(name)
        await self.running.pop(name).end()

    def advanced(self) -> list[Advanced]:
        """All announcements, in order."""
        return [codec.decode(data, Advanced) for subject, data in self.hub.published if subject == ADVANCED]

    def entries(self) -> list[Entry]:
        """The journal's entries."""
        stored = [self.store.entry(sequence) for sequence in range(1, self.store.last_sequence + 1)]
        return [decode_entry(data) for data in stored if data is not None]

    def create_topic(self, name: str, partitions: int = 1) -> CreateTopic:
        return CreateTopic(self.clock.now_ms(), name, self.topic_id(name), partitions, {})

    def topic_id(self, name: str) -> TopicId:
        return new_topic_id(name.encode().ljust(16, b".")[:16])

    def commit(self, name: str, batches: int = 1) -> CommitSegment:
        """Commit a new segment with batches of one record each."""
        now_ms = self.clock.now_ms()
        metas = [BatchMeta(100, 1, now_ms, -1, -1, -1, 0)] * batches
        runs = [BatchRun(self.topic_id(name), 0, 16, metas)]
        segment_id = new_segment_id(now_ms, self.entropy.take(10))
        return CommitSegment(now_ms, segment_id, 100 * batches + 64, "flusher-1", "z1", runs)

    def join(self, group_id: str, member_id: str, session_timeout_ms: int = 10_000) -> JoinGroup:
        return JoinGroup(
            self.clock.now_ms(),
            group_id,
            "",
            member_id,
            None,
            False,
            "client",
            "host",
            session_timeout_ms,
            60_000,
            "consumer",
            [GroupProtocol("range", b"")],
        )


@contextlib.asynccontextmanager
async def rig(
    *names: str, objects: ObjectStore | None = None, limits: SequencerLimits | None = None
) -> AsyncIterator[SequencerRig]:
    """A rig with these sequencers serving; all of it is stopped afterwards."""
    built = SequencerRig()
    built.objects = objects
    built.limits = limits or built.limits
    try:
        for name in names:
            await built.start(name)
        yield built
    finally:
        for running in built.running.values():
            await running.end()
            await running.bus.close()
        await built.client_bus.close()
