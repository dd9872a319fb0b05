"""A custodian may die at any moment of a snapshot or a purge: the next one loses nothing and continues."""

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.contracts.commands import RecordSnapshot
from penstock.contracts.entries import decode_entry
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import snapshots_prefix
from penstock_sequencer.storage.snapshot_store import find_newest_snapshot, list_snapshots
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.sequencer_rig import CLUSTER
from tests.unit.sequencer.sequencer_stored_rig import StoredRig, stored_rig

SNAPSHOTS = snapshots_prefix("", CLUSTER)
MOMENTS_MIN = 20  # before and after each of ten steps


class Crash:
    """Blocks the task that reaches the moment with this number, for ever."""

    def __init__(self) -> None:
        self.moment = 0
        self._passed = 0
        self.reached = asyncio.Event()

    async def pass_by(self) -> None:
        self._passed += 1
        if self._passed == self.moment:
            self.reached.set()
            await asyncio.Event().wait()


class CrashingStore(MemoryStore):
    """Has a moment before and after every call for snapshots, and before and after every deletion."""

    def __init__(self, crash: Crash) -> None:
        super().__init__()
        self._crash = crash

    async def put(self, key: str, body: Sequence[Any], *, if_match: str | None = None) -> str:
        if not key.startswith(SNAPSHOTS):
            return await super().put(key, body, if_match=if_match)
        await self._crash.pass_by()
        etag = await super().put(key, body, if_match=if_match)
        await self._crash.pass_by()
        return etag

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        await self._crash.pass_by()
        return await super().get_range(key, position, length)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:  # a deletion of many may stop after any of them
            await self._crash.pass_by()
            await super().delete([key])
        await self._crash.pass_by()


class CrashingJournal(MemoryJournal):
    """Has a moment before and after a purge, and before and after the entry that records a snapshot."""

    def __init__(self, store: MemoryJournalStore, crash: Crash) -> None:
        super().__init__(store)
        self._crash = crash

    async def append(self, entry_id: str, data: bytes) -> int:
        commands = [command for request in decode_entry(data).requests for command in request]
        if not any(isinstance(command, RecordSnapshot) for command in commands):
            return await super().append(entry_id, data)
        await self._crash.pass_by()
        sequence = await super().append(entry_id, data)
        await self._crash.pass_by()
        return sequence

    async def purge(self, up_to: int) -> None:
        await self._crash.pass_by()
        await super().purge(up_to)
        await self._crash.pass_by()


async def crashes_at(moment: int) -> bool:
    """Whether a custodian that takes three snapshots has a moment with this number."""
    crash = Crash()
    objects = CrashingStore(crash)
    async with stored_rig(objects=objects) as one:
        one.rig.make_journal = lambda store: CrashingJournal(store, crash)
        await one.rig.start("a")
        crash.moment = moment
        living = asyncio.create_task(live(one))
        reached = asyncio.create_task(crash.reached.wait())
        await asyncio.wait({living, reached}, return_when=asyncio.FIRST_COMPLETED)
        living.cancel()
        reached.cancel()
        await asyncio.gather(living, reached, return_exceptions=True)
        has_crashed = crash.reached.is_set()
        crash.moment = 0
        await one.rig.kill("a")
        await check_that_nothing_is_lost(one)
        await live(one, "b")
        return has_crashed


async def live(one: StoredRig, starts: str = "") -> None:
    if starts:
        one.check(await one.rig.start(starts))
    await one.until_snapshots(3)
    await one.until_trimmed()
    for running in one.rig.running.values():
        one.check(running)
    # A snapshot that was stored and never recorded is newer than the older snapshot, and is deleted later.
    assert set(one.custody.snapshots) <= set(await list_snapshots(one.objects, CLUSTER))


async def check_that_nothing_is_lost(one: StoredRig) -> None:
    found = await find_newest_snapshot(one.objects, CLUSTER)
    assert not found.damaged
    begins_after = 0 if found.snapshot is None else found.snapshot.state.sequence
    assert one.journal.first_sequence <= begins_after + 1
    sequences = range(one.journal.first_sequence, one.journal.last_sequence + 1)
    assert all(one.journal.entry(sequence) for sequence in sequences)


@in_virtual_time
async def test_a_custodian_may_die_at_any_moment() -> None:
    moment = 1
    while await crashes_at(moment):
        moment += 1
    assert moment > MOMENTS_MIN
