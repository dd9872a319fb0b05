"""Sequencers on one journal: equal states, and every command is answered once it is applied, in spite of failures."""

import asyncio

import pytest

from penstock.contracts.commands import Done, Rejected, SegmentCommitted, Tick, TopicCreated
from penstock.contracts.entries import Entry, encode_entry, next_hash
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.log import Plan, PlanPartition, PlanQuery
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.replication.proposal_queue import PROPOSER_LIMITS
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import RecordingJournal, SequencerRig, rig

APPEND_DEADLINE_S = PROPOSER_LIMITS.append_deadline_s


def base_offset(outcome: object) -> int:
    assert isinstance(outcome, SegmentCommitted), outcome
    return outcome.runs[0][0].base_offset


@in_virtual_time
async def test_two_replicas_both_answer_and_end_in_the_same_state() -> None:
    async with rig("a", "b") as both:
        await both.client.command([both.create_topic("t")], deadline_s=5)
        offsets = []
        for _ in range(20):
            (outcome,) = await both.client.command([both.commit("t", 3)], deadline_s=5)
            offsets.append(base_offset(outcome))
        assert offsets == list(range(0, 60, 3))
        assert {entry.author.partition(".")[0] for entry in both.entries()} == {"a", "b"}
        last = both.store.last_sequence
        states = []
        for running in both.running.values():
            await running.sequencer.replica.until_applied(last, 5)
            states.append(encode_state(running.sequencer.replica.state))
        assert states[0] == states[1]


@in_virtual_time
async def test_replicas_report_the_same_chain_check_and_another_after_every_entry() -> None:
    async with rig("a", "b") as both:
        checks: list[float] = []
        for _ in range(3):
            await both.client.command([Tick(both.clock.now_ms())], deadline_s=5)
            for running in both.running.values():
                await running.sequencer.replica.until_applied(both.store.last_sequence, 5)
            announced = {running.metric("chain_check") for running in both.running.values()}
            assert len(announced) == 1
            checks += announced
        assert len(set(checks)) == 3


@in_virtual_time
async def test_every_entry_is_announced_once_and_by_its_author_in_the_order_of_the_journal() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        await asyncio.gather(*(one.client.command([one.commit("t")], deadline_s=5) for _ in range(30)))
        await one.client.command([Tick(one.clock.now_ms())], deadline_s=5)
        assert [each.sequence for each in one.advanced()] == list(range(1, one.store.last_sequence + 1))
        extents = [extent for each in one.advanced() for partition in each.partitions for extent in partition.extents]
        assert [extent.base_offset for extent in extents] == list(range(30))
        assert one.advanced()[0].topics == ["t"]


@in_virtual_time
async def test_entries_of_a_former_instance_are_replayed_and_not_announced_again() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        await one.client.command([one.commit("t")], deadline_s=5)
        await one.kill("a")
        announced = len(one.advanced())
        again = await one.start("b")
        assert again.applied == one.store.last_sequence
        assert len(one.advanced()) == announced
        (outcome,) = await one.client.command([one.commit("t")], deadline_s=5)
        assert base_offset(outcome) == 1


@in_virtual_time
async def test_an_append_whose_acknowledgement_is_lost_is_one_entry_and_answered_from_the_tail() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        before = one.store.last_sequence
        one.store.fail_next_append(with_effect=True, times=3)
        (outcome,) = await one.client.command([one.commit("t")], deadline_s=5)
        assert base_offset(outcome) == 0
        assert one.store.last_sequence == before + 1


@in_virtual_time
async def test_an_append_that_failed_is_sent_again_until_it_is_stored() -> None:
    async with rig("a") as one:
        one.store.fail_next_append(with_effect=False, times=5)
        (outcome,) = await one.client.command([one.create_topic("t")], deadline_s=5)
        assert isinstance(outcome, TopicCreated)
        assert one.store.last_sequence == 1
        assert one.running["a"].metric("append_retries_total") == 5


@in_virtual_time
async def test_a_commit_whose_replica_dies_between_append_and_answer_is_answered_by_the_other_and_done_once() -> None:
    async with rig() as both:
        both.make_journal = RecordingJournal
        for name in ("a", "b"):
            await both.start(name)
        await both.client.command([both.create_topic("t")], deadline_s=5)
        both.store.set_available(False)
        commit = asyncio.create_task(both.client.command([both.commit("t")], deadline_s=30))
        await asyncio.sleep(0.1)
        victim = next(each for each in both.running.values() if each.metric("held_bytes"))
        assert victim.sequencer.proposer.in_flight_count == 1
        both.store.inject(victim.journal.attempts[-1])
        await both.kill(victim.name)
        both.store.set_available(True)
        (outcome,) = await commit
        assert base_offset(outcome) == 0
        (outcome,) = await both.client.command([both.commit("t")], deadline_s=5)
        assert base_offset(outcome) == 1


