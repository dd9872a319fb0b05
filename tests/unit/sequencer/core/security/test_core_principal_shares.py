"""Each principal has a share of the tables that all clients use: one cannot fill them for all (ADR 0040)."""

from random import Random
from typing import Any

import msgspec
import pytest

from penstock.contracts.batches import BatchMeta, BatchResult
from penstock.contracts.commands import (
    AlterShareOffsets,
    Command,
    CommitOffsets,
    CommitSegment,
    CommitTxnOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteTopic,
    Done,
    EndTxn,
    GroupProtocol,
    InitTransactionalProducer,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    PerItem,
    ProducerAllocated,
    RaiseLevel,
    Rejected,
    ShareHeartbeat,
    ShareOffset,
    Waiting,
)
from penstock.contracts.levels import SECURITY_LEVEL, SHARES_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import (
    MINUTE_MS,
    SECOND_MS,
    GroupLimits,
    Limits,
    PrincipalLimits,
    ProducerLimits,
    TransactionLimits,
)
from tests.unit.sequencer.core.core_invariants import check_invariants
from tests.unit.sequencer.core.core_walks import Walker
from tests.unit.sequencer.core.core_world import World, batch

ANN, BOB, EVE = "User:ann", "User:bob", "User:eve"
PLACES = 16  # of each table here: one principal ends at 14 of them
SHARE = 14
MEMBER_BYTES = 1_100  # about the size of a member here
LIMITS = Limits(
    producers=ProducerLimits(producers_per_partition_max=PLACES, producers_max=4 * PLACES, producers_pressure_min=56),
    transactions=TransactionLimits(transactions_max=PLACES, transactions_pressure_min=PLACES),
    groups=GroupLimits(groups_max=PLACES, members_bytes_max=PLACES * MEMBER_BYTES, member_bytes_max=100),
)


class Shared(World):
    """A world with short methods that take the principal of the sender."""

    def __init__(self, level: int = SHARES_LEVEL, limits: Limits = LIMITS) -> None:
        super().__init__(limits, level)
        self.topic(partitions=6)

    def write(
        self, principal: str, producer: int, sequence: int = 0, *, partition: int = 0, born_ms: int | None = None
    ) -> Rejection:
        meta = batch(producer=producer, epoch=0, sequence=sequence)
        command = self.segment_command((1, partition, [named(meta)]), born_ms=born_ms)
        (result,) = self.do(msgspec.structs.replace(command, principals=[principal] if principal else [])).runs[0]
        assert isinstance(result, BatchResult)
        return Rejection(result.rejection)

    def begin(self, principal: str, *, partition: int = 0) -> Rejection:
        """A new producer of the principal writes its first batch."""
        return self.write(principal, self.producer(), partition=partition)

    def begin_all(self, principal: str, count: int = 2 * PLACES, *, partition: int = 0) -> int:
        """As many producers as the partition takes; return their number."""
        return [self.begin(principal, partition=partition) for _ in range(count)].count(Rejection.NONE)

    def init(self, principal: str, name: str) -> Any:
        return self.do(InitTransactionalProducer(self.now_ms, name, 60_000, principal=principal))

    def init_all(self, principal: str, count: int = 2 * PLACES) -> int:
        outcomes = [self.init(principal, f"{principal}-{number}") for number in range(count)]
        return sum(isinstance(each, ProducerAllocated) for each in outcomes)

    def commit(self, principal: str, group: str) -> Rejection:
        """Commit an offset from outside the group, which is made if it does not exist."""
        item = OffsetToCommit("t", 0, 0, -1, "")
        outcome = self.do(CommitOffsets(self.now_ms, group, -1, "", None, [item], principal=principal))
        return outcome.rejection if isinstance(outcome, Rejected) else Rejection(outcome.rejections[0])

    def join(self, principal: str, group: str, member: str = "m") -> Any:
        protocols = [GroupProtocol("range", b"x")]
        times = (6_000, 6_000)
        return self.do(
            JoinGroup(
                self.now_ms, group, "", member, None, False, "c", "h", *times, "consumer", protocols, -1, principal
            )
        )

    def heartbeat(self, principal: str, group: str, member: str = "m") -> Any:
        rest: Any = (0, None, None, 60_000, "c", "h", ["t"], None, None, [], -1)
        return self.do(ConsumerHeartbeat(self.now_ms, group, member, *rest, principal))

    def share_heartbeat(self, principal: str, group: str, member: str = "m") -> Any:
        return self.do(ShareHeartbeat(self.now_ms, group, member, 0, None, "c", "h", ["t"], -1, principal))

    def pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms // MINUTE_MS):
            self.wait(MINUTE_MS)


def named(meta: BatchMeta, place: int = 1) -> BatchMeta:
    return msgspec.structs.replace(meta, principal=place)


