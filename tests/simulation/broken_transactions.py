"""Transactions that are broken in the ways that would be worst; the simulator must catch every one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from penstock.contracts.batches import AbortedTransaction, BatchMeta, BatchResult
from penstock.contracts.commands import EndTxn, OffsetToCommit, Rejected, TransactionEnded
from penstock.contracts.rejections import Rejection
from penstock_gateway.tail.tail_index import PartitionView
from penstock_sequencer.core.commits import transactional_batches
from penstock_sequencer.core.groups import pending_offsets
from penstock_sequencer.core.groups.pending_offsets import add_pending
from penstock_sequencer.core.log.control_markers import write_marker
from penstock_sequencer.core.state.cluster import Changes, Partition, State, Transaction
from penstock_sequencer.core.state.partition_transactions import PartitionTransactions
from penstock_sequencer.core.transactions.coordinator import TransactionCommand, end_transaction

Break = Callable[[], AbstractContextManager[Any]]


@contextmanager
def read_what_is_undecided() -> Iterator[None]:
    """A gateway gives whoever wants what is committed all that there is."""

    def end_of_all(view: PartitionView, _isolation_level: int) -> int:
        return view.high_watermark

    name = "readable_end"
    with (
        mock.patch(f"penstock_gateway.handlers.data.fetch.{name}", end_of_all),
        mock.patch(f"penstock_gateway.fetch.fetch_partition.{name}", end_of_all),
    ):
        yield


def announce_no_markers() -> AbstractContextManager[Any]:
    """A sequencer announces the extents of markers, and not what the markers say."""
    return mock.patch("penstock_sequencer.core.machine.markers_among", lambda *_: [])


def announce_all_as_decided() -> AbstractContextManager[Any]:
    """A sequencer announces the high watermark where the last stable offset belongs."""
    return mock.patch("penstock_sequencer.core.machine.last_stable_offset", lambda partition: partition.high_watermark)


def plan_all_as_decided() -> AbstractContextManager[Any]:
    """A sequencer plans with the high watermark where the last stable offset belongs."""
    return mock.patch("penstock_sequencer.core.queries.last_stable_offset", lambda partition: partition.high_watermark)


def fence_by_partition() -> AbstractContextManager[Any]:
    """The machine holds a batch against what its partition remembers of the producer, not against its transaction."""
    accept_transactional = transactional_batches.accept_transactional

    def accept_any_epoch(state: State, partition: Partition, batch: BatchMeta, offset: int) -> BatchResult | None:
        transaction = state.transactions_by_producer.get(batch.producer_id)
        if transaction is None:
            return accept_transactional(state, partition, batch, offset)
        epoch, transaction.epoch = transaction.epoch, batch.producer_epoch
        verdict = accept_transactional(state, partition, batch, offset)
        transaction.epoch = epoch
        return verdict

    return mock.patch("penstock_sequencer.core.commits.segment_commit.accept_transactional", accept_any_epoch)


def commit_offsets_at_once() -> AbstractContextManager[Any]:
    """The machine lets a group have offsets when they are sent, not when their transaction is committed."""

    def add_and_commit(
        state: State, transaction: Transaction, group_id: str, item: OffsetToCommit, seen_sequence: int
    ) -> Rejection:
        rejection = add_pending(state, transaction, group_id, item, seen_sequence)
        for topic_id, offsets in transaction.offsets[group_id].items():
            pending_offsets._commit(state, group_id, topic_id, dict(offsets))
        return rejection

    return mock.patch("penstock_sequencer.core.transactions.coordinator.add_pending", add_and_commit)


def keep_offsets_of_the_committed() -> AbstractContextManager[Any]:
    """The machine commits a transaction without its offsets."""
    return mock.patch("penstock_sequencer.core.transactions.lifecycle.commit_pending", pending_offsets.release_pending)


def begin_aborted_ones_too_late() -> AbstractContextManager[Any]:
    """Who reads is told of aborted transactions as if their first records were not theirs."""
    return _with_aborted(
        lambda found: [AbortedTransaction(a.producer_id, a.first_offset + 1, a.last_offset) for a in found]
    )


def leave_out_an_aborted_one() -> AbstractContextManager[Any]:
    """Who reads is not told of the last of the aborted coordinator."""
    return _with_aborted(lambda found: found[:-1])


def _with_aborted(
    change: Callable[[list[AbortedTransaction]], list[AbortedTransaction]],
) -> AbstractContextManager[Any]:
    aborted = PartitionTransactions.aborted

    def changed(
        self: PartitionTransactions, offset: int, end_offset: int, count_max: int
    ) -> tuple[list[AbortedTransaction], int]:
        found, end_offset = aborted(self, offset, end_offset, count_max)
        return change(found), end_offset

    return mock.patch.object(PartitionTransactions, "aborted", changed)


def let_anybody_end() -> AbstractContextManager[Any]:
    """The machine lets producers go on that were fenced."""

    def find_any(state: State, command: TransactionCommand) -> Transaction | Rejected:
        return state.transactions.get(command.transactional_id) or Rejected(Rejection.INVALID_PRODUCER_MAPPING)

    return mock.patch("penstock_sequencer.core.transactions.coordinator.find_transaction", find_any)


def commit_what_somebody_else_aborts() -> AbstractContextManager[Any]:
    """The machine commits what a producer has left behind when its successor comes."""

    def write_commit(state: State, partition: Partition, producer_id: int, epoch: int, **options: Any) -> None:
        write_marker(state, partition, producer_id, epoch, **(options | {"committed": True}))

    return mock.patch("penstock_sequencer.core.transactions.lifecycle.write_marker", write_commit)


def end_in_one_partition() -> AbstractContextManager[Any]:
    """The machine ends a transaction in the first of its partitions only."""

    def end_in_first(state: State, command: EndTxn, changes: Changes) -> TransactionEnded | Rejected:
        transaction = state.transactions.get(command.transactional_id)
        if transaction is not None:
            transaction.partitions = dict(list(transaction.partitions.items())[:1])
        return end_transaction(state, command, changes)

    return mock.patch.dict("penstock_sequencer.core.machine.APPLY", {EndTxn: end_in_first})


def tell_offsets_that_may_change() -> AbstractContextManager[Any]:
    """A sequencer tells a group's offset whatever open transaction is about to replace it."""
    return mock.patch("penstock_sequencer.core.all_groups.queries.is_pending", lambda *_: False)


def take_offsets_of_former_members() -> AbstractContextManager[Any]:
    """The machine lets whoever was in a group commit offsets of it with a transaction."""
    return mock.patch("penstock_sequencer.core.transactions.coordinator._offsets_rejection", lambda *_: Rejection.NONE)


BROKEN_TRANSACTIONS: dict[str, Break] = {
    each.__name__: each
    for each in (
        read_what_is_undecided,
        announce_no_markers,
        announce_all_as_decided,
        plan_all_as_decided,
        fence_by_partition,
        commit_offsets_at_once,
        keep_offsets_of_the_committed,
        begin_aborted_ones_too_late,
        leave_out_an_aborted_one,
        let_anybody_end,
        commit_what_somebody_else_aborts,
        end_in_one_partition,
        tell_offsets_that_may_change,
        take_offsets_of_former_members,
    )
}
