"""The custodian archives the journal without a gap, through deaths and failures, and continues at the archive's end."""

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from penstock.contracts.codec import Buffer
from penstock.contracts.commands import Command, CreateTopic, RecordArchived
from penstock.contracts.entries import (
    GENESIS_HASH,
    Entry,
    JournalMoved,
    MoveMark,
    encode_entry,
    encode_move_mark,
    next_hash,
)
from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.contracts.ids import new_topic_id
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.journal import JournalEntry, JournalInfo
from penstock.runtime.process.health import Health
from penstock.segment.keys import journal_archive_key, journal_archive_prefix, parse_journal_archive_key
from penstock_sequencer.custodian.archiver import Archiver
from penstock_sequencer.custodian.backlog import ArchiveLimits, Backlog, Place
from penstock_sequencer.custodian.custody import Custody
from penstock_sequencer.journal_guard.completeness import check_journal_has_what_is_archived
from penstock_sequencer.limits import CustodianLimits, SequencerLimits
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.replication.hash_chain import HashChain
from penstock_sequencer.storage.archive_format import Archive, decode_archive, encode_archive
from penstock_sequencer.storage.archive_store import list_archive
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.sequencer_rig import CLUSTER, SequencerRig, rig

PREFIX = journal_archive_prefix("", CLUSTER)


def archiving(**changes: Any) -> SequencerLimits:
    """Limits of a sequencer whose custodian archives with these settings."""
    return SequencerLimits(custodian=CustodianLimits(archive=ArchiveLimits(**changes)))


async def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    """Return when the condition holds, in virtual time; with long waits, since each look costs real time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.25)


class ArchiveStore(MemoryStore):
    """A store that fails puts to the archive, before the effect or after it."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[bool] = []  # whether the put has its effect in spite of the error
        self.puts = 0
        self.rejection: PenstockError | None = None  # of every put to the archive

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        if not key.startswith(PREFIX):
            return await super().put(key, body, if_match=if_match)
        self.puts += 1
        if self.rejection is not None:
            raise self.rejection
        if not self.failures:
            return await super().put(key, body, if_match=if_match)
        if self.failures.pop(0):
            await super().put(key, body, if_match=if_match)
        raise Unavailable("no answer from the store")

    def archived(self) -> list[str]:
        return sorted(key for key in self._objects.held if key.startswith(PREFIX))

    def spans(self) -> list[tuple[int, int]]:
        return [parse_journal_archive_key(key) for key in self.archived()]

    @property
    def end(self) -> int:
        return max((last for _, last in self.spans()), default=0)

    def damage(self, key: str) -> None:
        held = self._objects.held[key]
        self._objects.held[key] = type(held)(held.data[:-1] + b"?", held.etag, held.modified_ms)


async def work(built: SequencerRig, commits: int = 3) -> int:
    """Commit segments; returns the sequence of the last commit."""
    for _ in range(commits):
        await built.client.command([built.commit("t")], deadline_s=60)
    return built.client.seen_sequence


async def check_archive(built: SequencerRig, store: ArchiveStore, first: int = 1) -> None:
    """Every object holds the journal's own bytes, and there is no gap from `first` to the end."""
    journal = [built.store.entry(sequence) or b"" for sequence in range(1, built.store.last_sequence + 1)]
    reached = first - 1
    for key in store.archived():
        fragment = decode_archive(await store.get(key))
        assert (fragment.first, fragment.last) == parse_journal_archive_key(key)
        assert fragment.first <= reached + 1
        assert fragment.entries == journal[fragment.first - 1 : fragment.last]
        assert fragment.hash_before == functools.reduce(next_hash, journal[: fragment.first - 1], GENESIS_HASH)
        reached = max(reached, fragment.last)


@in_virtual_time
async def test_entries_are_archived_within_seconds_and_recorded() -> None:
    store = ArchiveStore()
    async with rig("a", "b", objects=store) as built:
        await until(lambda: built.level, 10)
        await built.client.command([built.create_topic("t")], deadline_s=5)
        last = await work(built)
        async with asyncio.timeout(9):
            await until(lambda: store.end >= last)
        await until(lambda: built.running["b"].sequencer.replica.state.custody.archived_sequence >= last)
        await check_archive(built, store)


@in_virtual_time
async def test_an_idle_cluster_archives_once_a_minute() -> None:
    store = ArchiveStore()
    async with rig("a", objects=store) as built:
        await asyncio.sleep(200)
        assert 2 <= len(store.archived()) <= 3
        await check_archive(built, store)


@in_virtual_time
async def test_the_next_custodian_continues_at_the_archives_end() -> None:
    store = ArchiveStore()
    async with rig("a", "b", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        for _ in range(3):
            await until(lambda: any(each.metric("custodian") for each in built.running.values()))
            last = await work(built)
            await until(lambda last=last: store.end >= last, 60)  # type: ignore[misc]
            custodian = next(name for name, each in built.running.items() if each.metric("custodian"))
            await built.kill(custodian)
            await work(built)
            await built.start(custodian + "x")
        await until(lambda: store.end >= built.client.seen_sequence)
        await check_archive(built, store)
        spans = store.spans()
        assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(spans))