def is_accepted(outcome: Any) -> bool:
    return not isinstance(outcome, Rejected)


# Producers of a partition.


def test_a_principal_that_fills_a_partition_leaves_places_for_others() -> None:
    world = Shared()
    assert world.begin_all(EVE) == SHARE
    assert world.begin(EVE) == Rejection.PRODUCERS_FULL
    assert world.begin(BOB) == Rejection.NONE


def test_two_principals_that_fill_a_partition_leave_a_place_for_a_third() -> None:
    world = Shared()
    for _ in range(PLACES):
        world.begin(EVE), world.begin(ANN)
    assert {row.name: row.producers for row in world.state.principals.values()} == {"": 0, EVE: 8, ANN: 7}
    assert world.begin(BOB) == Rejection.NONE


def test_known_producers_of_a_principal_at_its_share_go_on() -> None:
    world = Shared()
    producer = world.producer()
    assert world.write(EVE, producer) == Rejection.NONE
    world.begin_all(EVE)
    assert world.write(EVE, producer, 1) == Rejection.NONE


def test_a_principal_at_its_share_evicts_its_own_idle_producers_only() -> None:
    world = Shared()
    first = world.producer()
    assert world.write(BOB, first) == Rejection.NONE
    world.begin_all(EVE)
    world.pass_time(11 * MINUTE_MS)
    assert world.begin(EVE) == Rejection.NONE
    assert first in world.partition().producers
    assert world.write(BOB, first, 1) == Rejection.NONE


def test_evictions_of_one_principal_do_not_reject_new_producers_of_another() -> None:
    """A late copy of an evicted producer's batch names the same principal."""
    world = Shared()
    evicted = world.producer()
    world.write(EVE, evicted)
    world.begin_all(EVE)
    world.pass_time(11 * MINUTE_MS)
    born_ms = world.now_ms
    world.now_ms += SECOND_MS
    assert world.begin(EVE) == Rejection.NONE
    assert evicted not in world.partition().producers
    assert world.write(EVE, evicted, born_ms=born_ms) == Rejection.PRODUCERS_FULL
    assert world.write(BOB, world.producer(), born_ms=born_ms) == Rejection.NONE
    # A flusher of an older release names no sender: its batch may be the late copy, so it is rejected as well.
    assert world.write("", evicted, born_ms=born_ms) == Rejection.PRODUCERS_FULL
    again = decode_state(encode_state(world.state), LIMITS)
    assert again.topics["t"].partitions[0].evictions == world.partition().evictions != {}


def test_a_late_copy_is_rejected_even_if_all_entries_of_its_principal_are_gone() -> None:
    limits = msgspec.structs.replace(LIMITS, producers=ProducerLimits(producers_per_partition_max=2))
    world = Shared(limits=limits)
    world.commit(BOB, "g")  # so that the table has shares
    evicted = world.producer()
    assert world.write(EVE, evicted) == world.begin(EVE) == Rejection.NONE
    world.pass_time(11 * MINUTE_MS)
    born_ms = world.now_ms
    world.now_ms += SECOND_MS
    assert world.begin(BOB) == Rejection.NONE
    assert len(world.partition().producers) == 1  # there is a place again
    world.wait(SECOND_MS)
    assert world.write(EVE, evicted, born_ms=born_ms) == Rejection.PRODUCERS_FULL
    world.pass_time(20 * MINUTE_MS)
    assert EVE not in world.state.principal_numbers


def test_a_batch_that_names_no_principal_of_its_segment_is_of_anonymous() -> None:
    world = Shared()
    for place in (0, 2, -1, 2**40):
        meta = named(batch(producer=world.producer(), epoch=0, sequence=0), place)
        command = msgspec.structs.replace(world.segment_command((1, 0, [meta])), principals=[EVE])
        assert world.do(command).runs[0][0].rejection == Rejection.NONE
    assert world.state.principals[0].producers == 4


# The table of all producers.


def test_a_principal_that_fills_the_table_of_producers_leaves_places_for_others() -> None:
    world = Shared()
    accepted = sum(world.begin_all(EVE, PLACES, partition=number) for number in range(6))
    assert accepted == 4 * SHARE
    assert all(world.begin(BOB, partition=number) == Rejection.NONE for number in range(6))


def test_ticks_evict_idle_producers_of_large_principals_only() -> None:
    world = Shared()
    kept = world.producer()
    world.write(BOB, kept, partition=5)
    for number in range(4):
        world.begin_all(EVE, SHARE, partition=number)
    world.pass_time(24 * 60 * MINUTE_MS - MINUTE_MS)
    assert kept in world.partition(1, 5).producers
    assert world.state.principals[world.state.principal_numbers[EVE]].producers < 4 * SHARE


