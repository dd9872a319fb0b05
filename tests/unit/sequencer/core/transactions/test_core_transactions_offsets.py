"""Offsets that are committed with a transaction: they wait for its end, and are committed or dropped with it."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.contracts.commands import (
    CommitOffsets,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    Done,
    OffsetToCommit,
    PerItem,
    Tick,
    UndeleteTopic,
)
from penstock.contracts.configs.members import offsets_retention_ms
from penstock.contracts.ids import new_topic_id
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL
from penstock.contracts.queries.groups import GroupOffsetsQuery, GroupTopicPartitions
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.cluster import COMPLETING
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits, TransactionLimits
from tests.testkit.work import counted_work
from tests.unit.sequencer.core.core_transactions import TIMEOUT_MS
from tests.unit.sequencer.core.core_world import World, transaction_world


@pytest.fixture
def world() -> World:
    return transaction_world()


def stored(world: World, topic: str = "t", group_id: str = "g") -> tuple[int, bool]:
    """The offset that the group has in partition 0, and whether another may come."""
    query = GroupOffsetsQuery(0, group_id, [GroupTopicPartitions(topic, [0])])
    (found,) = queries.group_offsets(world.state, query).offsets
    return found.offset, found.pending


def test_offsets_wait_for_the_end_and_are_committed_with_it(world: World) -> None:
    world.commit_offset(3)
    writer = world.transactions.init()
    assert world.transactions.add_offsets(writer) == Done()
    assert world.transactions.commit_txn_offset(writer, 7) == PerItem([Rejection.NONE])
    assert stored(world) == (3, True)
    world.transactions.end(writer)
    assert stored(world) == (7, False)


def test_offsets_of_an_aborted_transaction_are_dropped(world: World) -> None:
    world.commit_offset(3)
    writer = world.transactions.init()
    world.transactions.commit_txn_offset(writer, 7, adds=True)
    world.transactions.end(writer, committed=False)
    assert stored(world) == (3, False)


def test_offsets_of_a_transaction_that_times_out_are_dropped(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.commit_txn_offset(writer, 7, adds=True)
    world.wait(TIMEOUT_MS)
    assert stored(world) == (-1, False)


def test_a_group_is_added_before_its_offsets_unless_their_command_adds_it(world: World) -> None:
    writer = world.transactions.init()
    assert world.transactions.commit_txn_offset(writer).rejection == Rejection.INVALID_TXN_STATE
    world.transactions.add_offsets(writer, "other")
    assert world.transactions.commit_txn_offset(writer).rejection == Rejection.INVALID_TXN_STATE
    assert world.transactions.commit_txn_offset(writer, adds=True) == PerItem([Rejection.NONE])


def test_the_last_offset_of_a_transaction_counts(world: World) -> None:
    writer = world.transactions.init()
    for offset in (7, 9, 8):
        world.transactions.commit_txn_offset(writer, offset, adds=True)
    world.transactions.end(writer)
    assert stored(world) == (8, False)


def test_a_late_offset_does_not_replace_a_later_one(world: World) -> None:
    writer = world.transactions.init()
    seen = world.state.sequence
    world.transactions.commit_txn_offset(writer, 7, adds=True, seen=seen)
    world.transactions.commit_txn_offset(writer, 9, seen=world.state.sequence)
    assert world.transactions.commit_txn_offset(writer, 7, seen=seen) == PerItem([Rejection.STALE])
    assert world.transactions.commit_txn_offset(writer, 9, seen=seen) == PerItem([Rejection.NONE])
    world.transactions.end(writer)
    assert stored(world) == (9, False)


def test_an_offset_that_was_committed_later_than_a_waiting_one_stays(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.commit_txn_offset(writer, 7, adds=True)
    world.commit_offset(9)
    world.transactions.end(writer)
    assert stored(world) == (9, False)


def test_only_members_of_this_generation_commit_and_senders_that_name_no_member(world: World) -> None:
    generation = world.classic.stable_group("m1")
    writer = world.transactions.init()

    def commit(generation: int, member_id: str) -> Any:
        return world.transactions.commit_txn_offset(writer, generation=generation, member_id=member_id, adds=True)

    assert commit(generation - 1, "m1").rejection == Rejection.ILLEGAL_GENERATION
    assert commit(generation, "m2").rejection == Rejection.UNKNOWN_MEMBER
    assert commit(generation, "m1") == commit(-1, "") == PerItem([Rejection.NONE])
    unknown = world.transactions.commit_txn_offset(writer, generation=1, member_id="m1", adds=True, group_id="none")
    assert unknown.rejection == Rejection.ILLEGAL_GENERATION
    assert world.transactions.commit_txn_offset(writer, adds=True, group_id="").rejection == Rejection.INVALID_GROUP


def test_members_of_the_newest_generation_commit_during_a_rebalance(world: World) -> None:
    """Kafka has no REBALANCE_IN_PROGRESS for transactions: the Java client would close its producer."""
    generation = world.classic.stable_group("m1")
    world.classic.join("m2")
    writer = world.transactions.init()
    accepted = PerItem([Rejection.NONE])
    assert world.transactions.commit_txn_offset(writer, generation=generation, member_id="m1", adds=True) == accepted
    world.classic.join("", "m1")
    assert world.group().state == COMPLETING
    assert (
        world.transactions.commit_txn_offset(writer, generation=generation + 1, member_id="m1", adds=True) == accepted
    )


def test_committing_with_a_transaction_counts_as_activity(world: World) -> None:
    generation = world.classic.stable_group("m1")
    writer = world.transactions.init()
    world.transactions.commit_txn_offset(writer, generation=generation, member_id="m1", adds=True)
    assert world.group().members["m1"].active_sequence == world.state.sequence


def test_committing_with_a_transaction_counts_as_activity_in_a_consumer_group(
    world: World,
) -> None:
    consumers = World(level=CONSUMER_GROUPS_LEVEL)
    consumers.state, consumers.now_ms = world.state, world.now_ms
    epoch = consumers.consumers.join("m1", "t").member_epoch
    writer = world.transactions.init()
    committed = world.transactions.commit_txn_offset(writer, adds=True, generation=epoch, member_id="m1")
    assert committed == PerItem([Rejection.NONE])
    assert consumers.consumers.member("m1").active_sequence == world.state.sequence


def test_unknown_partitions_and_large_metadata_are_rejected_by_themselves(world: World) -> None:
    writer = world.transactions.init()
    assert world.transactions.commit_txn_offset(writer, topic="none", adds=True) == PerItem([Rejection.UNKNOWN_TOPIC])
    assert world.transactions.commit_txn_offset(writer, partition=2, adds=True) == PerItem([Rejection.UNKNOWN_TOPIC])


def test_waiting_offsets_belong_to_the_topic_id_of_their_command(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.commit_txn_offset(writer, adds=True)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.do(CreateTopic(world.now_ms, "t", new_topic_id(bytes(15) + b"9"), 1, {}))
    world.transactions.end(writer)
    assert stored(world) == (-1, False)


def test_an_undeleted_topic_has_the_offsets_committed_since(world: World) -> None:
    world.topic("u", number=2, **{"penstock.undelete.window.ms": "60000"})
    writer = world.transactions.init()
    world.transactions.commit_txn_offset(writer, 7, topic="u", adds=True)
    world.do(DeleteTopic(world.now_ms, "u", bytes(16)))
    world.transactions.end(writer)
    world.do(UndeleteTopic(world.now_ms, "u", bytes(16)))
    assert stored(world, "u") == (7, False)


def test_a_deleted_group_is_made_again_by_waiting_offsets(world: World) -> None:
    world.commit_offset(3)
    writer = world.transactions.init()
    world.transactions.commit_txn_offset(writer, 7, adds=True)
    assert world.do(DeleteGroup(world.now_ms, "g")) == Done()
    world.transactions.end(writer)
    assert stored(world) == (7, False)


def test_the_offsets_and_groups_of_a_transaction_are_limited(world: World) -> None:
    world.use_limits(Limits(transactions=TransactionLimits(offsets_per_transaction_max=1)))
    writer = world.transactions.init()
    world.transactions.commit_txn_offset(writer, adds=True)
    assert world.transactions.commit_txn_offset(writer, partition=1) == PerItem([Rejection.POLICY_VIOLATION])
    assert world.transactions.commit_txn_offset(writer, 9) == PerItem([Rejection.NONE])
    assert (
        world.transactions.commit_txn_offset(writer, adds=True, group_id="other").rejection
        == Rejection.POLICY_VIOLATION
    )
    assert world.transactions.add_offsets(writer) == Done()
    assert (
        world.transactions.add_offsets(writer, "g" * (DEFAULT_LIMITS.groups.group_id_length_max + 1)).rejection
        == Rejection.INVALID_GROUP
    )


def crowded_world(size: int) -> World:
    """A group with so many offsets and transactions, one of which holds an offset of partition 0."""
    world = transaction_world()
    world.on_entry.clear()  # the invariants are not the work of the commands
    world.topic("many", partitions=size, number=2)
    items = [OffsetToCommit("many", partition, 3, 1, "") for partition in range(size)]
    world.do(CommitOffsets(world.now_ms, "g", -1, "", None, items))
    for number in range(size):
        writer = world.transactions.init(f"tx{number}")
        world.transactions.add_offsets(writer)
    world.transactions.commit_txn_offset(writer, topic="many")
    return world


def work_of_reading(size: int) -> int:
    world = crowded_world(size)
    with counted_work() as work:
        found = queries.group_offsets(world.state, GroupOffsetsQuery(0, "g", None)).offsets
    assert [each.partition for each in found if each.pending] == [0]
    return work.instructions


def work_of_expiring(size: int) -> int:
    world = crowded_world(size)
    # As after a week of such transactions, one after the other.
    world.state.lived_ms = offsets_retention_ms({})
    world.state.ages.append((0, world.state.sequence))
    world.state.expiry_round.append("g")
    with counted_work() as work:
        world.do(Tick(world.now_ms))
    assert world.group().offsets["many"].keys() == {0}
    return work.instructions


@pytest.mark.parametrize("work_of", [work_of_reading, work_of_expiring])
def test_the_work_for_offsets_grows_with_their_number_and_that_of_transactions(work_of: Callable[[int], int]) -> None:
    assert work_of(400) < 6 * work_of(100)
