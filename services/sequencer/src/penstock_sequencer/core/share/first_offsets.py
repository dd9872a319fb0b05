"""The first offset of a share group in a partition: an end of the log, or the first record of a time (ADR 0070).

The state knows only the newest timestamp of each extent, so it finds the extent that has the record. The gateway reads
the records of that extent, and the heartbeat has the exact offset. An offset that cannot be that of the record is not
used. So a group may get older records than it wants, and always gets all younger ones.
"""

import msgspec

from penstock.contracts.commands import LEAVE_EPOCH, SHARE_STARTS_MAX, ShareHeartbeat, ShareStarts
from penstock.contracts.configs.groups import (
    EARLIEST_RESET,
    SHARE_AUTO_OFFSET_RESET,
    begins_by_time,
    reset_duration_ms,
    share_config,
)
from penstock.contracts.ids import TopicId
from penstock.contracts.queries.share import SharePartitionRef
from penstock_sequencer.core.state.cluster import Partition, State


class Beginning(msgspec.Struct, frozen=True):
    """The place where a group begins in partitions that it does not share yet."""

    from_start: bool
    timestamp: int | None = None  # of the first record, in ms since 1970; None if the group begins at an end of the log
    offsets: dict[tuple[TopicId, int], int] = {}  # of the records of that time, as the gateway found them


def beginning(state: State, group_id: str, now_ms: int, starts: ShareStarts | None = None) -> Beginning:
    """The place by the group's configuration at the time `now_ms`."""
    configs = state.group_configs.get(group_id, {})
    reset = share_config(SHARE_AUTO_OFFSET_RESET, configs)
    duration_ms = reset_duration_ms(reset)
    if duration_ms is None:
        return Beginning(reset == EARLIEST_RESET)
    timestamp = max(now_ms - duration_ms, 0)
    is_known = starts is not None and starts.timestamp == timestamp
    offsets = {(each.topic_id, each.partition): each.offset for each in starts.offsets} if starts and is_known else {}
    return Beginning(False, timestamp, offsets)


def first_offset(partition: Partition, where: Beginning) -> int:
    """The group's first offset in the partition."""
    start, end = partition.log_start_offset, partition.high_watermark
    if where.timestamp is None:
        return start if where.from_start else end
    columns = partition.extents
    row = columns.find_timestamp(where.timestamp, columns.find_offset(start))
    lowest = end if row == columns.end else max(columns.base_offsets[row], start)
    found = where.offsets.get((partition.topic_id, partition.number), lowest)
    return found if lowest <= found <= end else lowest


def timed_beginnings(state: State, heartbeat: ShareHeartbeat) -> tuple[int, list[SharePartitionRef]]:
    """The partitions in which the heartbeat would make its group begin by time, and that time; (0, []) without such."""
    if heartbeat.member_epoch == LEAVE_EPOCH or not begins_by_time(state.group_configs.get(heartbeat.group_id, {})):
        return 0, []
    timestamp = beginning(state, heartbeat.group_id, heartbeat.now_ms).timestamp
    group = state.share_groups.get(heartbeat.group_id)
    refs: list[SharePartitionRef] = []
    for name in sorted(dict.fromkeys(heartbeat.topics or ())):
        topic = state.topics.get(name)
        if topic is None or (group is not None and topic.topic_id in group.partitions):
            continue
        numbers = range(min(len(topic.partitions), SHARE_STARTS_MAX - len(refs)))
        refs += [SharePartitionRef(topic.topic_id, number) for number in numbers]
    return timestamp or 0, refs