def test_deleted_topics_give_their_places_back() -> None:
    world = Shared()
    world.begin_all(EVE)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    world.wait(SECOND_MS)
    assert list(world.state.principals) == [0]


# Transactional ids.


def test_a_principal_that_fills_the_table_of_transactional_ids_leaves_places_for_others() -> None:
    world = Shared()
    assert world.init_all(EVE) == SHARE
    rejected = world.init(EVE, "one more")
    assert rejected.rejection == Rejection.OVERLOADED
    assert rejected.message == "the principal has 14 of 14 transactional ids, which is its share of 16"
    assert isinstance(world.init(BOB, "b"), ProducerAllocated)


def test_a_principal_at_its_share_evicts_its_own_idle_transactional_ids_only() -> None:
    no_pressure = TransactionLimits(transactions_max=PLACES, transactions_pressure_min=2 * PLACES)
    world = Shared(limits=msgspec.structs.replace(LIMITS, transactions=no_pressure))
    world.init(BOB, "b")
    world.init_all(EVE)
    world.pass_time(16 * MINUTE_MS)
    assert isinstance(world.init(EVE, "one more"), ProducerAllocated)
    assert "b" in world.state.transactions
    assert f"{EVE}-0" not in world.state.transactions


def test_a_known_transactional_id_stays_with_the_principal_that_made_it() -> None:
    world = Shared()
    world.init(BOB, "b")
    assert isinstance(world.init(EVE, "b"), ProducerAllocated)
    assert EVE not in world.state.principal_numbers


# Groups and members.


def test_a_principal_that_fills_the_table_of_groups_leaves_places_for_others() -> None:
    world = Shared()
    assert [world.commit(EVE, f"e{number}") for number in range(PLACES)].count(Rejection.NONE) == SHARE
    others = [
        world.join(EVE, "new"),
        world.heartbeat(EVE, "new"),
        world.share_heartbeat(EVE, "new"),
        world.do(AlterShareOffsets(world.now_ms, "new", [ShareOffset("t", 0, 0)], principal=EVE)),
    ]
    assert [each.rejection for each in others] == [Rejection.OVERLOADED] * 4
    assert world.commit(BOB, "b") == Rejection.NONE
    assert is_accepted(world.heartbeat(BOB, "b2"))


@pytest.mark.parametrize("protocol", ["join", "heartbeat", "share_heartbeat"])
def test_a_principal_that_fills_the_memory_of_members_leaves_some_for_others(protocol: str) -> None:
    world = Shared()
    accepted = [is_accepted(getattr(world, protocol)(EVE, "g", f"m{number}")) for number in range(2 * PLACES)]
    assert accepted[-1] is False
    assert SHARE // 2 < accepted.count(True) < PLACES
    assert world.state.member_bytes <= SHARE * MEMBER_BYTES + MEMBER_BYTES
    assert is_accepted(getattr(world, protocol)(BOB, "g", "bob"))


def test_groups_of_transactions_count_before_their_offsets_are_committed() -> None:
    world = Shared()
    writers = [(f"{EVE}-{number}", world.init(EVE, f"{EVE}-{number}")) for number in range(3)]
    accepted = 0
    for place in range(3 * PLACES):
        name, writer = writers[place % 3]
        names = (world.now_ms, name, writer.producer_id, writer.producer_epoch, f"g{place}")
        item = OffsetToCommit("t", 0, 0, -1, "")
        outcome = world.do(CommitTxnOffsets(*names, -1, "", None, [item], adds=True))
        accepted += isinstance(outcome, PerItem)
    assert accepted == SHARE
    assert world.commit(BOB, "b") == Rejection.NONE
    for name, writer in writers:
        world.do(EndTxn(world.now_ms, name, writer.producer_id, writer.producer_epoch, committed=True))
    assert len(world.state.groups) == SHARE + 1


def test_a_group_that_waits_for_the_end_of_a_transaction_is_not_removed_as_idle() -> None:
    world = Shared()
    writer = world.init(EVE, "e")
    names = (writer.producer_id, writer.producer_epoch)
    assert is_accepted(world.join(EVE, "g"))
    world.do(LeaveGroup(world.now_ms, "g", [LeavingMember("m", None)]))
    item = OffsetToCommit("t", 0, 7, -1, "")
    world.do(InitTransactionalProducer(world.now_ms, "e", 15 * MINUTE_MS, principal=EVE))
    names = (world.state.transactions["e"].producer_id, world.state.transactions["e"].epoch)
    world.do(CommitTxnOffsets(world.now_ms, "e", *names, "g", -1, "", None, [item], adds=True))
    world.pass_time(12 * MINUTE_MS)
    assert "g" in world.state.groups
    world.do(EndTxn(world.now_ms, "e", *names, committed=False))
    world.pass_time(12 * MINUTE_MS)
    assert "g" not in world.state.groups


