"""A cluster in memory whose journal is archived and then lost: sequencers, segments in a store, and the new stream."""

import asyncio
from collections.abc import Callable

import msgspec

from penstock.contracts.batches import BatchMeta
from penstock.contracts.commands import (
    AllocateProducer,
    CommitOffsets,
    CommitSegment,
    OffsetToCommit,
    ProducerAllocated,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import new_landed_id, new_segment_id
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.journal import Journal
from penstock.segment import build_segment
from penstock.segment.keys import journal_archive_prefix, segment_key, snapshots_prefix
from penstock_sequencer.storage.journal_marker import JournalIdentity, marker_key
from penstock_sequencer.storage.journal_stream import MADE_BY_REBUILD, FoundStream
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import VirtualClock
from tests.unit.sequencer.sequencer_rig import CLUSTER, SequencerRig

OLD, NEW = "2026-01-01T00:00:00Z", "2026-03-03T00:00:00Z"
TOPIC = "t"


async def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    """Return when the condition holds, in virtual time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.25)


class FakeStreams:
    """A NATS server that may have one stream; it can be ordered to fail at any of its steps."""

    def __init__(self) -> None:
        self.held: MemoryJournalStore | None = None
        self.made_by = ""
        self.began = 0
        self.steps = Steps()

    async def find(self) -> FoundStream | None:
        self.steps.step()
        if self.held is None:
            return None
        return FoundStream(self.held.created, self.made_by, self.began, self.held.last_sequence)

    async def make(self, first_sequence: int, replicas: int) -> FoundStream:
        self.steps.step()
        held = self.held = MemoryJournalStore(NEW)
        held.first_sequence, held.last_sequence = first_sequence, first_sequence - 1
        self.made_by, self.began = MADE_BY_REBUILD, first_sequence
        self.steps.step()
        return FoundStream(NEW, MADE_BY_REBUILD, first_sequence, first_sequence - 1)

    async def journal(self) -> Journal:
        assert self.held is not None, "the stream was made before"
        self.steps.step()
        return MemoryJournal(self.held)


class Steps:
    """Counts steps, and fails before one of them."""

    def __init__(self) -> None:
        self.done = 0
        self.break_before = -1

    def step(self) -> None:
        if self.done == self.break_before:
            raise Unavailable("interrupted")
        self.done += 1


class SteppedStore(MemoryStore):
    """A store that counts puts as steps, before and after their effect."""

    def __init__(self) -> None:
        super().__init__(now_ms=VirtualClock().now_ms)
        self.steps = Steps()

    async def put(self, key, body, *, if_match=None):  # type: ignore[no-untyped-def]
        self.steps.step()
        etag = await super().put(key, body, if_match=if_match)
        self.steps.step()
        return etag

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self._objects.held if key.startswith(prefix))

    def archived(self) -> list[str]:
        return self.keys(journal_archive_prefix("", CLUSTER))

    def snapshots(self) -> list[str]:
        return self.keys(snapshots_prefix("", CLUSTER))

    def damage(self, key: str) -> None:
        held = self._objects.held[key]
        self._objects.held[key] = type(held)(held.data[:-1] + b"?", held.etag, held.modified_ms)

    def copy(self) -> "SteppedStore":
        other = SteppedStore()
        other.fill(self)
        return other

    def contents(self) -> dict[str, object]:
        """The objects by key, each with its version."""
        return dict(self._objects.held)

    def fill(self, source: "SteppedStore") -> None:
        """Copy all objects of the other store."""
        self._objects.held.update(source.contents())


class Flusher:
    """Stores segments of one partition and commits them, as a flusher does."""

    def __init__(self, rig: SequencerRig, store: SteppedStore, name: str = "flusher-1") -> None:
        self.acknowledged: list[tuple[int, BatchMeta]] = []  # with their offsets
        self._rig = rig
        self._store = store
        self._name = name

    async def store(
        self, *batches: BatchMeta, topic: str = TOPIC, ahead_ms: int = 0, is_express: bool = False
    ) -> CommitSegment:
        """A stored segment and its commit, which is not sent yet; its flusher's clock may be ahead."""
        await asyncio.sleep(0.002)  # to the next millisecond
        now_ms = self._rig.clock.now_ms() + ahead_ms
        segment_id = (new_landed_id if is_express else new_segment_id)(now_ms, self._rig.entropy.take(10))
        placed = [(self._rig.topic_id(topic), 0, each, bytes(each.length)) for each in batches]
        built = build_segment(segment_id, writer=self._name, created_ms=now_ms, level=0, batches=placed)
        await self._store.put(segment_key("", CLUSTER, 0, segment_id), built.buffers)
        return CommitSegment(now_ms, segment_id, built.size_bytes, self._name, "z1", built.runs)

    async def produce(self, *batches: BatchMeta, is_express: bool = False) -> None:
        """Store and commit an acknowledged segment."""
        commit = await self.store(*batches, is_express=is_express)
        (outcome,) = await self._rig.client.command([commit], deadline_s=10)
        for batch, result in zip(batches, outcome.runs[0], strict=True):  # type: ignore[union-attr]
            assert not result.rejection
            self.acknowledged.append((result.base_offset, batch))


async def name_old_journal(store: SteppedStore) -> None:
    """Write the marker as a sequencer's first start does."""
    identity = JournalIdentity(f"penstock-journal-{CLUSTER}", OLD)
    await store.put(marker_key(CLUSTER), [msgspec.json.encode(identity)])


async def new_producer(rig: SequencerRig) -> int:
    (outcome,) = await rig.client.command([AllocateProducer(rig.clock.now_ms())], deadline_s=10)
    assert isinstance(outcome, ProducerAllocated)
    return outcome.producer_id


async def commit_offset(rig: SequencerRig, offset: int) -> None:
    """Commit an offset of a group."""
    offsets = [OffsetToCommit(TOPIC, 0, offset, -1, "")]
    await rig.client.command([CommitOffsets(rig.clock.now_ms(), "g", -1, "", None, offsets)], deadline_s=10)