@in_virtual_time
async def test_killing_one_of_two_replicas_stalls_a_commit_for_less_than_two_seconds() -> None:
    async with rig("a", "b") as both:
        await both.client.command([both.create_topic("t")], deadline_s=5)
        for victim in ("a", "b"):
            both.store.set_available(False)
            commits = [asyncio.create_task(both.client.command([both.commit("t")], deadline_s=30)) for _ in range(4)]
            await asyncio.sleep(0.1)
            await both.kill(victim)
            both.store.set_available(True)
            started_s = both.clock.monotonic_s()
            await asyncio.gather(*commits)
            assert both.clock.monotonic_s() - started_s < 2
            await both.start(victim)


@in_virtual_time
async def test_without_a_journal_a_command_has_an_unknown_outcome_and_the_replica_continues() -> None:
    async with rig("a") as one:
        one.store.set_available(False)
        with pytest.raises(Unavailable, match="no sequencer answered within 15 s"):
            await one.client.command([one.create_topic("t")], deadline_s=APPEND_DEADLINE_S + 5)
        one.store.set_available(True)
        (outcome,) = await one.client.command([one.create_topic("u")], deadline_s=5)
        assert isinstance(outcome, TopicCreated)
        await asyncio.sleep(APPEND_DEADLINE_S)
        assert one.running["a"].metric("held_bytes") == 0


@in_virtual_time
async def test_the_same_entry_twice_in_the_journal_does_no_harm() -> None:
    async with rig("a", "b") as both:
        await both.client.command([both.create_topic("t")], deadline_s=5)
        await both.client.command([both.commit("t", 2)], deadline_s=5)
        commit_entry = both.store.entry(2)
        assert commit_entry is not None
        both.store.inject(commit_entry)
        (outcome,) = await both.client.command([both.commit("t")], deadline_s=5)
        assert base_offset(outcome) == 2
        assert {each.sequence for each in both.advanced()} >= {1, 2, 3, 4}


@in_virtual_time
async def test_a_damaged_entry_halts_with_a_sentence_that_names_it() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        damaged = bytearray(one.store.entry(1) or b"")
        damaged[-1] ^= 1
        one.store.inject(bytes(damaged))
        await expect_halt(one, r"after journal entry 1: entry 2: journal entry with crc .*Restore the journal's stream")


@in_virtual_time
async def test_an_entry_of_an_unknown_version_halts() -> None:
    async with rig("a") as one:
        one.store.inject(b"\x63" + bytes(20))
        await expect_halt(one, "entry 1: journal entry of version 99")


@in_virtual_time
async def test_an_entry_built_on_another_past_halts() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        one.store.inject(encode_entry(Entry("x.1", "x", 1, bytes(16), [[Tick(1)]])))
        await expect_halt(one, "entry 2 by x builds on another past: hash 0{32} at entry 1")


@in_virtual_time
async def test_an_entry_built_on_the_future_halts() -> None:
    async with rig("a") as one:
        one.store.inject(encode_entry(Entry("x.1", "x", 5, bytes(16), [[Tick(1)]])))
        await expect_halt(one, "entry 1 by x builds on entry 5, which did not exist yet")


@in_virtual_time
async def test_a_missing_entry_halts() -> None:
    async with rig("a") as one:
        for number in range(3):
            await one.client.command([one.create_topic(f"t{number}")], deadline_s=5)
        await one.kill("a")
        one.store.drop(2)
        with pytest.raises(BaseExceptionGroup) as caught:
            await one.start("b")
        assert caught.group_contains(Halted, match="entry 2 is gone")


@in_virtual_time
async def test_a_journal_that_vanished_or_was_made_again_halts() -> None:
    async with rig("a") as one:
        one.store.lose()
        await expect_halt(one, "there is no journal|the journal is gone")
    async with rig("a") as one:
        await one.client.command([one.create_topic("t")], deadline_s=5)
        one.store.make_again()
        await expect_halt(one, "was created again")


@in_virtual_time
async def test_a_halt_is_counted() -> None:
    async with rig("a") as one:
        running = one.running["a"]
        one.store.inject(b"nothing")
        await expect_halt(one, "version")
        assert running.metric("halted") == 1