@in_virtual_time
async def test_a_restart_of_all_replicas_leaves_no_gap() -> None:
    store = ArchiveStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        await until(lambda: store.end > 0)
        await work(built)
        await built.kill("a")
        await built.start("b")
        last = await work(built)
        await until(lambda: store.end >= last)
        await check_archive(built, store)


@pytest.mark.parametrize("has_effect", [False, True], ids=["before", "after"])
@in_virtual_time
async def test_a_put_in_doubt_is_completed(has_effect: bool) -> None:
    store = ArchiveStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        store.failures = [has_effect] * 3
        last = await work(built)
        await until(lambda: built.running["a"].metric("archived_sequence") >= last)
        assert store.puts == (1 if has_effect else 4)
        await check_archive(built, store)


@in_virtual_time
async def test_a_damaged_end_of_the_archive_is_archived_again() -> None:
    store = ArchiveStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        for _ in range(2):
            last = await work(built)
            await until(lambda last=last: store.end >= last, 60)  # type: ignore[misc]
        await built.kill("a")
        damaged = store.archived()[-1]
        store.damage(damaged)
        await built.start("b")
        last = await work(built)
        await until(lambda: store.end >= last)
        await store.delete([damaged])
        await check_archive(built, store)


@in_virtual_time
async def test_archiving_does_not_continue_the_archive_of_another_journal() -> None:
    store = ArchiveStore()
    foreign = journal_archive_key("", CLUSTER, 1, 1)
    await store.put(foreign, [encode_archive(Archive(1, GENESIS_HASH, [b"of another journal"]))])
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        last = await work(built)
        await until(lambda: store.end >= last)
        await store.delete([foreign])
        await check_archive(built, store)


@in_virtual_time
async def test_many_entries_at_once_are_stored_in_several_objects() -> None:
    store = ArchiveStore()
    limits = archiving(entries_bytes_max=4_000, backlog_bytes_max=8_000)
    async with rig("a", objects=store, limits=limits) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        await until(lambda: built.running["a"].metric("custodian"))
        for _ in range(60):
            await built.client.command([built.commit("t", batches=20)], deadline_s=5)
        await until(lambda: store.end >= built.client.seen_sequence)
        assert len(store.archived()) > 5
        await check_archive(built, store)
        assert all(last - first < 20 for first, last in store.spans())


@in_virtual_time
async def test_a_full_object_of_housekeeping_is_archived_at_once() -> None:
    store = ArchiveStore()
    limits = archiving(entries_bytes_max=2_000, backlog_bytes_max=4_000, idle_interval_s=1_000_000.0)
    async with rig("a", objects=store, limits=limits) as built:
        await until(lambda: len(store.archived()) > 2)
        await check_archive(built, store)


@in_virtual_time
async def test_a_store_that_rejects_the_archive_stops_no_replica_and_is_retried() -> None:
    store = ArchiveStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        store.rejection = Invalid("403: the clock is skewed")
        last = await work(built)
        await until(lambda: store.puts >= 3)
        one = built.running["a"]
        assert not one.task.done()
        assert one.metric("archive_failures_total") >= 2
        assert one.health.report()["degraded"] == {"archive": "the journal is not archived: 403: the clock is skewed"}
        store.rejection = None
        await until(lambda: store.end >= last)
        assert not one.health.degraded
        await check_archive(built, store)


@in_virtual_time
async def test_a_former_custodian_is_not_degraded_by_the_archive() -> None:
    store = ArchiveStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        store.rejection = Invalid("403: no")
        one = built.running["a"]
        await until(lambda: one.health.degraded)
        await one.sequencer.drain()
        await until(lambda: not one.health.degraded)


