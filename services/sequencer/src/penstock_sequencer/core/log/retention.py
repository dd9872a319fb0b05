"""Retention: it drops extents from the front of a log because of their age, the log's size, or DeleteRecords.

The rules are Kafka's, with extents in the place of log segments. The first extent is dropped while its newest record is
too old for `retention.ms`. It is also dropped while the rest of the log still has `retention.bytes`. The first extent
that stays keeps all extents after it.

Compaction makes extents of many megabytes. So the first extent that stays may exceed `retention.bytes` by far. By
`segment.bytes` or more is too much in Kafka. Then the log starts inside that extent (`start_inside`).

An extent whose records have no timestamp is as old as its segment. A marker is as old as the end of its transaction.
Retention stops before the records of an open transaction. DeleteRecords may go up to the high watermark, as in Kafka.

Dropped records cannot be restored, so two clocks must agree that they are too old. One is the machine's clock, which is
the highest that any sequencer's clock has ever been. The other is the clock of the janitor that sent the command.

A log's start moves at once, and records before it are not read any more. Their extents are dropped step by step.
"""

import msgspec

from penstock.contracts.commands import (
    TO_HIGH_WATERMARK,
    DeleteRecords,
    ExpireLogs,
    LogOffset,
    LogRef,
    LogsTrimmed,
    LogTrimmed,
    Rejected,
)
from penstock.contracts.configs.topics import FOR_EVER, RetentionConfigs, is_deleted_with_age, retention_configs
from penstock.contracts.configs.unsupported_topics import segment_bytes
from penstock.contracts.ids import TopicId, segment_born_ms
from penstock.contracts.levels import SEGMENT_BYTES_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.log.control_markers import marker_at
from penstock_sequencer.core.log.partitions import find_partition, last_stable_offset
from penstock_sequencer.core.log.reclaim import (
    agreed_ms,
    count_trimmed,
    drop_first,
    extents_per_command,
    record_trimmed,
)
from penstock_sequencer.core.state.cluster import Changes, Partition, State
from penstock_sequencer.core.state.segments import MARKERS


class _Step(msgspec.Struct, eq=False):
    """The progress of one command."""

    left: int  # extents that it may still drop
    clock_ms: int = 0
    configs: dict[TopicId, RetentionConfigs] = {}
    is_more: bool = False


def expire_logs(state: State, command: ExpireLogs, changes: Changes) -> LogsTrimmed | Rejected:
    """Drop the extents that these logs need not keep, as many as one command may drop."""
    if len(command.logs) > state.limits.log.logs_per_command_max:
        return _too_many(state, len(command.logs))
    step = _Step(extents_per_command(state), agreed_ms(state, command.now_ms))
    return LogsTrimmed([_expire(state, step, each, changes) for each in command.logs], step.is_more)


def delete_records(state: State, command: DeleteRecords, changes: Changes) -> LogsTrimmed | Rejected:
    """Let the logs start at these offsets, and drop the extents before them, as many as one command may drop."""
    if len(command.logs) > state.limits.log.logs_per_command_max:
        return _too_many(state, len(command.logs))
    step = _Step(extents_per_command(state))
    return LogsTrimmed([_delete(state, step, each, changes) for each in command.logs], step.is_more)


def topic_retention(state: State, topic_id: TopicId) -> RetentionConfigs:
    """The retention that applies to the topic's logs."""
    return retention_configs(state.topics_by_id[topic_id].configs, state.cluster_configs)


def count_expired(state: State, clock_ms: int, partition: Partition, configs: RetentionConfigs, count_max: int) -> int:
    """How many of the log's first extents must be dropped, counted up to a limit.

    None of the log's extents may be trimmed already.
    """
    columns = partition.extents
    head = columns.head
    size_bytes = partition.size_bytes
    has_transactions = partition.transactions is not None  # mostly false, and this is called for every partition
    end = columns.find_offset(last_stable_offset(partition)) if has_transactions else columns.end
    stop = min(head + count_max, end)
    for row in range(head, stop):
        size_bytes -= columns.lengths[row]
        is_excess = configs.retention_bytes != FOR_EVER and size_bytes >= configs.retention_bytes
        if not is_excess and overdue_ms(state, clock_ms, partition, configs, row) <= 0:
            return row - head
    return stop - head


