"""Offsets that are committed with a transaction; they wait in it until it is committed."""

import msgspec

from penstock.contracts.commands import OffsetToCommit
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import SHARES_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.classic_group import new_group
from penstock_sequencer.core.groups.offset_commit import release_offsets, size_bytes
from penstock_sequencer.core.groups.timers import record_idle
from penstock_sequencer.core.state.cluster import Committed, State, Transaction
from penstock_sequencer.core.state.group_sizes import is_room_for_group, is_room_for_offset


def make_group(state: State, transaction: Transaction, group_id: str) -> bool:
    """Make the group of pending offsets if it does not exist, as Kafka does; False if it has no room.

    So it is within the limits before the transaction ends. Below SHARES_LEVEL no group is made here.
    """
    if state.level < SHARES_LEVEL or group_id in state.groups:
        return True
    if not is_room_for_group(state, transaction.owner):
        return False
    new_group(state, group_id, transaction.owner)
    return True


def add_pending(
    state: State, transaction: Transaction, group_id: str, item: OffsetToCommit, seen_sequence: int
) -> Rejection:
    """Add a valid offset of a group that is in the transaction, unless a later one waits already."""
    topic = state.topics[item.topic]
    committed = Committed(item.offset, item.leader_epoch, item.metadata, state.sequence)
    pending = transaction.offsets[group_id]
    before = pending.get(topic.topic_id, {}).get(item.partition)
    if before is not None and 0 <= seen_sequence < before.sequence and before.offset != item.offset:
        return Rejection.STALE
    if before is None and transaction.offset_count >= state.limits.transactions.offsets_per_transaction_max:
        return Rejection.POLICY_VIOLATION
    growth_bytes = size_bytes(committed) - (0 if before is None else size_bytes(before))
    if not is_room_for_offset(state, growth_bytes):
        return Rejection.OVERLOADED
    state.group_bytes += growth_bytes
    transaction.offset_count += before is None
    pending.setdefault(topic.topic_id, {})[item.partition] = committed
    return Rejection.NONE


def commit_pending(state: State, transaction: Transaction) -> None:
    """Commit the transaction's offsets with it."""
    for group_id, pending in transaction.offsets.items():
        for topic_id, offsets in pending.items():
            _commit(state, transaction, group_id, topic_id, offsets)
    _leave_groups(state, transaction)


def release_pending(state: State, transaction: Transaction) -> None:
    """Drop the offsets of an aborted transaction."""
    for pending in transaction.offsets.values():
        for offsets in pending.values():
            release_offsets(state, offsets)
    _leave_groups(state, transaction)


def pending_partitions(state: State, group_id: str) -> dict[str, dict[int, None]]:
    """The partitions, by topic name, of which ongoing transactions may commit another offset of the group.

    The work grows with the transactions and their offsets, so it is done once for all offsets of a group.
    """
    found: dict[str, dict[int, None]] = {}
    for transactional_id in state.transactions_by_group.get(group_id, ()):
        for topic_id, offsets in state.transactions[transactional_id].offsets[group_id].items():
            topic = state.topics_by_id.get(topic_id)
            if topic is not None:
                found.setdefault(topic.name, {}).update(dict.fromkeys(offsets))
    return found


def _commit(
    state: State, transaction: Transaction, group_id: str, topic_id: TopicId, offsets: dict[int, Committed]
) -> None:
    """Store the offsets, in a new group or in a recoverable topic if these were deleted since; else drop them."""
    target = _target(state, group_id, topic_id, transaction.owner)
    if target is None:
        release_offsets(state, offsets)
        return
    for number, committed in offsets.items():
        before = target.get(number)
        # As in Kafka, the offset that was sent last counts, not the one that was committed last.
        if before is not None and before.sequence > committed.sequence:
            release_offsets(state, {number: committed})
            continue
        if before is not None:
            release_offsets(state, {number: before})
        target[number] = msgspec.structs.replace(committed, sequence=state.sequence)


def _target(state: State, group_id: str, topic_id: TopicId, owner: int) -> dict[int, Committed] | None:
    topic = state.topics_by_id.get(topic_id)
    if topic is not None:
        group = state.groups.get(group_id) or new_group(state, group_id, owner)
        return group.offsets.setdefault(topic.name, {})
    recoverable = state.recoverable.get(topic_id)
    return None if recoverable is None else recoverable.offsets.setdefault(group_id, {})


def _leave_groups(state: State, transaction: Transaction) -> None:
    for group_id in transaction.offsets:
        members = state.transactions_by_group[group_id]
        del members[transaction.transactional_id]
        if not members:
            del state.transactions_by_group[group_id]
        if state.level >= SHARES_LEVEL and group_id in state.groups:
            record_idle(state, state.groups[group_id])
