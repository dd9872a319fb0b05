"""Transactions: which producer may write, what a transaction contains, and its end in all partitions at once."""

from typing import Any

import pytest

from penstock.contracts.batches import TRANSACTIONAL, BatchResult
from penstock.contracts.commands import (
    DeleteTopic,
    EndTxn,
    InitTransactionalProducer,
    PerItem,
    ProducerAllocated,
    RaiseLevel,
    Tick,
    TransactionEnded,
    UndeleteTopic,
)
from penstock.contracts.levels import ABORTED_BATCHES_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import ABORTED, COMMITTED, EMPTY, ONGOING
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, PRODUCER_EPOCH_MAX, Limits, TransactionLimits
from tests.unit.sequencer.core.core_transactions import TIMEOUT_MS, Writer
from tests.unit.sequencer.core.core_world import World, batch, topic_id, transaction_world


@pytest.fixture
def world() -> World:
    return transaction_world()


def rejection_of(outcome: Any) -> Rejection:
    rejection: Rejection = outcome.rejection
    return rejection


def test_a_producer_gets_a_unique_id_and_the_first_epoch(world: World) -> None:
    one, other = world.transactions.init("one"), world.transactions.init("other")
    assert one.producer_id != other.producer_id
    assert (one.epoch, other.epoch) == (0, 0)
    assert world.state.transactions["one"].state == EMPTY


def test_a_later_producer_of_the_same_id_gets_a_higher_epoch_and_fences_the_former_one(
    world: World,
) -> None:
    old = world.transactions.init()
    new = world.transactions.init()
    assert (new.producer_id, new.epoch) == (old.producer_id, 1)
    assert rejection_of(world.transactions.add(old)) == Rejection.PRODUCER_FENCED
    assert world.transactions.add(new) == PerItem([Rejection.NONE])
    assert rejection_of(world.transactions.write(old)) == Rejection.PRODUCER_FENCED
    assert rejection_of(world.transactions.end(old)) == Rejection.PRODUCER_FENCED
    assert rejection_of(world.transactions.init_again(old)) == Rejection.PRODUCER_FENCED


def test_a_new_epoch_fences_in_partitions_that_only_the_old_one_wrote_to(world: World) -> None:
    old = world.transactions.init()
    world.transactions.add(old, 0, 1)
    world.transactions.write(old, 0)
    world.transactions.write(old, 1)
    world.transactions.init()
    for partition in (0, 1):
        assert rejection_of(world.transactions.write(old, partition)) == Rejection.PRODUCER_FENCED


def test_a_starting_producer_aborts_the_open_transaction_in_the_same_entry(world: World) -> None:
    old = world.transactions.init()
    world.transactions.add(old)
    world.transactions.write(old)
    assert world.transactions.stable() == 0
    world.transactions.init()
    assert world.transactions.stable() == 2
    assert [(each.producer_epoch, each.committed) for each in world.transactions.plan().markers] == [(1, False)]
    assert world.state.transactions["tx"].state == EMPTY


def test_a_live_producer_continues_with_a_higher_epoch_and_may_ask_twice(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer)
    world.transactions.write(writer)
    assert world.transactions.init_again(writer) == ProducerAllocated(writer.producer_id, 1)
    assert world.transactions.init_again(writer) == ProducerAllocated(writer.producer_id, 1)
    world.transactions.adopt(writer, ProducerAllocated(writer.producer_id, 1))
    world.transactions.add(writer)
    assert world.transactions.write(writer) == BatchResult(Rejection.NONE, 2, 0)


