"""Entries that live services have seen and the journal has lost: a replica halts, and writes nothing in their place."""

import asyncio
import functools
from collections.abc import Sequence

import pytest

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.journal import JournalInfo
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.storage.lost_entry import lost_entry_key, read_lost_entry, write_lost_entry
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import CLUSTER, Running, SequencerRig, rig

SOON_S = 5.0
BEHIND_S = 4.0


class BehindServer(MemoryJournal):
    """One of three servers, which does not know the newest entries for a while."""

    def __init__(self, store: MemoryJournalStore, ends_at: int, until_s: float) -> None:
        super().__init__(store)
        self._ends_at = ends_at
        self._until_s = until_s

    def _look(self) -> JournalInfo:
        info = super()._look()
        is_late = asyncio.get_running_loop().time() >= self._until_s
        return JournalInfo(1, info.last_sequence if is_late else self._ends_at, info.created, replicas=3)


async def expect_halt(running: Running, text: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.timeout(SOON_S):
            await running.task
    assert caught.group_contains(Halted, match=text), caught.value.exceptions


async def fill(one: SequencerRig, name: str) -> int:
    """Write some entries through a replica, end it, and return the newest entry."""
    await one.start(name)
    await one.client.command([one.create_topic("t")], deadline_s=SOON_S)
    await one.kill(name)
    return one.store.last_sequence


def start(one: SequencerRig, name: str) -> Running:
    """A replica that may not serve yet."""
    running = one.running[name] = Running(name, one)
    return running


@in_virtual_time
async def test_a_sender_that_has_seen_an_entry_beyond_the_journal_is_not_served_and_halts_the_replica() -> None:
    """Such a journal comes from a backup: its next entries would take the places of acknowledged ones."""
    async with rig("a") as one:
        await one.client.command([one.create_topic("t0")], deadline_s=SOON_S)
        last = one.store.last_sequence
        one.client.record_sequence(last + 2)
        with pytest.raises(Unavailable):
            await one.client.command([one.create_topic("t1")], deadline_s=0.25)
        assert one.store.last_sequence == last
        running = one.running.pop("a")
        await expect_halt(running, f"the journal ends at entry {last}, but another service has seen entry {last + 2}")


@in_virtual_time
async def test_a_service_that_announces_an_entry_beyond_the_journal_halts_the_replica_and_later_starts() -> None:
    async with rig("a", objects=MemoryStore()) as one:
        await one.client.command([one.create_topic("t")], deadline_s=SOON_S)
        last = one.store.last_sequence
        running = one.running.pop("a")
        running.sequencer.record_seen(last + 20)
        await expect_halt(running, f"but another service has seen entry {last + 20}")
        assert one.objects is not None
        assert await read_lost_entry(one.objects, CLUSTER) == last + 20


@in_virtual_time
async def test_a_second_loss_is_noted_although_the_note_of_the_first_one_is_still_there() -> None:
    """The journal of the first loss was restored, so its note names an entry that the journal has."""
    objects = MemoryStore()
    await write_lost_entry(objects, CLUSTER, 1)
    async with rig("a", objects=objects) as one:
        await one.client.command([one.create_topic("t")], deadline_s=SOON_S)
        last = one.store.last_sequence
        running = one.running.pop("a")
        running.sequencer.record_seen(last + 20)
        await expect_halt(running, f"but another service has seen entry {last + 20}")
        assert await read_lost_entry(objects, CLUSTER) == last + 20


class ReadOnlyStore(MemoryStore):
    """Denies puts, as a policy may that does not know the note."""

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        raise Invalid(f"AccessDenied: put of {key}")


@in_virtual_time
async def test_a_replica_halts_with_the_loss_as_the_reason_also_if_the_store_rejects_the_note() -> None:
    async with rig("a", objects=ReadOnlyStore()) as one:
        await one.client.command([one.create_topic("t")], deadline_s=SOON_S)
        last = one.store.last_sequence
        running = one.running.pop("a")
        running.sequencer.record_seen(last + 20)
        await expect_halt(running, f"but another service has seen entry {last + 20}")


async def test_the_note_names_the_newest_of_the_entries_that_replicas_miss() -> None:
    objects = MemoryStore()
    for sequence in (7, 9, 8):
        await write_lost_entry(objects, CLUSTER, sequence)
    assert await read_lost_entry(objects, CLUSTER) == 9


async def test_a_note_that_names_no_entry_is_replaced() -> None:
    objects = MemoryStore()
    await objects.put(lost_entry_key(CLUSTER), [b"?"])
    await write_lost_entry(objects, CLUSTER, 7)
    assert await read_lost_entry(objects, CLUSTER) == 7


@in_virtual_time
async def test_a_replica_that_starts_writes_and_answers_nothing_before_it_knows_the_entries_of_others() -> None:
    async with rig() as one:
        last = await fill(one, "a")
        answered = asyncio.Event()
        one.until_answered = answered.wait
        running = start(one, "b")
        await asyncio.sleep(30)
        assert one.store.last_sequence == last
        with pytest.raises(Unavailable, match="no subscriber"):
            await one.client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=0.01)
        running.sequencer.record_seen(last + 1)
        answered.set()
        del one.running["b"]
        await expect_halt(running, f"the journal ends at entry {last}, but another service has seen entry {last + 1}")
        assert one.store.last_sequence == last


@in_virtual_time
async def test_a_replica_serves_soon_when_its_journal_has_all_that_other_services_have_seen() -> None:
    async with rig() as one:
        last = await fill(one, "a")
        running = start(one, "b")
        running.sequencer.record_seen(last)
        async with asyncio.timeout(0.1):
            await running.sequencer.until_serving()
        await one.client.command([one.create_topic("u")], deadline_s=SOON_S)


@in_virtual_time
async def test_a_server_that_is_behind_delays_the_start_and_halts_nothing() -> None:
    """The journal has the entry that a service has seen, but this replica's server does not know that at first."""
    async with rig() as one:
        last = await fill(one, "a")
        until_s = asyncio.get_running_loop().time() + BEHIND_S
        one.make_journal = functools.partial(BehindServer, ends_at=last - 1, until_s=until_s)
        running = start(one, "b")
        running.sequencer.record_seen(last)
        serving = asyncio.create_task(running.sequencer.until_serving())
        await asyncio.sleep(BEHIND_S - 0.1)
        assert one.store.last_sequence == last, "the replica suspects a loss, so it writes nothing"
        assert not serving.done()
        await asyncio.sleep(0.2)
        one.store.notify()
        await asyncio.wait_for(serving, SOON_S)
        await one.client.command([one.create_topic("u")], deadline_s=SOON_S)


@in_virtual_time
async def test_a_replica_that_is_behind_the_others_waits_for_their_entries() -> None:
    async with rig("a", "b") as both:
        behind = both.running["b"]
        for number in range(3):
            await both.client.command([both.create_topic(f"t{number}")], deadline_s=SOON_S)
            behind.sequencer.record_seen(both.store.last_sequence)
        await until(lambda: behind.applied == both.store.last_sequence, SOON_S)
        assert not behind.task.done()
