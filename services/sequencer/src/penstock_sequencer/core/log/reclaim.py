"""Reclaiming storage: extents are dropped first, and segments whose objects are deleted are removed last.

Extents of deleted topics, and those before the starts of logs, go a few with each command. This is the one place where
extents go without others in their stead. Each segment that loses its last one is dead.

For the removal of segments there is no rule of age here. The janitor that deletes objects waits long enough, and a
commit that is sent again is answered from `State.commits` for as long as it could come at all.
"""

from penstock.contracts.commands import SEGMENTS_REMOVED_MAX, PerItem, Rejected, RemoveSegments
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.log.control_markers import remove_dropped
from penstock_sequencer.core.state.cluster import Changes, Partition, State
from penstock_sequencer.core.state.segments import NO_SLOT


def agreed_ms(state: State, now_ms: int) -> int:
    """The time by which something may be let go of for good: what is past by the machine's clock and the asker's."""
    return min(state.clock_ms, now_ms)


def extents_per_command(state: State) -> int:
    """How many extents one command drops at most."""
    limits = state.limits.log
    is_new = state.level >= JANITOR_LEVEL
    return limits.extents_dropped_per_command_max if is_new else limits.extents_dropped_per_step_max


def drop_waiting(state: State) -> tuple[int, int]:
    """Drop extents that wait for it, as many as one command may; how many, and their bytes."""
    left = extents_per_command(state)
    extents = dropped_bytes = 0
    for waiting in (state.pending_delete, state.trimmed):
        while waiting and left > 0:
            partition = waiting[0]
            going = _count_going(partition)
            count = min(going, left)
            dropped_bytes += drop_first(state, partition, count)
            extents += count
            left -= max(count, 1)  # looking at a log that has nothing to drop any more is work, too
            if count == going:
                waiting.popleft()
                if waiting is state.trimmed:  # one that was deleted meanwhile stands in both
                    partition.in_trimmed = False
    return extents, dropped_bytes


def is_waiting(state: State) -> bool:
    """Whether there is more to drop."""
    return bool(state.pending_delete or state.trimmed)


def drop_first(state: State, partition: Partition, count: int) -> int:
    """Drop the partition's first `count` extents; their bytes."""
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
    """The partition has extents before its log's start; they go with the next steps."""
    if not partition.in_trimmed:
        partition.in_trimmed = True
        state.trimmed.append(partition)


def mark_pending_delete(state: State, partitions: list[Partition]) -> None:
    """The partitions are deleted: all their extents go with the next steps, none is found any more.

    Those that were being trimmed stay in `trimmed`: to look for them there would cost as much as all that waits.
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


def _count_going(partition: Partition) -> int:
    return len(partition.extents) if partition.deleted else count_trimmed(partition)


def remove_segments(state: State, command: RemoveSegments, changes: Changes) -> PerItem | Rejected:
    """Each condemned segment goes; one that is not known any more is gone, one that lives is refused."""
    if state.level < JANITOR_LEVEL:
        return Rejected(Rejection.INVALID_REQUEST, f"segments are forgotten from level {JANITOR_LEVEL} on")
    if len(command.segment_ids) > SEGMENTS_REMOVED_MAX:
        return Rejected(Rejection.INVALID_REQUEST, f"{len(command.segment_ids)} segments are too many")
    table = state.segments
    slots = [table.find(segment_id) for segment_id in command.segment_ids]
    is_live = [slot != NO_SLOT and table.live_extents[slot] > 0 for slot in slots]
    removed = {slot: None for slot, lives in zip(slots, is_live, strict=True) if slot != NO_SLOT and not lives}
    table.remove(list(removed))
    return PerItem([Rejection.INVALID_REQUEST if lives else Rejection.NONE for lives in is_live])