def test_a_producer_that_was_fenced_since_may_not_ask_again(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.init_again(writer)
    world.transactions.init()
    assert rejection_of(world.transactions.init_again(writer)) == Rejection.PRODUCER_FENCED


def test_another_producer_id_follows_the_last_epoch_and_the_old_one_is_unknown(world: World) -> None:
    writer = world.transactions.init()
    world.state.transactions["tx"].epoch = writer.epoch = PRODUCER_EPOCH_MAX - 1
    world.transactions.add(writer)
    world.transactions.write(writer)
    ended = world.transactions.end(writer, bumps=True)
    assert ended == TransactionEnded(writer.producer_id + 1, 0)
    assert world.transactions.end(writer, bumps=True) == ended
    assert world.transactions.plan().markers[0].producer_epoch == PRODUCER_EPOCH_MAX
    assert rejection_of(world.transactions.write(writer)) == Rejection.INVALID_PRODUCER_MAPPING
    assert world.transactions.init_again(writer) == ProducerAllocated(writer.producer_id + 1, 0)
    world.transactions.adopt(writer, ended)
    assert not rejection_of(world.transactions.write(writer, adds=True))


@pytest.mark.parametrize("timeout_ms", [0, -1, DEFAULT_LIMITS.transactions.transaction_timeout_max_ms + 1])
def test_an_invalid_or_too_long_timeout_is_rejected(world: World, timeout_ms: int) -> None:
    outcome = world.do(InitTransactionalProducer(world.now_ms, "tx", timeout_ms))
    assert rejection_of(outcome) == Rejection.INVALID_TRANSACTION_TIMEOUT
    world.transactions.init(timeout_ms=DEFAULT_LIMITS.transactions.transaction_timeout_max_ms)


@pytest.mark.parametrize(
    ("name", "producer", "epoch"),
    [
        ("", -1, -1),
        ("x" * (DEFAULT_LIMITS.transactions.transactional_id_length_max + 1), -1, -1),
        ("tx", 1, -1),
        ("tx", -1, 0),
    ],
)
def test_an_invalid_id_is_rejected(world: World, name: str, producer: int, epoch: int) -> None:
    outcome = world.do(InitTransactionalProducer(world.now_ms, name, TIMEOUT_MS, producer, epoch))
    assert rejection_of(outcome) == Rejection.INVALID_REQUEST


def test_the_number_of_transactional_ids_is_limited(world: World) -> None:
    world.use_limits(Limits(transactions=TransactionLimits(transactions_max=1)))
    world.transactions.init("one")
    assert rejection_of(world.do(InitTransactionalProducer(world.now_ms, "two", TIMEOUT_MS))) == Rejection.OVERLOADED
    world.transactions.init("one")


def test_a_batch_needs_a_transaction_that_its_partition_was_added_to(world: World) -> None:
    writer = world.transactions.init()
    assert rejection_of(world.transactions.write(writer)) == Rejection.INVALID_TXN_STATE
    world.transactions.add(writer, 0)
    assert rejection_of(world.transactions.write(writer, 1)) == Rejection.INVALID_TXN_STATE
    assert not rejection_of(world.transactions.write(writer, 0))
    world.transactions.end(writer)
    assert rejection_of(world.transactions.write(writer, 0)) == Rejection.INVALID_TXN_STATE


def test_a_batch_may_add_its_partition_and_begin_the_transaction(world: World) -> None:
    writer = world.transactions.init()
    assert not rejection_of(world.transactions.write(writer, adds=True))
    assert world.state.transactions["tx"].state == ONGOING
    assert world.transactions.stable() == 0


def test_a_rejected_batch_begins_no_transaction(world: World) -> None:
    writer = world.transactions.init()
    writer.sequences[1, 0] = 7
    assert rejection_of(world.transactions.write(writer, adds=True)) == Rejection.OUT_OF_ORDER_SEQUENCE
    assert world.state.transactions["tx"].state == EMPTY
    assert not world.state.ongoing


def test_a_transactional_producer_writes_only_in_transactions(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer)
    plain = batch(producer=writer.producer_id, epoch=writer.epoch, sequence=0)
    assert rejection_of(world.produce(plain)[0]) == Rejection.INVALID_TXN_STATE


def test_a_transactional_batch_of_a_producer_without_transactional_id_is_rejected(world: World) -> None:
    stranger = Writer("none", world.producer(), 0)
    assert rejection_of(world.transactions.write(stranger, adds=True)) == Rejection.INVALID_PRODUCER_MAPPING


def test_a_repeated_batch_gets_its_first_offset_even_after_the_end(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer)
    first = world.transactions.of(writer, 0)
    assert world.produce(first)[0].base_offset == 0
    world.transactions.end(writer)
    assert world.produce(first) == [BatchResult(Rejection.NONE, 0, 0)]
    world.transactions.add(writer)
    assert world.produce(first) == [BatchResult(Rejection.NONE, 0, 0)]
    assert world.transactions.stable() == 2


@pytest.mark.parametrize("records", [2, 3], ids=["as many", "more"])
def test_sequence_numbers_of_an_aborted_transaction_are_no_duplicates_in_the_next(records: int) -> None:
    world = transaction_world()
    world.do(RaiseLevel(world.now_ms, ABORTED_BATCHES_LEVEL))
    writer = world.transactions.init()
    world.transactions.add(writer)
    assert world.produce(world.transactions.of(writer, 0, records=2))[0].base_offset == 0
    world.transactions.end(writer, committed=False)
    world.transactions.add(writer)
    again = world.transactions.of(writer, 0, records=records)
    assert rejection_of(world.produce(again)[0]) == Rejection.OUT_OF_ORDER_SEQUENCE
    following = world.transactions.of(writer, 2)
    assert world.produce(following)[0].base_offset == 3
    assert world.produce(following)[0].base_offset == 3


def test_below_the_level_a_transactional_batch_is_like_any_other() -> None:
    world = World()
    world.topic()
    producer = world.producer()
    (result,) = world.produce(batch(producer=producer, epoch=0, sequence=0, attributes=TRANSACTIONAL))
    assert not result.rejection
    world.do(RaiseLevel(world.now_ms, 3))
    (result,) = world.produce(batch(producer=producer, epoch=0, sequence=1, attributes=TRANSACTIONAL))
    assert result.rejection == Rejection.INVALID_PRODUCER_MAPPING


def test_partitions_are_added_all_or_none(world: World) -> None:
    writer = world.transactions.init()
    assert world.transactions.add(writer, 0, 5) == PerItem([Rejection.NONE, Rejection.UNKNOWN_TOPIC])
    assert world.state.transactions["tx"].state == EMPTY
    assert world.transactions.add(writer, 0, 1, 1) == PerItem([Rejection.NONE] * 3)
    assert list(world.state.transactions["tx"].partitions.values()) == [-1, -1]


def test_the_partitions_of_a_transaction_are_limited(world: World) -> None:
    world.use_limits(Limits(transactions=TransactionLimits(partitions_per_transaction_max=1)))
    writer = world.transactions.init()
    assert rejection_of(world.transactions.add(writer, 0, 1)) == Rejection.POLICY_VIOLATION
    world.transactions.add(writer, 0)
    assert rejection_of(world.transactions.write(writer, 1, adds=True)) == Rejection.POLICY_VIOLATION
    assert not rejection_of(world.transactions.write(writer, 0))


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_writes_one_marker_to_each_partition_with_records(world: World, committed: bool) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer, 0, 1)
    world.transactions.write(writer, 0, records=3)
    assert world.transactions.end(writer, committed=committed) == TransactionEnded(writer.producer_id, 0)
    assert world.effects is not None
    (advance,) = world.effects.partitions
    assert (advance.high_watermark, advance.last_stable_offset) == (4, 4)
    (marker,) = advance.markers
    assert (marker.offset, marker.producer_id, marker.producer_epoch, marker.committed) == (
        3,
        writer.producer_id,
        0,
        committed,
    )
    assert (marker.first_offset, marker.timestamp) == (0, world.now_ms)
    assert world.transactions.plan(partition=1).high_watermark == 0
    assert world.state.transactions["tx"].state == (COMMITTED if committed else ABORTED)