@in_virtual_time
async def test_a_long_journal_is_replayed_before_anything_is_answered() -> None:
    async with rig() as built:
        previous, chain = bytes(16), 0
        for number in range(3_000):
            data = encode_entry(Entry(f"x.{number}", "x", chain, previous, [[Tick(built.clock.now_ms() + number)]]))
            previous, chain = next_hash(previous, data), chain + 1
            built.store.inject(data)
        starting = asyncio.create_task(built.start("a"))
        with pytest.raises(Unavailable, match="no subscriber"):
            await built.client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=0.01)
        await starting
        view = await built.client.query("metadata", MetadataQuery(0, None), MetadataView)
        assert view.sequence >= 3_000


@in_virtual_time
async def test_a_query_waits_for_the_sequence_that_its_sender_has_seen() -> None:
    async with rig("a") as one:
        query = MetadataQuery(2, None)
        asked = asyncio.create_task(one.client.query("metadata", query, MetadataView, deadline_s=0.9))
        await one.client.command([one.create_topic("t")], deadline_s=5)
        assert not asked.done()
        await one.client.command([one.create_topic("u")], deadline_s=5)
        view = await asked
        assert [topic.name for topic in view.topics] == ["t", "u"]
        assert one.client.seen_sequence == view.sequence


@in_virtual_time
async def test_a_client_sees_at_the_other_replica_the_effects_of_the_first_ones_answer() -> None:
    async with rig("a", "b") as both:
        for number in range(10):
            await both.client.command([both.create_topic(f"t{number}")], deadline_s=5)
            view = await both.client.query("metadata", MetadataQuery(0, None), MetadataView)
            assert len(view.topics) == number + 1


@in_virtual_time
async def test_a_plan_lists_the_committed_extents() -> None:
    async with rig("a") as one:
        await one.client.command([one.create_topic("t"), one.commit("t", 4)], deadline_s=5)
        wanted = PlanPartition(one.topic_id("t"), 0, 2, 1_000)
        plan = await one.client.query("plan", PlanQuery(0, [wanted], 1_000), Plan)
        (partition,) = plan.partitions
        assert partition.rejection is Rejection.NONE
        assert partition.high_watermark == 4
        assert [(extent.base_offset, extent.last_offset) for extent in partition.extents] == [(0, 3)]


@in_virtual_time
async def test_a_sender_with_a_fast_clock_does_not_move_the_machine_into_the_future() -> None:
    async with rig("a") as one:
        (outcome,) = await one.client.command([Tick(one.clock.now_ms() + 3_600_000)], deadline_s=5)
        assert outcome == Done()
        assert one.running["a"].sequencer.replica.state.clock_ms <= one.clock.now_ms()


@in_virtual_time
async def test_a_rejection_of_the_machine_is_an_outcome() -> None:
    async with rig("a") as one:
        commands = [one.create_topic("bad name"), one.create_topic("good")]
        rejected, created = await one.client.command(commands, deadline_s=5)
        assert isinstance(rejected, Rejected)
        assert rejected.rejection is Rejection.INVALID_TOPIC
        assert isinstance(created, TopicCreated)


@in_virtual_time
async def test_a_tick_comes_about_every_second_from_one_of_the_replicas() -> None:
    async with rig("a", "b", "c") as three:
        await until(lambda: three.level, 10)
        before = three.store.last_sequence
        await asyncio.sleep(60)
        assert 45 <= three.store.last_sequence - before <= 75
        assert all(type(entry.requests[0][0]) is Tick for entry in three.entries()[before:])


@in_virtual_time
async def test_time_advances_at_half_speed_after_a_clock_that_was_ahead_until_the_others_have_caught_up() -> None:
    async with rig("a") as one:
        clock, replica = one.running["a"].clock, one.running["a"].sequencer.replica
        clock.ahead_ms = 60_000
        await until(lambda: replica.state.clock_ms > one.clock.now_ms() + 50_000, 10)
        clock.ahead_ms = 0
        before_ms = replica.state.clock_ms
        await asyncio.sleep(20)
        assert 8_000 <= replica.state.clock_ms - before_ms <= 12_000
        await asyncio.sleep(120)
        assert replica.state.clock_ms <= one.clock.now_ms() <= replica.state.clock_ms + 2_000


async def expect_halt(one: SequencerRig, text: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.timeout(5):
            await one.running["a"].task
    assert caught.group_contains(Halted, match=text), caught.value.exceptions
    del one.running["a"]
