"""A rig with an object store that keeps all entries of its journal, for tests of snapshots and the archive."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.contracts.entries import decode_entry
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import journal_archive_prefix, snapshot_key
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.custodian.snapshot_schedule import SnapshotSettings
from tests.testkit.fakes.memory_journal import MemoryJournalStore
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import CLUSTER, Running, SequencerRig, rig

OFTEN = SnapshotSettings(entries=20, interval_ms=600_000)
ARCHIVE = journal_archive_prefix("", CLUSTER)


class KeepingJournalStore(MemoryJournalStore):
    """Keeps purged entries; can hold another entry in place of one."""

    def __init__(self) -> None:
        super().__init__()
        self.all_entries: list[bytes] = []

    def store_entry(self, entry_id: str, data: bytes) -> int:
        sequence = super().store_entry(entry_id, data)
        if sequence > len(self.all_entries):
            self.all_entries.append(data)
        return sequence


class StoredRig:
    """A rig with a store, and all entries of its journal."""

    def __init__(self, built: SequencerRig, objects: MemoryStore) -> None:
        self.rig = built
        self.objects = objects
        self.journal = built.store
        assert isinstance(self.journal, KeepingJournalStore)
        self.all_entries = self.journal.all_entries

    async def work(self, count: int) -> None:
        """Journal this many commits, each in its own entry."""
        if not self.all_entries or "t" not in next(iter(self.rig.running.values())).sequencer.replica.state.topics:
            await self.rig.client.command([self.rig.create_topic("t")], deadline_s=5)
        for _ in range(count):
            await self.rig.client.command([self.rig.commit("t")], deadline_s=5)

    @property
    def custody(self) -> Any:
        return next(iter(self.rig.running.values())).sequencer.replica.state.custody

    async def until_snapshots(self, count: int) -> list[int]:
        """Work until this many more snapshots are recorded; returns the sequences of the two newest."""
        for _ in range(count):
            before = self.custody.snapshots
            await self.work(OFTEN.entries)
            await until(lambda before=before: self.custody.snapshots != before, 60)
        return list(self.custody.snapshots)

    async def until_trimmed(self) -> None:
        await until(lambda: self.journal.first_sequence == self.custody.snapshots[0] + 1, 120)

    async def damage(self, sequence: int) -> None:
        key = snapshot_key("", CLUSTER, sequence)
        data = bytearray(await self.objects.get(key))
        data[-1] ^= 1
        await self.objects.delete([key])
        await self.objects.put(key, [bytes(data)])

    def expected(self, sequence: int) -> bytes:
        """The state after the entry, computed from all entries since the first."""
        state = new_state()
        for number, data in enumerate(self.all_entries[:sequence], 1):
            apply_entry(state, number, decode_entry(data).requests, announce=False)
        return encode_state(state)

    def check(self, running: Running) -> None:
        assert encode_state(running.sequencer.replica.state) == self.expected(running.applied)

    async def keys(self, prefix: str) -> list[str]:
        return [each.key for each in await self.objects.list(prefix)]


@asynccontextmanager
async def stored_rig(*names: str, objects: MemoryStore | None = None) -> AsyncIterator[StoredRig]:
    chosen = MemoryStore() if objects is None else objects
    async with rig(objects=chosen) as built:
        built.store = KeepingJournalStore()
        built.snapshots = OFTEN
        for name in names:
            await built.start(name)
        yield StoredRig(built, chosen)