class Occupied(ArchiveStore):
    """Has an object under the key of the first archive put: its bytes, changed by `make`."""

    def __init__(self, make: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self.make: Callable[[bytes], bytes] | None = make

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        if key.startswith(PREFIX) and self.make is not None:
            occupant, self.make = self.make(b"".join(body)), None
            await MemoryStore.put(self, key, [occupant])
        return await super().put(key, body, if_match=if_match)


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def foreign(data: bytes) -> bytes:
    fragment = decode_archive(data)
    return encode_archive(
        Archive(fragment.first, fragment.hash_before, [b"of another journal"] * len(fragment.entries))
    )


@in_virtual_time
async def test_a_damaged_object_under_a_fragments_key_is_replaced_before_it_counts_as_archived() -> None:
    store = Occupied(damaged)
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        await until(lambda: built.running["a"].metric("archived_sequence"))
        assert store.make is None
        await check_archive(built, store)


@in_virtual_time
async def test_an_object_of_another_journal_under_a_fragments_key_does_not_count_as_archived() -> None:
    store = Occupied(foreign)
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        await until(lambda: store.archived())
        (occupied,) = store.archived()
        await until(lambda: built.running["a"].metric("archived_sequence"))
        await store.delete([occupied])
        assert store.end >= built.running["a"].metric("archived_sequence")
        await check_archive(built, store)


class Waking(MemoryJournal):
    """One of three servers, which reports an old end until it has caught up, at `knows_s`."""

    def __init__(self, store: MemoryJournalStore, knows_s: float) -> None:
        super().__init__(store)
        self.knows_s = knows_s

    async def describe(self) -> JournalInfo:
        info = msgspec.structs.replace(await super().describe(), replicas=3)
        is_awake = asyncio.get_running_loop().time() >= self.knows_s
        return info if is_awake else msgspec.structs.replace(info, last_sequence=1)


@in_virtual_time
async def test_a_server_that_has_just_started_gets_time_to_learn_the_journals_end() -> None:
    store, journal = ArchiveStore(), MemoryJournalStore()
    for number in range(3):
        journal.append(str(number), b"x")
    await store.put(journal_archive_key("", CLUSTER, 1, 3), [b"x"])
    started_s = asyncio.get_running_loop().time()
    await check_journal_has_what_is_archived(Waking(journal, started_s + 2), store, CLUSTER)
    assert asyncio.get_running_loop().time() - started_s < 4
    with pytest.raises(Halted, match="ends at entry 1, but entry 3 is already in its archive"):
        await check_journal_has_what_is_archived(Waking(journal, started_s + 1_000), store, CLUSTER)
    assert 10 <= asyncio.get_running_loop().time() - started_s < 20


@in_virtual_time
async def test_a_journal_that_ends_before_its_archive_is_not_served() -> None:
    store = ArchiveStore()
    async with rig("a", objects=store) as built:
        await built.client.command([built.create_topic("t")], deadline_s=5)
        last = await work(built)
        await until(lambda: store.end >= last)
        journal = MemoryJournal(built.store)
        await check_journal_has_what_is_archived(journal, store, CLUSTER)
        built.store.last_sequence = last - 1
        with pytest.raises(Halted, match=rf"ends at entry {last - 1}, but entry {store.end} is already in its archive"):
            await check_journal_has_what_is_archived(MemoryJournal(built.store), store, CLUSTER)
        built.store.last_sequence = store.end


async def test_other_objects_under_the_archives_prefix_are_ignored() -> None:
    store = ArchiveStore()
    await store.put(f"{PREFIX}readme", [b"hello"])
    await store.put(journal_archive_key("", CLUSTER, 3, 9), [b"x"])
    assert await list_archive(store, CLUSTER) == [(3, 9)]


class SlowToClose(MemoryJournal):
    """A journal whose readers need a second to end, as at a server that is slow to answer."""

    async def tail(self, after: int) -> AsyncIterator[list[JournalEntry]]:
        try:
            async for group in super().tail(after):
                yield group
        finally:
            await asyncio.sleep(1)


class HeldCustody(Custody):
    """Custody of a replica that is custodian all the time."""

    def __init__(self) -> None:
        """Needs nothing."""

    @property
    def is_ours(self) -> bool:
        return True

    def made_progress(self) -> None:
        """Do nothing."""

    async def record_archived(self, sequence: int) -> bool:
        return True


@in_virtual_time
async def test_an_archiver_that_has_just_failed_ends_when_it_is_cancelled() -> None:
    """Else the replica would stay custodian without a lease, and would never take it again."""
    store = ArchiveStore()
    async with rig() as built:
        for number in range(3):
            built.store.inject(encode_entry(Entry(f"x.{number}", "x", 0, GENESIS_HASH, [[RecordArchived(0, "x", 1)]])))
        store.rejection = Unavailable("no answer from the store")
        health, metrics = Health(), SequencerMetrics(CollectorRegistry())
        archiver = Archiver(
            journal=SlowToClose(built.store),
            store=store,
            cluster=CLUSTER,
            chain=HashChain(),
            custody=HeldCustody(),
            clock=built.clock,
            metrics=metrics,
            health=health,
            limits=ArchiveLimits(idle_interval_s=1),
        )
        archiving = asyncio.create_task(archiver.run())
        await until(lambda: store.puts)
        await asyncio.sleep(0.5)  # the failed archiver waits for the end of its reader
        archiving.cancel()
        await asyncio.wait({archiving}, timeout=20)
        assert archiving.cancelled()


@pytest.mark.parametrize("command", [RecordArchived(0, "x", 1), CreateTopic(0, "t", new_topic_id(bytes(16)), 1, {})])
def test_the_mark_of_a_moved_journal_is_never_archived(command: Command) -> None:
    """The new journal has another entry in its place, and would seem to end before its archive."""
    backlog = Backlog(Place(0, GENESIS_HASH))
    before = encode_entry(Entry("x.1", "x", 0, GENESIS_HASH, [[command]]))
    backlog.add(JournalEntry(1, before))
    with pytest.raises(JournalMoved):
        backlog.add(JournalEntry(2, encode_move_mark(MoveMark("nats://new:4222", "2026-03-03"))))
    assert (len(backlog), backlog.sequence, backlog.fragment().entries) == (1, 1, [before])
