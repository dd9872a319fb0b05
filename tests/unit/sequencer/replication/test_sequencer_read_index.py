"""The read index: one request serves many callers, and no answer is older than its call."""

import asyncio

import pytest

from penstock.contracts.commands import CreateTopic, MemberAssignment, Synced, SyncGroup
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.log import LATEST, OffsetOf, OffsetsQuery, OffsetsView
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.journal import JournalEntry, JournalLost
from penstock_sequencer.replication.read_index import ReadIndex
from tests.testkit.every_sender import EverySender
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.sequencer_rig import CLUSTER, SequencerRig, rig


class SlowJournal(MemoryJournal):
    """Reports its last sequence a second after it read it."""

    def __init__(self, store: MemoryJournalStore) -> None:
        super().__init__(store)
        self.asked = 0

    async def last_sequence(self) -> int:
        self.asked += 1
        found = await super().last_sequence()
        await asyncio.sleep(1)
        return found


@in_virtual_time
async def test_a_caller_that_comes_during_a_request_shares_the_next_one() -> None:
    store = MemoryJournalStore()
    journal = SlowJournal(store)
    index = ReadIndex(journal)
    early = asyncio.create_task(index.ask(10))
    await asyncio.sleep(0.5)
    store.inject(b"x")
    late = [asyncio.create_task(index.ask(10)) for _ in range(50)]
    assert await early == 0
    assert [await each for each in late] == [1] * 50
    assert journal.asked == 2


@in_virtual_time
async def test_if_the_asking_caller_gives_up_the_next_caller_asks() -> None:
    store = MemoryJournalStore()
    index = ReadIndex(SlowJournal(store))
    tasks = [asyncio.create_task(index.ask(10)) for _ in range(3)]
    await asyncio.sleep(0.5)
    tasks[0].cancel()
    assert await asyncio.gather(*tasks[1:]) == [0, 0]
    assert tasks[0].cancelled()


@in_virtual_time
async def test_a_silent_journal_is_given_up_at_the_timeout() -> None:
    class Silent(MemoryJournal):
        async def last_sequence(self) -> int:
            await asyncio.Event().wait()
            raise AssertionError

    index = ReadIndex(Silent(MemoryJournalStore()))
    loop = asyncio.get_running_loop()
    for _ in range(3):
        started_s = loop.time()
        outcomes = await asyncio.gather(*(index.ask(1) for _ in range(5)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * 5
        assert loop.time() - started_s == pytest.approx(1)


@in_virtual_time
async def test_a_lost_journal_is_unavailable_here_because_the_replica_halts_by_itself() -> None:
    store = MemoryJournalStore()
    journal = MemoryJournal(store)
    store.lose()
    with pytest.raises(JournalLost):
        await journal.last_sequence()
    with pytest.raises(Unavailable, match="there is no journal"):
        await ReadIndex(journal).ask(1)


class LaggingJournal(MemoryJournal):
    """Entries arrive here only while the gate is open."""

    gate: asyncio.Event

    def _take(self, expected: int) -> list[JournalEntry]:
        return super()._take(expected) if self.gate.is_set() else []


async def two_of_which_one_lags(one: SequencerRig) -> tuple[SequencerClient, asyncio.Event]:
    """A client of the replica that lags, and a gate that ends the lag; the other replica has newer entries."""
    LaggingJournal.gate = asyncio.Event()
    LaggingJournal.gate.set()
    one.make_journal = LaggingJournal
    await one.start("lagging")
    LaggingJournal.gate.clear()
    one.make_journal = MemoryJournal
    await one.start("ahead")
    await write_through(one, "ahead", one.create_topic("t"))
    return EverySender(one.hub.connect("other gateway"), CLUSTER, one.clock), LaggingJournal.gate


async def write_through(one: SequencerRig, name: str, command: CreateTopic) -> None:
    """Send the command through this replica, as another gateway would."""
    proposer = one.running[name].sequencer.proposer
    await proposer.propose([command])
    await proposer.propose([one.commit("t", 3)])


async def ask_the_lagging_one(one: SequencerRig) -> None:
    """Stop the other replica, so that only the lagging one answers."""
    await one.running["ahead"].sequencer.drain()


@in_virtual_time
async def test_the_reported_end_of_a_log_never_goes_back_behind_another_gateways() -> None:
    async with rig() as one:
        client, gate = await two_of_which_one_lags(one)
        await ask_the_lagging_one(one)
        asked = [OffsetOf(one.topic_id("t"), 0, LATEST)]
        stale = await client.query("offsets", OffsetsQuery(0, asked), OffsetsView)
        assert stale.sequence == 0
        asking = asyncio.create_task(client.query("offsets", OffsetsQuery(0, asked, fresh=True), OffsetsView))
        await asyncio.sleep(3)
        assert not asking.done()
        gate.set()
        one.store.set_available(True)  # the tail reads again
        found = await asking
        assert [each.offset for each in found.partitions] == [3]


@in_virtual_time
async def test_a_large_command_of_a_member_that_joined_through_another_replica_is_not_rejected() -> None:
    async with rig() as one:
        client, gate = await two_of_which_one_lags(one)
        await one.running["ahead"].sequencer.proposer.propose([one.join("g", "m1")])
        await ask_the_lagging_one(one)
        assignments = [MemberAssignment("m1", bytes(100_000))]
        sync = SyncGroup(one.clock.now_ms(), "g", 1, "m1", None, "consumer", None, assignments)
        asking = asyncio.create_task(client.command([sync], deadline_s=60))
        await asyncio.sleep(3)
        assert not asking.done()
        gate.set()
        one.store.set_available(True)  # the tail reads again
        assert await asking == [Synced("consumer", "range", bytes(100_000))]


@in_virtual_time
async def test_fresh_queries_fail_in_time_while_the_journal_is_silent_and_others_are_answered() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        one.store.set_available(False)
        started_s = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable, match="the journal does not answer"):
            await one.client.query("metadata", MetadataQuery(0, None, fresh=True), MetadataView, deadline_s=10)
        assert asyncio.get_running_loop().time() - started_s <= 11
        view = await one.client.query("metadata", MetadataQuery(0, None), MetadataView)
        assert [topic.name for topic in view.topics] == ["t"]
        one.store.set_available(True)
        view = await one.client.query("metadata", MetadataQuery(0, None, fresh=True), MetadataView)
        assert [topic.name for topic in view.topics] == ["t"]