@pytest.mark.parametrize("committed", [True, False])
def test_an_ended_transaction_does_not_end_with_another_result(world: World, committed: bool) -> None:
    """Its epoch has ended, like a fenced producer's; but Kafka reports the error to its producer."""
    writer = world.transactions.init()
    world.transactions.write(writer, adds=True)
    ended = world.transactions.end(writer, committed=committed, bumps=True)
    assert (
        rejection_of(world.transactions.end(writer, committed=not committed, bumps=True)) == Rejection.INVALID_TXN_STATE
    )
    following = Writer(writer.name, ended.producer_id, ended.producer_epoch)
    world.transactions.write(following, adds=True)
    assert (
        rejection_of(world.transactions.end(writer, committed=not committed, bumps=True)) == Rejection.PRODUCER_FENCED
    )


def test_a_producer_new_to_the_new_protocol_may_abort_an_empty_transaction_after_any_end(world: World) -> None:
    """The epoch is still that of the transaction before, which ended with the other result."""
    writer = world.transactions.init()
    world.transactions.write(writer, adds=True)
    world.transactions.end(writer, committed=True)
    assert world.transactions.end(writer, committed=False, bumps=True) == TransactionEnded(writer.producer_id, 1)


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_starting_producer_has_no_transaction_yet(world: World, is_ended: bool) -> None:
    writer = world.transactions.init()
    world.transactions.write(writer, adds=True)
    if is_ended:
        world.transactions.end(writer)
    world.transactions.init()
    assert world.state.transactions["tx"].state == EMPTY


