"""A rebuild by a release that is too old for the store changes nothing and names the remedy."""

import struct

import crc32c
import pytest

from penstock.contracts.commands import RaiseLevel, Tick
from penstock.contracts.entries import ENTRY_VERSION, Entry, encode_entry
from penstock.contracts.errors import Invalid
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.segment.keys import journal_archive_key, snapshot_key
from penstock_sequencer.rebuild.rebuild import Rebuild
from penstock_sequencer.rebuild.replay import replay_archive
from penstock_sequencer.rebuild.report import Report
from penstock_sequencer.storage.archive_format import Archive, encode_archive
from tests.testkit.fakes.virtual_time import CountingEntropy, VirtualClock, in_virtual_time
from tests.unit.sequencer.rebuild.rebuild_world import OLD, FakeStreams, SteppedStore, name_old_journal, until
from tests.unit.sequencer.sequencer_rig import CLUSTER, rig

UPGRADE = r"Nothing was changed. Rebuild with the release that wrote it, or a newer one"
VERSION_AT = 8  # in archive objects and snapshots, after their magic


async def archived() -> SteppedStore:
    """The store of a cluster whose journal is lost."""
    store = SteppedStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        await until(lambda: store.archived())
        await name_old_journal(store)
    return store


async def archive_next(store: SteppedStore, *commands: RaiseLevel | Tick, version: int = ENTRY_VERSION) -> str:
    """Archive one more entry after all others; returns the key of its object."""
    known = await replay_archive(store, CLUSTER, Report(cluster=CLUSTER))
    sequence = known.state.sequence + 1
    data = encode_entry(Entry("later.1", "later", known.state.sequence, known.hash, [[*commands]]))
    key = journal_archive_key("", CLUSTER, sequence, sequence)
    await store.put(key, [encode_archive(Archive(sequence, known.hash, [bytes([version]) + data[1:]]))])
    return key


async def check_refuses(store: SteppedStore, why: str, streams: FakeStreams | None = None) -> None:
    streams = streams or FakeStreams()
    made, before = streams.held, store.contents()
    rebuild = Rebuild(
        store=store,
        streams=streams,
        cluster=CLUSTER,
        now_ms=VirtualClock().now_ms,
        entropy=CountingEntropy(),
        archive_age_min_ms=0,
    )
    with pytest.raises(Invalid, match=rf"{why}.*{UPGRADE}"):
        await rebuild.run()
    assert streams.held is made
    assert store.contents() == before


@in_virtual_time
async def test_an_archive_that_raises_the_level_too_high_is_not_damaged() -> None:
    """All entries after it would be left out, as if they were lost."""
    store = await archived()
    await archive_next(store, RaiseLevel(0, NEWEST_LEVEL + 1))
    await check_refuses(store, rf"to level {NEWEST_LEVEL + 1}, this release knows {NEWEST_LEVEL}")


@in_virtual_time
async def test_an_archive_with_an_entry_of_a_later_version_is_not_damaged() -> None:
    store = await archived()
    await archive_next(store, Tick(0), version=ENTRY_VERSION + 1)
    await check_refuses(store, f"journal entry of version {ENTRY_VERSION + 1}")


@in_virtual_time
async def test_an_archive_object_of_a_later_version_is_not_damaged() -> None:
    store = await archived()
    key = await archive_next(store, Tick(0))
    data = bytearray(await store.get(key))
    struct.pack_into(">H", data, VERSION_AT, 2)
    struct.pack_into(">I", data, len(data) - 4, crc32c.crc32c(bytes(data[:-4])))
    await store.delete([key])
    await store.put(key, [bytes(data)])
    await check_refuses(store, "archive object of version 2, this release knows 1")


@in_virtual_time
async def test_a_snapshot_that_an_earlier_rebuild_of_a_later_release_left_is_not_to_be_deleted() -> None:
    store, streams = await archived(), FakeStreams()
    found = await streams.make(1_000_000, 1)
    assert found.created != OLD
    head = bytearray(b"PSTKSNAP" + struct.pack(">H2x", 9))
    head += struct.pack(">I", crc32c.crc32c(bytes(head)))
    await store.put(snapshot_key("", CLUSTER, 999_999), [bytes(head).ljust(400, b"\0")])
    await check_refuses(store, "snapshot of version 9", streams)
