"""A sequencer stops when the store names another journal, and for no lesser reason."""

import asyncio

import msgspec
import pytest

from penstock.contracts.errors import Unavailable
from penstock.contracts.subjects import journal_stream
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.process.health import Health
from penstock_sequencer.journal_guard.identity import MARKER_INTERVAL_S, IdentityWatch
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.storage.journal_marker import JournalIdentity, marker_key
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.sequencer_rig import CLUSTER

OURS, OTHER = "2026-01-01T00:00:00Z", "2026-03-03T00:00:00Z"
KEY = marker_key(CLUSTER)


class MutedStore(MemoryStore):
    """A store that can be ordered not to answer."""

    is_muted = False

    async def get(self, key: str) -> bytes:
        if self.is_muted:
            raise Unavailable("no answer")
        return await super().get(key)


def identity(created: str) -> bytes:
    return msgspec.json.encode(JournalIdentity(journal_stream(CLUSTER), created))


async def watched(health: Health | None = None) -> tuple[MutedStore, "asyncio.Task[None]"]:
    """A store with this cluster's marker, and the watch over it after its first look."""
    store = MutedStore()
    await store.put(KEY, [identity(OURS)])
    watch = IdentityWatch(
        store=store,
        cluster=CLUSTER,
        journal=MemoryJournal(MemoryJournalStore(OURS)),
        set_degraded=(health or Health()).set_degraded,
    )
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(1)
    return store, task


async def name_other(store: MutedStore) -> None:
    await store.delete([KEY])
    await store.put(KEY, [identity(OTHER)])


@in_virtual_time
async def test_it_halts_soon_after_the_store_names_another_journal_and_names_the_way_back() -> None:
    store, task = await watched()
    await asyncio.sleep(10 * MARKER_INTERVAL_S)
    assert not task.done()
    await name_other(store)
    with pytest.raises(Halted, match="names the journal made at 2026-03-03") as halted:
        async with asyncio.timeout(30):
            await task
    assert identity(OURS).decode() in str(halted.value)


@in_virtual_time
async def test_a_missing_damaged_or_unreadable_marker_halts_no_sequencer_and_is_read_again() -> None:
    store, task = await watched()
    store.is_muted = True
    await asyncio.sleep(2 * MARKER_INTERVAL_S)
    store.is_muted = False
    await store.delete([KEY])
    await asyncio.sleep(2 * MARKER_INTERVAL_S)
    await store.put(KEY, [b"?"])
    await asyncio.sleep(2 * MARKER_INTERVAL_S)
    assert not task.done()
    await name_other(store)
    with pytest.raises(Halted):
        async with asyncio.timeout(30):
            await task


@in_virtual_time
async def test_a_store_that_lost_its_objects_is_reported_within_a_minute_and_so_is_their_return() -> None:
    health = Health()
    store, task = await watched(health)
    await store.delete([KEY])
    await asyncio.sleep(60)
    assert (health.degraded, f"has lost {KEY}" in str(health.report())) == (["store"], True)
    await store.put(KEY, [identity(OURS)])
    await asyncio.sleep(60)
    assert health.degraded == []
    store.is_muted = True
    await asyncio.sleep(60)
    assert (health.degraded, "no answer" in str(health.report())) == (["store"], True)
    store.is_muted = False
    await asyncio.sleep(60)
    assert (health.degraded, task.done()) == ([], False)
    task.cancel()