@pytest.mark.parametrize("bumps", [True, False])
def test_a_producer_whose_transaction_timed_out_may_continue_with_the_next_epoch(world: World, bumps: bool) -> None:
    """It learns that it is fenced, and aborts; in the old protocol it must start again (KIP-588)."""
    writer = world.transactions.init()
    world.transactions.write(writer, adds=True)
    world.wait(TIMEOUT_MS + 1)
    assert rejection_of(world.transactions.write(writer, adds=True)) == Rejection.PRODUCER_FENCED
    rejected = Rejection.INVALID_TXN_STATE if bumps else Rejection.PRODUCER_FENCED
    assert rejection_of(world.transactions.end(writer, committed=True, bumps=bumps)) == rejected
    if bumps:
        outcome = world.transactions.end(writer, committed=False, bumps=True)
        assert outcome == TransactionEnded(writer.producer_id, 1)
    else:
        assert rejection_of(world.transactions.end(writer, committed=False)) == Rejection.PRODUCER_FENCED
        outcome = world.transactions.init_again(writer)
        assert outcome == ProducerAllocated(writer.producer_id, 1)
    world.transactions.adopt(writer, outcome)
    assert not rejection_of(world.transactions.write(writer, adds=True))


@pytest.mark.parametrize("bumps", [True, False])
def test_a_producer_whose_transaction_timed_out_cannot_continue_beside_a_later_one(world: World, bumps: bool) -> None:
    writer = world.transactions.init()
    world.transactions.write(writer, adds=True)
    world.wait(TIMEOUT_MS + 1)
    world.transactions.init()
    assert rejection_of(world.transactions.end(writer, committed=False, bumps=bumps)) == Rejection.PRODUCER_FENCED
    assert rejection_of(world.transactions.init_again(writer)) == Rejection.PRODUCER_FENCED


def test_a_repeated_end_is_answered_again(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer)
    world.transactions.write(writer)
    ended = world.transactions.end(writer)
    assert world.transactions.end(writer) == ended
    assert rejection_of(world.transactions.end(writer, committed=False)) == Rejection.INVALID_TXN_STATE
    assert world.transactions.plan().high_watermark == 2