def start_inside(state: State, partition: Partition, configs: RetentionConfigs) -> int:
    """The offset in the first extent at which the log must start for its size; else its present start.

    None of the log's extents may be trimmed already, and none of them must be dropped. The extent's records are taken
    as equally large. As in Kafka, the log loses a multiple of `segment.bytes` and keeps at least `retention.bytes`.
    """
    columns = partition.extents
    if state.level < SEGMENT_BYTES_LEVEL or configs.retention_bytes == FOR_EVER or not columns:
        return partition.log_start_offset
    base, last = columns.base_offsets[columns.head], columns.last_offsets[columns.head]
    size_bytes, offsets = columns.lengths[columns.head], last + 1 - base
    start = max(partition.log_start_offset, base)
    kept_bytes = size_bytes * (last + 1 - start) // offsets
    excess_bytes = partition.size_bytes - size_bytes + kept_bytes - configs.retention_bytes
    step_bytes = segment_bytes(state.topics_by_id[partition.topic_id].configs)
    if excess_bytes < step_bytes or not size_bytes:
        return partition.log_start_offset
    lost_bytes = excess_bytes // step_bytes * step_bytes
    return min(start + lost_bytes * offsets // size_bytes, last, last_stable_offset(partition))


def overdue_ms(state: State, clock_ms: int, partition: Partition, configs: RetentionConfigs, row: int) -> int:
    """For how long the extent has been too old; 0 or less if it is not."""
    if configs.retention_ms == FOR_EVER:
        return 0
    columns = partition.extents
    newest_ms = columns.timestamps[row]
    if newest_ms < 0:
        slot = columns.segments[row]
        is_stored = slot != MARKERS
        newest_ms = segment_born_ms(state.segments.id(slot)) if is_stored else marker_at(partition, row).timestamp
    return clock_ms - newest_ms - configs.retention_ms


def _expire(state: State, step: _Step, log: LogRef, changes: Changes) -> LogTrimmed:
    partition = find_partition(state, log.topic_id, log.partition)
    if partition is None:
        return LogTrimmed(Rejection.UNKNOWN_TOPIC)
    if step.is_more and not step.left:
        return LogTrimmed(Rejection.NONE, partition.log_start_offset)
    if log.topic_id not in step.configs:
        step.configs[log.topic_id] = topic_retention(state, log.topic_id)
    trimmed, dropped_bytes = _drop_trimmed(state, step, partition)
    if partition.extents and not count_trimmed(partition):
        configs = step.configs[log.topic_id]
        expired = count_expired(state, step.clock_ms, partition, configs, step.left + 1)
        step.is_more = step.is_more or expired > step.left
        count = min(expired, step.left)
        step.left -= count
        dropped_bytes += drop_first(state, partition, count)
        trimmed += count
        columns = partition.extents
        start = columns.base_offsets[columns.head] if columns else partition.high_watermark
        _move_start(partition, start, changes)
        if count == expired:
            _move_start(partition, start_inside(state, partition, configs), changes)
    return LogTrimmed(Rejection.NONE, partition.log_start_offset, trimmed, dropped_bytes)


def _delete(state: State, step: _Step, log: LogOffset, changes: Changes) -> LogTrimmed:
    partition = find_partition(state, log.topic_id, log.partition)
    if partition is None:
        return LogTrimmed(Rejection.UNKNOWN_TOPIC)
    if not is_deleted_with_age(state.topics_by_id[log.topic_id].configs):
        return LogTrimmed(Rejection.POLICY_VIOLATION)
    offset = partition.high_watermark if log.offset == TO_HIGH_WATERMARK else log.offset
    if not 0 <= offset <= partition.high_watermark:
        return LogTrimmed(Rejection.OFFSET_OUT_OF_RANGE)
    _move_start(partition, offset, changes)
    trimmed, dropped_bytes = _drop_trimmed(state, step, partition)
    return LogTrimmed(Rejection.NONE, partition.log_start_offset, trimmed, dropped_bytes)


def _drop_trimmed(state: State, step: _Step, partition: Partition) -> tuple[int, int]:
    """Drop the extents before the log's start, as many as the step may; the rest wait for the next step."""
    trimmed = count_trimmed(partition)
    count = min(trimmed, step.left)
    step.left -= count
    dropped_bytes = drop_first(state, partition, count)
    if count < trimmed:
        step.is_more = True
        record_trimmed(state, partition)
    return count, dropped_bytes


def _move_start(partition: Partition, offset: int, changes: Changes) -> None:
    if offset > partition.log_start_offset:
        partition.log_start_offset = offset
        changes.trimmed[partition.topic_id, partition.number] = partition


def _too_many(state: State, logs: int) -> Rejected:
    return Rejected(Rejection.INVALID_REQUEST, f"{logs} logs are more than {state.limits.log.logs_per_command_max}")