def test_a_deleted_group_gives_its_place_back() -> None:
    world = Shared()
    world.join(EVE, "g")
    world.wait(4 * SECOND_MS)  # the first rebalance
    world.do(LeaveGroup(world.now_ms, "g", [LeavingMember("m", None)]))
    world.wait(10 * SECOND_MS)
    assert world.do(DeleteGroup(world.now_ms, "g")) == Done()
    world.wait(SECOND_MS)
    assert list(world.state.principals) == [0]


def test_a_member_keeps_its_owner_when_its_group_changes_the_protocol() -> None:
    world = Shared()
    world.join(EVE, "g", "classic")
    subscription = bytes((0, 0, 0, 0, 0, 1, 0, 1)) + b"t" + bytes(4)
    command = JoinGroup(
        world.now_ms, "h", "", "m", None, False, "c", "h", 6_000, 6_000, "consumer",
        [GroupProtocol("range", subscription)], -1, EVE,
    )  # fmt: skip
    assert isinstance(world.do(command), Joined | Waiting)
    world.wait(4 * SECOND_MS)
    assert is_accepted(world.heartbeat(BOB, "h", "new"))
    consumer = world.group("h").consumer
    assert consumer is not None
    owners = {name: world.state.principals[each.owner].name for name, each in consumer.members.items()}
    assert owners == {"m": EVE, "new": BOB}


# Clusters without logins, and below the level.


def test_without_logins_clients_fill_the_tables_as_before() -> None:
    world = Shared()
    assert world.begin_all("") == PLACES
    assert world.init_all("") == PLACES
    assert [world.commit("", f"g{number}") for number in range(2 * PLACES)].count(Rejection.NONE) == PLACES


def test_anonymous_has_a_share_when_others_are_known() -> None:
    world = Shared()
    world.commit(BOB, "b")
    assert world.begin_all("") == SHARE
    assert world.begin(BOB) == Rejection.NONE


def test_below_the_level_no_entry_has_an_owner_and_later_it_counts_for_anonymous() -> None:
    world = Shared(level=SECURITY_LEVEL)
    assert world.begin_all(EVE) == PLACES
    assert world.init_all(EVE) == PLACES
    world.do(RaiseLevel(world.now_ms, SHARES_LEVEL))
    assert {name: row.producers for name, row in world.state.principals.items()} == {0: PLACES}
    assert world.begin(EVE) == Rejection.PRODUCERS_FULL
    world.pass_time(11 * MINUTE_MS)
    assert world.begin(EVE) == Rejection.NONE


def test_names_count_up_to_a_length() -> None:
    world = Shared(limits=msgspec.structs.replace(LIMITS, shares=PrincipalLimits(principal_length_max=8)))
    world.init("User:abcdef", "a")
    world.init("User:abcxyz", "b")
    assert list(world.state.principal_numbers) == ["User:abc"]


# Random journals.


def with_principals(random: Random, command: Command) -> Command:
    """The command as one of four principals sends it."""
    who = random.choice(["", ANN, BOB, EVE])
    if isinstance(command, CommitSegment):
        principals = random.choice([[], [EVE], [ANN, BOB]])
        for run in command.runs:
            run.batches[:] = [named(each, random.randint(0, 3)) for each in run.batches]
        return msgspec.structs.replace(command, principals=principals)
    return msgspec.structs.replace(command, principal=who) if hasattr(command, "principal") else command


def journal(seed: int, limits: Limits) -> list[list[list[Command]]]:
    walker, random = Walker(seed, limits), Random(seed)
    log: list[list[list[Command]]] = [[[RaiseLevel(walker.now_ms, SHARES_LEVEL)]]]
    for sequence in range(1, 400):
        apply_entry(walker.state, sequence, log[-1])
        log.append([[with_principals(random, walker.command())]])
    return log


TINY = Limits(
    producers=ProducerLimits(producers_per_partition_max=3, producers_max=9, producers_pressure_min=6),
    transactions=TransactionLimits(transactions_max=3, transactions_pressure_min=2),
    groups=GroupLimits(groups_max=3, members_bytes_max=4_000),
    shares=PrincipalLimits(entries_per_free_place=1),
)


@pytest.mark.parametrize("seed", range(25))
def test_any_journal_keeps_the_counts_and_a_snapshot_anywhere_changes_nothing(seed: int) -> None:
    """The second state goes through a snapshot after every few entries."""
    one: State = new_state(TINY)
    other: State = new_state(TINY)
    for sequence, entry in enumerate(journal(seed, TINY), 1):
        assert apply_entry(one, sequence, entry) == apply_entry(other, sequence, entry)
        check_invariants(one)
        if sequence % 7 == 0:
            data = encode_state(other)
            other = decode_state(data, TINY)
            check_invariants(other)
            assert encode_state(one) == data == encode_state(other)