def test_a_late_end_does_not_end_the_next_transaction(world: World) -> None:
    """The old protocol has one epoch for both transactions."""
    writer = world.transactions.init()
    world.transactions.add(writer)
    seen = world.state.sequence
    world.transactions.end(writer, seen=seen)
    world.transactions.add(writer, seen=world.state.sequence)
    known = world.state.sequence
    world.transactions.write(writer)
    assert rejection_of(world.transactions.end(writer, seen=seen)) == Rejection.STALE
    assert world.state.transactions["tx"].state == ONGOING
    assert world.transactions.end(writer, seen=known) == TransactionEnded(writer.producer_id, 0)


def test_the_sender_of_an_end_must_have_seen_the_transaction(world: World) -> None:
    """A repeated end may arrive late, after the first copy was done."""
    writer = world.transactions.init()
    world.transactions.add(writer)
    world.transactions.end(writer)
    known = world.state.sequence
    world.transactions.end(writer, seen=known)
    world.transactions.add(writer, seen=known)
    assert rejection_of(world.transactions.end(writer, seen=known)) == Rejection.STALE
    assert world.transactions.end(writer, seen=world.state.sequence) == TransactionEnded(writer.producer_id, 0)


def test_late_partitions_groups_and_producers_begin_no_transaction(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer)
    seen = world.state.sequence
    world.transactions.end(writer)
    assert rejection_of(world.transactions.add(writer, seen=seen)) == Rejection.STALE
    assert rejection_of(world.transactions.add_offsets(writer, seen=seen)) == Rejection.STALE
    assert rejection_of(world.transactions.commit_txn_offset(writer, adds=True, seen=seen)) == Rejection.STALE
    late = InitTransactionalProducer(world.now_ms, "tx", TIMEOUT_MS, seen_sequence=seen)
    assert rejection_of(world.do(late)) == Rejection.STALE
    assert world.state.transactions["tx"].state == COMMITTED
    assert world.transactions.init(seen=world.state.sequence).epoch == 1


def test_with_transaction_version_2_every_end_starts_an_epoch(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.write(writer, adds=True)
    ended = world.transactions.end(writer, bumps=True)
    assert ended == TransactionEnded(writer.producer_id, 1)
    assert world.transactions.plan().markers[0].producer_epoch == 1
    assert rejection_of(world.transactions.write(writer, adds=True)) == Rejection.PRODUCER_FENCED
    next_one = Writer("tx", ended.producer_id, ended.producer_epoch)
    assert not rejection_of(world.transactions.write(next_one, adds=True))
    assert world.transactions.end(writer, bumps=True) == ended
    assert world.state.transactions["tx"].state == ONGOING


def test_with_transaction_version_2_an_empty_transaction_may_be_aborted(world: World) -> None:
    writer = world.transactions.init()
    assert rejection_of(world.transactions.end(writer, bumps=True)) == Rejection.INVALID_TXN_STATE
    assert rejection_of(world.transactions.end(writer, committed=False)) == Rejection.INVALID_TXN_STATE
    assert world.transactions.end(writer, committed=False, bumps=True) == TransactionEnded(writer.producer_id, 1)


def test_only_the_current_producer_ends_its_transaction(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer)
    assert rejection_of(world.do(EndTxn(world.now_ms, "other", writer.producer_id, 0, committed=True))) == (
        Rejection.INVALID_PRODUCER_MAPPING
    )
    assert (
        rejection_of(world.do(EndTxn(world.now_ms, "tx", 99, 0, committed=True))) == Rejection.INVALID_PRODUCER_MAPPING
    )
    assert rejection_of(world.do(EndTxn(world.now_ms, "tx", writer.producer_id, 1, committed=True))) == (
        Rejection.PRODUCER_FENCED
    )


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(world: World) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer)
    world.transactions.write(writer)
    world.wait(TIMEOUT_MS - 1)
    assert world.transactions.stable() == 0
    world.wait(1)
    assert world.transactions.stable() == 2
    assert [each.committed for each in world.transactions.plan().markers] == [False]
    assert rejection_of(world.transactions.end(writer)) == Rejection.PRODUCER_FENCED
    assert rejection_of(world.transactions.write(writer)) == Rejection.PRODUCER_FENCED
    assert world.transactions.init().epoch == 2


