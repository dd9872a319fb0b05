"""Commands get into the journal in groups, in order, within limits; a request is never split."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from penstock.contracts.commands import (
    Command,
    CommitSegment,
    DeleteGroup,
    Done,
    DropExtents,
    ExpireLogs,
    Outcome,
    Tick,
)
from penstock.contracts.entries import Entry, decode_entry
from penstock.contracts.errors import Invalid, Unavailable, Undelivered
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.runtime.journal import JournalStuck
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.hash_chain import HashChain
from penstock_sequencer.replication.proposal_queue import PROPOSER_LIMITS, ProposerLimits
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.stall_detector import STALL_LIMITS, StallDetector
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.testkit.fakes.memory_journal import ENTRY_BYTES_MAX, MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time
from tests.testkit.recorded_traces import RecordedTraces, facts_of, traceparent
from tests.unit.sequencer.sequencer_rig import FreezingClock, HeldJournal

APPENDS_IN_FLIGHT_MAX = PROPOSER_LIMITS.appends_in_flight_max
ENTRY_BYTES_WANTED = PROPOSER_LIMITS.entry_bytes_wanted
STALL_S = STALL_LIMITS.stall_s
Answers = asyncio.Task[tuple[int, list[Outcome]]]


class ProposerRig:
    """Proposals over a journal whose gate the test opens; `settle` acts as the tail."""

    def __init__(self, limits: ProposerLimits = PROPOSER_LIMITS) -> None:
        self.store = MemoryJournalStore()
        self.journal = HeldJournal(self.store)
        self.registry = CollectorRegistry()
        metrics = SequencerMetrics(self.registry)
        self.bus = MemoryHub().connect("me")
        self.clock = FreezingClock()
        self.traces = RecordedTraces(self.clock)
        self.stalls = StallDetector(bus=self.bus, clock=self.clock, metrics=metrics)
        self.proposer = Proposer(
            journal=self.journal,
            chain=HashChain(),
            author="me",
            clock=self.clock,
            metrics=metrics,
            stalls=self.stalls,
            limits=limits,
            traces=self.traces,
        )
        self.tasks = [asyncio.create_task(self.proposer.run()), asyncio.create_task(self.stalls.run())]
        self.seen = 0

    async def propose(self, *commands: Command, trace: str = "") -> Answers:
        """A request that is not answered yet."""
        task = asyncio.create_task(self.proposer.propose(commands, trace))
        await asyncio.sleep(0)
        return task

    async def tail(self) -> list[Entry]:
        """Let the journal work, apply its entries, and return them."""
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
async def test_requests_that_wait_during_appends_share_one_entry_in_the_order_of_arrival() -> None:
    rig = ProposerRig()
    answers = [await rig.propose(command(number)) for number in range(APPENDS_IN_FLIGHT_MAX)]
    await asyncio.sleep(0.01)
    answers += [await rig.propose(command(number)) for number in range(APPENDS_IN_FLIGHT_MAX, 100)]
    entries = await rig.tail()
    assert numbers(entries[-1].requests) == list(range(APPENDS_IN_FLIGHT_MAX, 100))
    assert len(entries) == APPENDS_IN_FLIGHT_MAX + 1
    assert [(await answer)[0] for answer in answers] == [1, 2, 3, 4] + [5] * 96
    await rig.close()


@in_virtual_time
async def test_no_more_appends_are_under_way_than_allowed() -> None:
    rig = ProposerRig()
    for number in range(20):
        await rig.propose(command(number))
        await asyncio.sleep(0.01)
    assert rig.proposer.in_flight_count == APPENDS_IN_FLIGHT_MAX
    await rig.tail()
    await rig.close()


@in_virtual_time
async def test_an_entry_takes_whole_requests_up_to_its_size() -> None:
    rig = ProposerRig()
    for number in range(APPENDS_IN_FLIGHT_MAX):
        await rig.propose(command(number))
    await asyncio.sleep(0.01)
    third = ENTRY_BYTES_WANTED // 3
    for number in range(10, 15):
        await rig.propose(command(number, third), command(number, third))
    await rig.propose(command(20, 2 * ENTRY_BYTES_WANTED))
    await rig.propose(command(21))
    entries = (await rig.tail())[APPENDS_IN_FLIGHT_MAX:]
    assert [numbers(entry.requests) for entry in entries] == [[n, n] for n in range(10, 15)] + [[20], [21]]
    await rig.close()


@in_virtual_time
async def test_an_entry_has_a_limit_of_commands_but_takes_one_larger_request() -> None:
    rig = ProposerRig(ProposerLimits(entry_commands_max=4))
    for number in range(APPENDS_IN_FLIGHT_MAX):
        await rig.propose(command(number))
    await asyncio.sleep(0.01)
    for numbered in ([10, 11, 12], [13], [14, 15], [16, 17, 18], [20, 21, 22, 23, 24, 25], [30]):
        await rig.propose(*map(command, numbered))
    entries = (await rig.tail())[APPENDS_IN_FLIGHT_MAX:]
    assert [numbers(entry.requests) for entry in entries] == [
        [10, 11, 12, 13],
        [14, 15],
        [16, 17, 18],
        [20, 21, 22, 23, 24, 25],
        [30],
    ]
    await rig.close()


@in_virtual_time
async def test_a_request_that_fits_no_entry_is_rejected_before_it_is_proposed() -> None:
    rig = ProposerRig()
    with pytest.raises(Invalid, match="are over the"):
        await rig.proposer.propose([command(1, ENTRY_BYTES_MAX)])
    assert not rig.proposer.waiting_count
    await rig.close()


@in_virtual_time
async def test_too_many_waiting_requests_are_rejected_and_not_proposed() -> None:
    rig = ProposerRig(ProposerLimits(proposals_max=10))
    answers = [await rig.propose(command(number)) for number in range(10)]
    with pytest.raises(Undelivered, match="overloaded: 10 requests"):
        await rig.proposer.propose([command(11)])
    entries = await rig.tail()
    await asyncio.gather(*answers)
    assert sorted(number for entry in entries for number in numbers(entry.requests)) == list(range(10))
    await rig.close()


@in_virtual_time
async def test_too_many_waiting_bytes_are_rejected() -> None:
    rig = ProposerRig(ProposerLimits(proposal_bytes_max=1_000))
    first = await rig.propose(command(1, 800))
    with pytest.raises(Undelivered, match=r"overloaded: 1 requests of 8\d\d bytes"):
        await rig.proposer.propose([command(2, 800)])
    await rig.tail()
    await first
    later = await rig.propose(command(3, 800))
    await rig.tail()
    assert (await later)[1] == [Done()]
    await rig.close()


@in_virtual_time
async def test_an_entry_that_does_not_return_in_time_has_an_unknown_outcome_and_frees_its_place() -> None:
    rig = ProposerRig()
    lost = [await rig.propose(command(number)) for number in range(APPENDS_IN_FLIGHT_MAX)]
    with pytest.raises(Unavailable, match=r"entry me\.1 did not return within 10 s"):
        await lost[0]
    results = await asyncio.gather(*lost, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * APPENDS_IN_FLIGHT_MAX
    later = await rig.propose(command(9))
    await rig.tail()
    assert (await later)[1] == [Done()]
    await rig.close()


@in_virtual_time
async def test_a_request_that_waited_too_long_never_enters_the_journal() -> None:
    rig = ProposerRig()
    held = []
    for number in range(APPENDS_IN_FLIGHT_MAX):
        held.append(await rig.propose(command(number)))
        await asyncio.sleep(0.01)
    waiting = await rig.propose(command(99))
    results = await asyncio.gather(*held, waiting, return_exceptions=True)
    assert isinstance(results[-1], Undelivered)
    assert "did not accept it within 2 s" in str(results[-1])
    entries = await rig.tail()
    assert all(99 not in numbers(entry.requests) for entry in entries)
    await rig.close()


@in_virtual_time
async def test_a_cancelled_request_does_not_enter_the_journal() -> None:
    rig = ProposerRig()
    for number in range(APPENDS_IN_FLIGHT_MAX):
        await rig.propose(command(number))
        await asyncio.sleep(0.01)
    waiting = await rig.propose(command(99))
    waiting.cancel()
    entries = await rig.tail()
    assert [numbers(entry.requests) for entry in entries] == [[n] for n in range(APPENDS_IN_FLIGHT_MAX)]
    await rig.close()


@in_virtual_time
async def test_entries_carry_unique_ids_and_their_authors_place_in_the_chain() -> None:
    rig = ProposerRig()
    for number in range(3):
        await rig.propose(command(number))
        await rig.tail()
    assert [entry.entry_id for entry in rig.entries()] == ["me.1", "me.2", "me.3"]
    assert {(entry.author, entry.author_sequence, entry.author_hash) for entry in rig.entries()} == {
        ("me", 0, bytes(16))
    }
    await rig.close()


@in_virtual_time
async def test_times_ahead_of_the_replicas_clock_are_set_back_to_it() -> None:
    rig = ProposerRig()
    now_ms = VirtualClock().now_ms()
    await rig.propose(Tick(now_ms + 10_000), Tick(now_ms - 10_000))
    ((ahead, behind),) = (await rig.tail())[0].requests
    assert (ahead.now_ms, behind.now_ms) == (now_ms, now_ms - 10_000)
    await rig.close()


@in_virtual_time
async def test_a_machine_that_is_far_ahead_is_no_second_clock_for_commands_that_remove_live_data() -> None:
    rig = ProposerRig()
    now_ms, day_ms = VirtualClock().now_ms(), 24 * 3_600_000
    rig.proposer.level = NEWEST_LEVEL
    rig.proposer.record_tick(now_ms + 20 * day_ms)
    await rig.propose(ExpireLogs(now_ms + 10 * day_ms, []), DropExtents(now_ms + 10 * day_ms), Tick(now_ms + day_ms))
    ((expire, drop, tick),) = (await rig.tail())[0].requests
    assert (expire.now_ms, drop.now_ms, tick.now_ms) == (now_ms, now_ms, now_ms + day_ms)
    await rig.close()


@in_virtual_time
async def test_a_current_clock_judges_a_lease_though_its_sender_repeats_an_old_time() -> None:
    rig = ProposerRig()
    now_ms = VirtualClock().now_ms()
    await rig.propose(CommitSegment(now_ms - 10_000, bytes(16), 0, "f", "z", [], not_after_ms=now_ms - 5_000))
    ((leased,),) = (await rig.tail())[0].requests
    assert leased.now_ms == now_ms
    await rig.close()


@in_virtual_time
async def test_an_entry_seen_in_the_tail_is_not_sent_again() -> None:
    rig = ProposerRig()
    rig.store.fail_next_append(with_effect=True)
    rig.store.fail_next_append(with_effect=False, times=1_000)
    answer = await rig.propose(command(1))
    await rig.tail()
    assert (await answer)[0] == 1
    await asyncio.sleep(5)
    assert rig.registry.get_sample_value("penstock_sequencer_append_retries_total") == 1
    await rig.close()


class StuckJournal(MemoryJournal):
    """Looks healthy and accepts nothing."""

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
async def test_commands_that_waited_during_a_stall_are_not_journaled() -> None:
    rig = ProposerRig()
    full = [await rig.propose(command(number)) for number in range(APPENDS_IN_FLIGHT_MAX)]
    await asyncio.sleep(0.01)
    waiting = await rig.propose(command(99))
    rig.clock.skip(2 * STALL_S)
    fresh = await rig.propose(command(100))
    entries = await rig.tail()
    assert [numbers(entry.requests) for entry in entries] == [[0], [1], [2], [3], [100]]
    assert (await fresh)[0] == 5
    with pytest.raises(Undelivered, match="was stalled"):
        await waiting
    await asyncio.gather(*full)
    await rig.close()


@in_virtual_time
async def test_an_append_in_doubt_is_not_sent_again_after_a_stall() -> None:
    rig = ProposerRig()
    rig.store.fail_next_append(with_effect=False)
    answer = await rig.propose(command(1))
    rig.journal.gate.set()
    await asyncio.sleep(0.01)
    rig.clock.skip(2 * STALL_S)
    with pytest.raises(Unavailable, match="was stalled"):
        await answer
    assert await rig.tail() == []
    await rig.close()


@in_virtual_time
async def test_commands_of_a_sampled_request_have_a_span_with_their_entry_under_it() -> None:
    rig = ProposerRig()
    sampled = await rig.propose(command(1), command(2), trace=traceparent(1))
    await rig.propose(command(3))
    await rig.tail()
    sequence, _ = await sampled
    assert rig.traces.parents() == {"journal append": "journal commit", "journal commit": ""}
    commit = rig.traces.named("journal commit")
    assert (commit.context.trace_id, commit.parent.span_id) == (1, 1)
    assert facts_of(commit) == {"commands": 2, "sequence": sequence}
    await rig.close()


@in_virtual_time
async def test_an_entry_has_no_trace_of_its_requests() -> None:
    rig = ProposerRig()
    await rig.propose(command(1), trace=traceparent(1))
    (entry,) = await rig.tail()
    assert entry.requests == [[command(1)]]
    await rig.close()
