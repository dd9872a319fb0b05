"""Rolling upgrades: a cluster reaches a level when all its replicas know it, and not before."""

import asyncio

import pytest

from penstock.contracts.commands import RaiseLevel, RecordArchived, Rejected, TakeCustody, Tick
from penstock.contracts.entries import GENESIS_HASH, Entry, encode_entry
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.objectstore.memory import MemoryStore
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.replication.level_raiser import LEVEL_LIMITS
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import SequencerRig, rig

LISTEN_S, RAISE_JITTER_S = LEVEL_LIMITS.listen_s, LEVEL_LIMITS.raise_jitter_s
OLD = 0  # the level that a replica of 0.1.0 knows
SOON_S = LISTEN_S + RAISE_JITTER_S + 1.0


async def make_old(built: SequencerRig) -> None:
    """Make the journal an old one: a replica of the earlier release has written an entry."""
    await built.start("first", OLD)
    await built.client.command([built.create_topic("t")], deadline_s=5)
    await built.kill("first")


def raises(built: SequencerRig) -> list[int]:
    commands = [command for entry in built.entries() for request in entry.requests for command in request]
    return [command.level for command in commands if isinstance(command, RaiseLevel)]


@in_virtual_time
async def test_a_new_cluster_reaches_the_newest_level_without_listening_to_others() -> None:
    async with rig("a", "b", "c") as three:
        assert three.level == 0
        async with asyncio.timeout(LISTEN_S - 1):
            await until(lambda: three.level == NEWEST_LEVEL)
        await asyncio.sleep(30)
        assert {running.metric("level") for running in three.running.values()} == {NEWEST_LEVEL}
        assert 1 <= len(raises(three)) <= 3
        assert set(raises(three)) == {NEWEST_LEVEL}


@in_virtual_time
async def test_replicas_of_an_earlier_release_are_replaced_one_by_one_and_none_halts() -> None:
    objects = MemoryStore()
    async with rig(objects=objects) as built:
        for name in ("a", "b", "c"):
            await built.start(name, OLD)
        await built.client.command([built.create_topic("t")], deadline_s=5)
        for name in ("a", "b", "c"):
            await asyncio.sleep(2 * LISTEN_S)
            assert built.level == 0, "an old replica is alive"
            await built.kill(name)
            await built.start(name)
        async with asyncio.timeout(SOON_S):
            await until(lambda: built.level == NEWEST_LEVEL)
        assert not any(running.task.done() for running in built.running.values())
        await until(lambda: built.running["a"].sequencer.replica.state.custody.holder, 10)


@pytest.mark.parametrize("new", [1, 2, 3])
@in_virtual_time
async def test_an_old_replica_without_commands_of_its_own_is_found_too(new: int) -> None:
    async with rig() as built:
        await make_old(built)
        for number in range(new):
            await built.start(f"new-{number}")
        await built.start("old", OLD)
        await asyncio.sleep(600)
        assert built.level == 0
        assert not built.running["old"].task.done()


@in_virtual_time
async def test_before_the_level_no_command_is_journaled_that_an_old_replica_does_not_know() -> None:
    async with rig(objects=MemoryStore()) as built:
        await built.start("old", OLD)
        new = await built.start("new")
        await built.client.command([built.create_topic("t")], deadline_s=5)
        with pytest.raises(Unavailable, match="commands of level 1: the cluster is at 0 until all replicas know them"):
            await new.sequencer.proposer.propose([Tick(1), TakeCustody(1, "new")])
        await asyncio.sleep(120)
        assert not built.running["old"].task.done()
        kinds = {type(command) for entry in built.entries() for request in entry.requests for command in request}
        assert not kinds & {TakeCustody, RecordArchived, RaiseLevel}


@in_virtual_time
async def test_an_old_replica_that_was_silent_halts_when_it_returns_and_names_the_remedy() -> None:
    async with rig("new") as built:
        await until(lambda: built.level == NEWEST_LEVEL, 10)
        with pytest.raises(ExceptionGroup) as caught:
            await built.start("old", OLD)
        reached = f"raises the cluster to level {NEWEST_LEVEL}, this release knows 0"
        text = f"{reached}. Upgrade this replica: start the release that"
        assert caught.group_contains(Halted, match=text)


@in_virtual_time
async def test_a_replica_halts_at_a_level_that_it_does_not_know() -> None:
    async with rig() as one:
        later = RaiseLevel(1_700_000_000_000, NEWEST_LEVEL + 1)
        one.store.inject(encode_entry(Entry("x.1", "x", 0, GENESIS_HASH, [[later]])))
        with pytest.raises(ExceptionGroup) as caught:
            await one.start("a")
        assert caught.group_contains(Halted, match=r"entry 1: journal entry that raises the cluster to level \d")


@in_virtual_time
async def test_a_replica_listens_anew_after_a_time_without_messages() -> None:
    async with rig() as built:
        await make_old(built)
        new = await built.start("new")
        await asyncio.sleep(LISTEN_S - 1)
        new.clock.skip(60)  # a stall: messages of other replicas were missed
        await asyncio.sleep(LISTEN_S - 1)
        assert built.level == 0
        await until(lambda: built.level == NEWEST_LEVEL, 10)


@in_virtual_time
async def test_no_other_process_on_the_bus_raises_the_level() -> None:
    async with rig("a") as one:
        (outcome,) = await one.client.command([RaiseLevel(one.clock.now_ms(), NEWEST_LEVEL + 1)], deadline_s=5)
        assert isinstance(outcome, Rejected)
        assert outcome.rejection == Rejection.INVALID_REQUEST
        assert one.level == 0