@pytest.mark.parametrize(
    ("bumps", "rejection"),
    [(False, Rejection.PRODUCER_FENCED), (True, Rejection.INVALID_TXN_STATE)],
    ids=["old", "new"],
)
def test_a_producer_aborted_by_an_administrator_commits_nothing_and_may_continue(
    world: World, bumps: bool, rejection: Rejection
) -> None:
    writer = world.transactions.init()
    world.transactions.add(writer, 0, 1)
    world.transactions.write(writer)
    abort = EndTxn(world.now_ms, "tx", writer.producer_id, writer.epoch, committed=False, bumps=True)
    assert world.do(abort) == world.do(abort) == TransactionEnded(writer.producer_id, writer.epoch + 1)
    assert [each.committed for each in world.transactions.plan().markers] == [False]
    assert rejection_of(world.transactions.write(writer)) == Rejection.PRODUCER_FENCED
    assert rejection_of(world.transactions.end(writer, bumps=bumps)) == rejection
    assert world.transactions.init_again(writer) == ProducerAllocated(writer.producer_id, writer.epoch + 1)


def test_many_short_transactions_leave_few_stale_alarms(world: World) -> None:
    writer = world.transactions.init()
    for _ in range(200):
        world.transactions.add(writer)
        world.transactions.end(writer)
    assert len(world.state.transaction_alarms) < 100
    world.transactions.add(writer)
    world.wait(TIMEOUT_MS)
    assert world.state.transactions["tx"].state == ABORTED


def test_a_tick_ends_a_limited_number_of_partitions_but_at_least_one_transaction(world: World) -> None:
    world.use_limits(Limits(transactions=TransactionLimits(transaction_partitions_ended_per_tick=1)))
    for name in ("b", "a", "c"):
        world.transactions.add(world.transactions.init(name), 0, 1)
    world.wait(TIMEOUT_MS)
    assert sorted(world.state.ongoing) == ["b", "c"]
    world.do(Tick(world.now_ms))
    assert list(world.state.ongoing) == ["c"]


def test_a_transactional_id_is_removed_when_it_was_not_used_for_long(world: World) -> None:
    old = world.transactions.init("old")
    world.transactions.init("used")
    world.wait(DEFAULT_LIMITS.transactions.transactional_id_expiry_ms - 1)
    world.transactions.init("used")
    world.wait(1)
    assert list(world.state.transactions) == ["used"]
    assert rejection_of(world.transactions.add(old)) == Rejection.INVALID_PRODUCER_MAPPING


def test_a_transaction_continues_without_a_deleted_topic(world: World) -> None:
    world.topic("u", number=2)
    writer = world.transactions.init()
    world.transactions.add(writer)
    world.transactions.add(writer, number=2)
    world.transactions.write(writer)
    world.transactions.write(writer, number=2)
    world.do(DeleteTopic(world.now_ms, "u", bytes(16)))
    assert rejection_of(world.transactions.write(writer, number=2)) == Rejection.UNKNOWN_TOPIC
    world.transactions.end(writer)
    assert world.transactions.stable() == 2


def test_an_undeleted_topic_has_the_transactions_end(world: World) -> None:
    world.topic("u", number=2, **{"penstock.undelete.window.ms": "60000"})
    writer = world.transactions.init()
    world.transactions.write(writer, number=2, adds=True)
    world.do(DeleteTopic(world.now_ms, "u", bytes(16)))
    world.transactions.end(writer, committed=False)
    assert world.effects is not None
    assert world.effects.partitions == []
    world.do(UndeleteTopic(world.now_ms, "u", topic_id(2)))
    assert world.transactions.stable(number=2) == 2
    assert [each.first_offset for each in world.transactions.plan(number=2).aborted] == [0]
