"""Reclaiming storage: extents are dropped first, and segments whose objects are deleted are removed last.

Each command drops a few extents of deleted topics, and of those before the starts of logs. Only this module drops
extents that nothing replaces. A segment that loses its last extent is dead.

This module has no rule about the age of a segment to remove. The janitor that deletes objects waits long enough. A
commit that is sent again is answered from `State.commits`, for as long as it can arrive.
"""

from penstock.contracts.commands import SEGMENTS_REMOVED_MAX, PerItem, Rejected, RemoveSegments
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.log.control_markers import remove_dropped
from penstock_sequencer.core.state.cluster import Changes, Partition, State
from penstock_sequencer.core.state.segments import NO_SLOT


def agreed_ms(state: State, now_ms: int) -> int:
    """The time that is past by the machine's clock and the client's; older data may be removed for good."""
    return min(state.clock_ms, now_ms)


def extents_per_command(state: State) -> int:
    """The number of extents that one command may drop."""
    limits = state.limits.log
    is_new = state.level >= JANITOR_LEVEL
    return limits.extents_dropped_per_command_max if is_new else limits.extents_dropped_per_step_max


def drop_waiting(state: State) -> tuple[int, int]:
    """Drop extents that wait to be dropped, as many as one command may; return how many, and their bytes."""
    left = extents_per_command(state)
    extents = dropped_bytes = 0
    for waiting in (state.pending_delete, state.trimmed):
        while waiting and left > 0:
            partition = waiting[0]
            to_drop = _count_to_drop(partition)
            count = min(to_drop, left)
            dropped_bytes += drop_first(state, partition, count)
            extents += count
            left -= max(count, 1)  # to visit a log without extents to drop is work, too
            if count == to_drop:
                waiting.popleft()
                if waiting is state.trimmed:  # a partition that was deleted since is in both
                    partition.in_trimmed = False
    return extents, dropped_bytes


def is_waiting(state: State) -> bool:
    """Whether more extents wait to be dropped."""
    return bool(state.pending_delete or state.trimmed)


def drop_first(state: State, partition: Partition, count: int) -> int:
    """Drop the first `count` extents of the partition; return their bytes."""
    if not count:
        return 0
    segments = state.segments
    slots, lengths = partition.extents.drop_first(count)
    dropped_bytes = segments.lose_many(slots, lengths)
    partition.size_bytes -= dropped_bytes
    remove_dropped(state, partition)
    state.extent_count -= count
    for slot in dict.fromkeys(slots):
        segments.mark_dead_if_empty(slot, state.clock_ms, state.sequence)
    return dropped_bytes


def count_trimmed(partition: Partition) -> int:
    """How many of the partition's extents end before its log starts."""
    columns = partition.extents
    return columns.find_offset(partition.log_start_offset) - columns.head


def record_trimmed(state: State, partition: Partition) -> None:
    """Record that the partition has extents before its log's start; the next steps drop them."""
    if not partition.in_trimmed:
        partition.in_trimmed = True
        state.trimmed.append(partition)


def mark_pending_delete(state: State, partitions: list[Partition]) -> None:
    """Mark the partitions as deleted: no query finds them any more, and the next steps drop all their extents.

    Partitions in `trimmed` stay there, because a search for them would walk all that wait there.
    """
    for partition in partitions:
        partition.deleted = True
        if partition.transactions is not None:
            state.aborted_count -= partition.transactions.aborted_count
            partition.transactions = None
        del state.partitions_by_index[partition.index]
        if partition.extents:
            state.pending_delete.append(partition)
    state.partition_count -= len(partitions)


def _count_to_drop(partition: Partition) -> int:
    return len(partition.extents) if partition.deleted else count_trimmed(partition)


def remove_segments(state: State, command: RemoveSegments, changes: Changes) -> PerItem | Rejected:
    """Remove the dead segments; an unknown segment counts as removed, and a live one is rejected."""
    if state.level < JANITOR_LEVEL:
        return Rejected(Rejection.INVALID_REQUEST, f"segments are removed only from level {JANITOR_LEVEL} on")
    if len(command.segment_ids) > SEGMENTS_REMOVED_MAX:
        return Rejected(Rejection.INVALID_REQUEST, f"{len(command.segment_ids)} segments are too many")
    table = state.segments
    slots = [table.find(segment_id) for segment_id in command.segment_ids]
    is_live = [slot != NO_SLOT and table.live_extents[slot] > 0 for slot in slots]
    removed = {slot: None for slot, lives in zip(slots, is_live, strict=True) if slot != NO_SLOT and not lives}
    table.remove(list(removed))
    return PerItem([Rejection.INVALID_REQUEST if lives else Rejection.NONE for lives in is_live])
