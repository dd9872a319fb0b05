"""How commands get into the journal: in groups, whole, in order, within limits."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from penstock.contracts.commands import Command, DeleteGroup, Done, Outcome, Tick
from penstock.contracts.entries import Entry, decode_entry
from penstock.contracts.errors import Invalid, Unavailable, Undelivered
from penstock.runtime.journal import JournalStuck
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.hash_chain import HashChain
from penstock_sequencer.replication.proposal_queue import PROPOSER_LIMITS, ProposerLimits
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.stall_detector import STALL_LIMITS, StallDetector
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.testkit.fakes.memory_journal import ENTRY_BYTES_MAX, MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time
from tests.unit.sequencer.sequencer_rig import FreezingClock, HeldJournal

APPENDS_IN_FLIGHT_MAX = PROPOSER_LIMITS.appends_in_flight_max
ENTRY_BYTES_WANTED = PROPOSER_LIMITS.entry_bytes_wanted
STALL_S = STALL_LIMITS.stall_s
Answers = asyncio.Task[tuple[int, list[Outcome]]]


class Desk:
    """Proposals over a journal whose gate the test opens; `settle` plays the tail."""

    def __init__(self, limits: ProposerLimits = PROPOSER_LIMITS) -> None:
        self.store = MemoryJournalStore()
        self.journal = HeldJournal(self.store)
        self.registry = CollectorRegistry()
        metrics = SequencerMetrics(self.registry)
        self.bus = MemoryHub().connect("me")
        self.clock = FreezingClock()
        self.stalls = StallDetector(bus=self.bus, clock=self.clock, metrics=metrics)
        self.proposer = Proposer(
            journal=self.journal,
            chain=HashChain(),
            author="me",
            clock=self.clock,
            metrics=metrics,
            stalls=self.stalls,
            limits=limits,
        )
        self.tasks = [asyncio.create_task(self.proposer.run()), asyncio.create_task(self.stalls.run())]
        self.seen = 0

    async def propose(self, *commands: Command) -> Answers:
        """A request that has arrived and is not answered yet."""
        task = asyncio.create_task(self.proposer.propose(commands))
        await asyncio.sleep(0)
        return task

    async def tail(self) -> list[Entry]:
        """Let the journal work, apply what is in it, and return it."""
        self.journal.gate.set()
        while self.seen < self.store.last_sequence or self.proposer.in_flight_count or self.proposer.waiting_count:
            await asyncio.sleep(0.001)
            for entry in self.entries()[self.seen :]:
                self.seen += 1
                outcomes: list[list[Outcome]] = [[Done() for _ in request] for request in entry.requests]
                self.proposer.settle(entry.entry_id, self.seen, outcomes)
        return self.entries()

    def entries(self) -> list[Entry]:
        stored = (self.store.entry(sequence) for sequence in range(1, self.store.last_sequence + 1))
        return [decode_entry(data) for data in stored if data is not None]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def command(number: int, size_bytes: int = 0) -> Command:
    return DeleteGroup(0, f"{number}".ljust(size_bytes, "."))


def numbers(requests: list[list[Command]]) -> list[int]:
    found = [each.group_id for request in requests for each in request if isinstance(each, DeleteGroup)]
    return [int(group_id.rstrip(".")) for group_id in found]


@in_virtual_time
async def test_requests_that_wait_while_appends_are_under_way_share_one_entry_in_the_order_they_came() -> None:
    desk = Desk()
    answers = [await desk.propose(command(number)) for number in range(APPENDS_IN_FLIGHT_MAX)]
    await asyncio.sleep(0.01)
    answers += [await desk.propose(command(number)) for number in range(APPENDS_IN_FLIGHT_MAX, 100)]
    entries = await desk.tail()
    assert numbers(entries[-1].requests) == list(range(APPENDS_IN_FLIGHT_MAX, 100))
    assert len(entries) == APPENDS_IN_FLIGHT_MAX + 1
    assert [(await answer)[0] for answer in answers] == [1, 2, 3, 4] + [5] * 96
    await desk.close()


@in_virtual_time
async def test_no_more_appends_are_under_way_than_allowed() -> None:
    desk = Desk()
    for number in range(20):
        await desk.propose(command(number))
        await asyncio.sleep(0.01)
    assert desk.proposer.in_flight_count == APPENDS_IN_FLIGHT_MAX
    await desk.tail()
    await desk.close()


@in_virtual_time
async def test_an_entry_takes_requests_up_to_its_size_and_never_a_part_of_one() -> None:
    desk = Desk()
    for number in range(APPENDS_IN_FLIGHT_MAX):
        await desk.propose(command(number))
    await asyncio.sleep(0.01)
    third = ENTRY_BYTES_WANTED // 3
    for number in range(10, 15):
        await desk.propose(command(number, third), command(number, third))
    await desk.propose(command(20, 2 * ENTRY_BYTES_WANTED))
    await desk.propose(command(21))
    entries = (await desk.tail())[APPENDS_IN_FLIGHT_MAX:]
    assert [numbers(entry.requests) for entry in entries] == [[n, n] for n in range(10, 15)] + [[20], [21]]
    await desk.close()


@in_virtual_time
async def test_an_entry_takes_so_many_commands_however_many_a_request_has() -> None:
    desk = Desk(ProposerLimits(entry_commands_max=4))
    for number in range(APPENDS_IN_FLIGHT_MAX):
        await desk.propose(command(number))
    await asyncio.sleep(0.01)
    for numbered in ([10, 11, 12], [13], [14, 15], [16, 17, 18], [20, 21, 22, 23, 24, 25], [30]):
        await desk.propose(*map(command, numbered))
    entries = (await desk.tail())[APPENDS_IN_FLIGHT_MAX:]
    assert [numbers(entry.requests) for entry in entries] == [
        [10, 11, 12, 13],
        [14, 15],
        [16, 17, 18],
        [20, 21, 22, 23, 24, 25],
        [30],
    ]
    await desk.close()


@in_virtual_time
async def test_what_fits_into_no_entry_is_refused_before_it_is_proposed() -> None:
    desk = Desk()
    with pytest.raises(Invalid, match="are over the"):
        await desk.proposer.propose([command(1, ENTRY_BYTES_MAX)])
    assert not desk.proposer.waiting_count
    await desk.close()


@in_virtual_time
async def test_too_many_waiting_requests_are_refused_and_nothing_of_them_is_proposed() -> None:
    desk = Desk(ProposerLimits(proposals_max=10))
    answers = [await desk.propose(command(number)) for number in range(10)]
    with pytest.raises(Undelivered, match="overloaded: 10 requests"):
        await desk.proposer.propose([command(11)])
    entries = await desk.tail()
    await asyncio.gather(*answers)
    assert sorted(number for entry in entries for number in numbers(entry.requests)) == list(range(10))
    await desk.close()


@in_virtual_time
async def test_too_many_waiting_bytes_are_refused() -> None:
    desk = Desk(ProposerLimits(proposal_bytes_max=1_000))
    first = await desk.propose(command(1, 800))
    with pytest.raises(Undelivered, match=r"overloaded: 1 requests of 8\d\d bytes"):
        await desk.proposer.propose([command(2, 800)])
    await desk.tail()
    await first
    later = await desk.propose(command(3, 800))
    await desk.tail()
    assert (await later)[1] == [Done()]
    await desk.close()


@in_virtual_time
async def test_an_entry_not_seen_in_time_is_given_up_as_unknown_and_makes_room() -> None:
    desk = Desk()
    lost = [await desk.propose(command(number)) for number in range(APPENDS_IN_FLIGHT_MAX)]
    with pytest.raises(Unavailable, match=r"entry me\.1 did not return within 10 s"):
        await lost[0]
    results = await asyncio.gather(*lost, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * APPENDS_IN_FLIGHT_MAX
    later = await desk.propose(command(9))
    await desk.tail()
    assert (await later)[1] == [Done()]
    await desk.close()


@in_virtual_time
async def test_a_request_that_waited_too_long_never_enters_the_journal() -> None:
    desk = Desk()
    held = []
    for number in range(APPENDS_IN_FLIGHT_MAX):
        held.append(await desk.propose(command(number)))
        await asyncio.sleep(0.01)
    waiting = await desk.propose(command(99))
    results = await asyncio.gather(*held, waiting, return_exceptions=True)
    assert isinstance(results[-1], Undelivered)
    assert "did not accept it within 2 s" in str(results[-1])
    entries = await desk.tail()
    assert all(99 not in numbers(entry.requests) for entry in entries)
    await desk.close()


@in_virtual_time
async def test_a_request_that_nobody_waits_for_any_more_does_not_enter_the_journal() -> None:
    desk = Desk()
    for number in range(APPENDS_IN_FLIGHT_MAX):
        await desk.propose(command(number))
        await asyncio.sleep(0.01)
    waiting = await desk.propose(command(99))
    waiting.cancel()
    entries = await desk.tail()
    assert [numbers(entry.requests) for entry in entries] == [[n] for n in range(APPENDS_IN_FLIGHT_MAX)]
    await desk.close()


@in_virtual_time
async def test_entries_carry_unique_ids_and_their_authors_place_in_the_chain() -> None:
    desk = Desk()
    for number in range(3):
        await desk.propose(command(number))
        await desk.tail()
    assert [entry.entry_id for entry in desk.entries()] == ["me.1", "me.2", "me.3"]
    assert {(entry.author, entry.author_sequence, entry.author_hash) for entry in desk.entries()} == {
        ("me", 0, bytes(16))
    }
    await desk.close()


@in_virtual_time
async def test_times_ahead_of_our_clock_are_set_back_to_it() -> None:
    desk = Desk()
    now_ms = VirtualClock().now_ms()
    await desk.propose(Tick(now_ms + 10_000), Tick(now_ms - 10_000))
    ((ahead, behind),) = (await desk.tail())[0].requests
    assert (ahead.now_ms, behind.now_ms) == (now_ms, now_ms - 10_000)
    await desk.close()


@in_virtual_time
async def test_an_entry_seen_in_the_tail_is_not_sent_again() -> None:
    desk = Desk()
    desk.store.fail_next_append(with_effect=True)
    desk.store.fail_next_append(with_effect=False, times=1_000)
    answer = await desk.propose(command(1))
    await desk.tail()
    assert (await answer)[0] == 1
    await asyncio.sleep(5)
    assert desk.registry.get_sample_value("penstock_sequencer_append_retries_total") == 1
    await desk.close()


class StuckJournal(MemoryJournal):
    """Looks healthy and takes nothing."""

    async def append(self, entry_id: str, data: bytes) -> int:
        raise JournalStuck(f"{entry_id} of {len(data)} bytes was not answered")


@in_virtual_time
async def test_a_stuck_journal_ends_the_run() -> None:
    metrics = SequencerMetrics(CollectorRegistry())
    stalls = StallDetector(bus=MemoryHub().connect("me"), clock=VirtualClock(), metrics=metrics)
    stuck = Proposer(
        journal=StuckJournal(MemoryJournalStore()),
        chain=HashChain(),
        author="me",
        clock=VirtualClock(),
        metrics=metrics,
        stalls=stalls,
    )
    asking = asyncio.create_task(stuck.propose([command(1)]))
    with pytest.RaisesGroup(JournalStuck):
        await stuck.run()
    asking.cancel()


@in_virtual_time
async def test_what_waited_for_a_place_while_the_process_stood_still_is_not_journaled() -> None:
    desk = Desk()
    full = [await desk.propose(command(number)) for number in range(APPENDS_IN_FLIGHT_MAX)]
    await asyncio.sleep(0.01)
    waiting = await desk.propose(command(99))
    desk.clock.skip(2 * STALL_S)
    fresh = await desk.propose(command(100))
    entries = await desk.tail()
    assert [numbers(entry.requests) for entry in entries] == [[0], [1], [2], [3], [100]]
    assert (await fresh)[0] == 5
    with pytest.raises(Undelivered, match="was stalled"):
        await waiting
    await asyncio.gather(*full)
    await desk.close()


@in_virtual_time
async def test_an_append_in_doubt_is_not_sent_again_after_the_process_stood_still() -> None:
    desk = Desk()
    desk.store.fail_next_append(with_effect=False)
    answer = await desk.propose(command(1))
    desk.journal.gate.set()
    await asyncio.sleep(0.01)
    desk.clock.skip(2 * STALL_S)
    with pytest.raises(Unavailable, match="was stalled"):
        await answer
    assert await desk.tail() == []
    await desk.close()
