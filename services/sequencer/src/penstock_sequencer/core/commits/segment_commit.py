"""Commits of segments: each accepted batch gets its offsets, and contiguous batches become one extent."""

import itertools
from array import array
from typing import TypeVar

from penstock.contracts.batches import NO_PRODUCER, TRANSACTIONAL, BatchResult, BatchRun
from penstock.contracts.commands import COMMIT_LEASE_MS, CommitSegment, Rejected, SegmentCommitted
from penstock.contracts.ids import ID_BYTES, SegmentId, segment_born_ms
from penstock.contracts.levels import COMMIT_LEASE_LEVEL, PRODUCERS_LEVEL, TRANSACTIONS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.commits.transactional_batches import accept_transactional
from penstock_sequencer.core.log.partitions import find_partition
from penstock_sequencer.core.log.producers import Origin, accept
from penstock_sequencer.core.log.segment_contents import content_entry
from penstock_sequencer.core.state.cluster import Changes, Partition, RememberedCommit, Replacement, State
from penstock_sequencer.core.state.limits import INTEGER_MAX, OFFSET_MAX, RECORDS_PER_BATCH_MAX, SEGMENT_BYTES_MAX
from penstock_sequencer.core.state.segments import NO_SLOT

_NO_TIMESTAMP = -INTEGER_MAX - 1  # below every timestamp
_UNKNOWN_TOPIC = BatchResult(Rejection.UNKNOWN_TOPIC)
_LOG_FULL = BatchResult(Rejection.INVALID_REQUEST)
_Added = tuple[list[bytes], list[int]]  # for each extent its entry in the contents of the segment, and its length
_Remembered = TypeVar("_Remembered", RememberedCommit, Replacement)


def commit_segment(state: State, command: CommitSegment, changes: Changes) -> SegmentCommitted | Rejected:
    """Commit the segment; a second commit of it gets the same results again, while the first one is remembered."""
    remembered = state.commits.get(command.segment_id)
    if remembered is not None:
        return _answer_again(remembered, command)
    validation_error = _lease_error(state, command) or _validation_error(state, command)
    if validation_error is not None:
        return validation_error
    slot = state.segments.add(command.segment_id, 0, command.size_bytes, command.writer, command.zone)
    added: _Added = ([], [])
    firsts = array("q")
    exceptions: dict[int, BatchResult] = {}
    results = []
    number = 0
    origin = Origin(segment_born_ms(command.segment_id), command.principals)
    for run in command.runs:
        partition = find_partition(state, run.topic_id, run.partition)
        if partition is None:
            firsts.extend((-1, -1))
            results.append([_UNKNOWN_TOPIC] * len(run.batches))
        elif partition.high_watermark > OFFSET_MAX:
            # This needs no level: replicas of earlier releases halt at such an entry, a little above the limit.
            firsts.extend((-1, -1))
            exceptions.update(dict.fromkeys(range(number, number + len(run.batches)), _LOG_FULL))
            results.append([_LOG_FULL] * len(run.batches))
        else:
            key = (run.topic_id, run.partition)
            if key not in changes.advanced:
                changes.advanced[key] = (partition, partition.high_watermark)
            firsts.extend((partition.high_watermark, partition.log_start_offset))
            results.append(_commit_run(state, partition, run, origin, slot, number, exceptions, added))
        number += len(run.batches)
    _record_extents(state, slot, *added)
    state.commits[command.segment_id] = RememberedCommit(_expires_ms(state, command), number, firsts, exceptions)
    return SegmentCommitted(results, is_crowded=_is_crowded(state))


def _commit_run(
    state: State,
    partition: Partition,
    run: BatchRun,
    origin: Origin,
    slot: int,
    number: int,
    exceptions: dict[int, BatchResult],
    added: _Added,
) -> list[BatchResult]:
    """Assign offsets to the batches of one run.

    This is the hot loop of the machine: it uses local names only, and does nothing twice.
    """
    results: list[BatchResult] = []
    log_start_offset = partition.log_start_offset
    position = start = run.position
    offset = base = partition.high_watermark
    highest = _NO_TIMESTAMP
    transactional = state.transactions_by_producer if state.level >= TRANSACTIONS_LEVEL else None
    for batch in run.batches:
        if batch.producer_id != NO_PRODUCER:
            if transactional is not None and (batch.attributes & TRANSACTIONAL or batch.producer_id in transactional):
                exception = accept_transactional(state, partition, batch, offset, origin)
            else:
                exception = accept(state, partition, batch, offset, origin)
            if exception is not None:
                # A batch without offsets ends the extent: no extent points to its bytes, so they are dead.
                if offset > base:
                    _add_extent(state, partition, slot, base, offset, start, position, highest, added)
                exceptions[number + len(results)] = exception
                results.append(exception)
                position += batch.length
                start, base, highest = position, offset, _NO_TIMESTAMP
                continue
        results.append(BatchResult(0, offset, log_start_offset))
        offset += batch.record_count
        position += batch.length
        if batch.max_timestamp > highest:
            highest = batch.max_timestamp
    if offset > base:
        _add_extent(state, partition, slot, base, offset, start, position, highest, added)
    return results


def _add_extent(
    state: State,
    partition: Partition,
    slot: int,
    base: int,
    end: int,
    start: int,
    position: int,
    highest: int,
    added: _Added,
) -> None:
    length = position - start
    partition.extents.append(base, end - 1, slot, start, length, highest)
    partition.high_watermark = end
    partition.size_bytes += length
    added[0].append(content_entry(partition.index, base))
    added[1].append(length)


def _record_extents(state: State, slot: int, entries: list[bytes], lengths: list[int]) -> None:
    """Record the extents of the commit in the table of segments."""
    segments = state.segments
    segments.gain(slot, len(lengths), sum(lengths))
    segments.contents[slot] = b"".join(entries)
    segments.mark_dead_if_empty(slot, state.clock_ms, state.sequence)
    state.extent_count += len(lengths)


def _expires_ms(state: State, command: CommitSegment) -> int:
    """How long to remember the commit: no copy of it is accepted later, and its flusher had time to ask again."""
    limits = state.limits.log
    too_old_ms = max(state.clock_ms, segment_born_ms(command.segment_id)) + limits.segment_commit_age_max_ms
    if _has_lease(state, command):
        return min(too_old_ms, command.not_after_ms + limits.commit_memory_ms)
    return too_old_ms


def _has_lease(state: State, command: CommitSegment) -> bool:
    return command.not_after_ms > 0 and state.level >= COMMIT_LEASE_LEVEL


def _is_crowded(state: State) -> bool:
    limits = state.limits.log
    return len(state.commits) * 100 >= limits.remembered_commits_max * limits.crowded_percent


def _lease_error(state: State, command: CommitSegment) -> Rejected | None:
    """Why a commit that is not remembered comes too late for its lease; None if it does not.

    STALE is final: the clock does not go back. It is also certain: a copy that was accepted would be remembered. Later
    the outcome of earlier copies is unknown, so the flusher must not make another commit of the segment.
    """
    if not _has_lease(state, command) or len(command.segment_id) != ID_BYTES:
        return None
    late_ms = state.clock_ms - command.not_after_ms
    is_old = late_ms > state.limits.log.commit_memory_ms or _is_too_old(state, segment_born_ms(command.segment_id))
    if is_old or state.segments.find(command.segment_id) != NO_SLOT:
        return Rejected(Rejection.SEGMENT_TOO_OLD, "an earlier commit of the segment would not be remembered any more")
    return Rejected(Rejection.STALE, f"its lease ended {late_ms} ms ago") if late_ms > 0 else None


def check_segment(state: State, segment_id: SegmentId, size_bytes: int) -> Rejected | None:
    """Why no segment with this id and size can be committed now; None if one can."""
    if len(segment_id) != ID_BYTES:
        return Rejected(Rejection.INVALID_REQUEST, f"a segment id of {len(segment_id)} bytes")
    born_ms = segment_born_ms(segment_id)
    if _is_too_old(state, born_ms):
        return Rejected(Rejection.SEGMENT_TOO_OLD, f"a segment born {state.clock_ms - born_ms} ms ago")
    if born_ms - state.limits.log.segment_commit_age_max_ms > state.clock_ms:
        return Rejected(Rejection.INVALID_REQUEST, f"a segment born {born_ms - state.clock_ms} ms from now")
    if not 0 <= size_bytes <= SEGMENT_BYTES_MAX:
        return Rejected(Rejection.INVALID_REQUEST, f"a segment of {size_bytes} bytes")
    return None


def _is_too_old(state: State, born_ms: int) -> bool:
    """Whether a janitor may soon take the segment for an orphan and delete it."""
    return born_ms + state.limits.log.segment_commit_age_max_ms < state.clock_ms


def is_full(state: State, segments: int) -> bool:
    """Whether so many more segments would exceed a limit, independent of their contents."""
    limits = state.limits.log
    is_full_of_commits = len(state.commits) + segments > limits.remembered_commits_max
    return is_full_of_commits or len(state.segments) + segments > limits.segments_max


def _validation_error(state: State, command: CommitSegment) -> Rejected | None:
    validation_error = _future_error(state, command.segment_id) or check_segment(
        state, command.segment_id, command.size_bytes
    )
    if validation_error is not None:
        return validation_error
    for run in command.runs:
        if not _is_sound(run, command.size_bytes):
            return Rejected(Rejection.INVALID_REQUEST, f"the run at {run.position} does not fit into its segment")
    full = is_full(state, 1) or state.extent_count >= state.limits.log.extents_max
    return Rejected(Rejection.OVERLOADED, "the limit of segments, commits or extents is reached") if full else None


def _future_error(state: State, segment_id: SegmentId) -> Rejected | None:
    """Whether the flusher's clock is ahead: the segment is certainly not committed, its records can be sent again."""
    limits = state.limits.log
    ahead_max_ms = limits.segment_ahead_max_ms if state.level >= PRODUCERS_LEVEL else limits.segment_commit_age_max_ms
    ahead_ms = segment_born_ms(segment_id) - state.clock_ms if len(segment_id) == ID_BYTES else 0
    return Rejected(Rejection.OVERLOADED, f"a segment born {ahead_ms} ms from now") if ahead_ms > ahead_max_ms else None


def _is_sound(run: BatchRun, size_bytes: int) -> bool:
    """Whether the run lies in the segment, and every number fits its column."""
    position = run.position
    if position < 0:
        return False
    for batch in run.batches:
        if batch.length <= 0 or not 0 < batch.record_count <= RECORDS_PER_BATCH_MAX:
            return False
        if batch.max_timestamp > INTEGER_MAX:
            return False
        position += batch.length
    return position <= size_bytes


def _answer_again(remembered: RememberedCommit, command: CommitSegment) -> SegmentCommitted | Rejected:
    """The results of the first commit, computed from the command's batches and the remembered exceptions."""
    runs = command.runs
    is_same = remembered.batches == sum(len(run.batches) for run in runs) and len(remembered.firsts) == 2 * len(runs)
    if not is_same or not all(_is_sound(run, command.size_bytes) for run in runs):
        return Rejected(Rejection.INVALID_REQUEST, "the segment was committed with other batches")
    results = []
    number = 0
    for place, run in enumerate(runs):
        offset, log_start_offset = remembered.firsts[2 * place : 2 * place + 2]
        again: list[BatchResult] = []
        for batch in run.batches:
            exception = remembered.exceptions.get(number, _UNKNOWN_TOPIC if offset < 0 else None)
            number += 1
            if exception is None:
                again.append(BatchResult(0, offset, log_start_offset))
                offset += batch.record_count
            else:
                again.append(exception)
        results.append(again)
    return SegmentCommitted(results)


def remove_commits(state: State) -> None:
    """Remove commits and compactions that are too old to be sent again; bounded work for each Tick."""
    removed_max = state.limits.log.commits_removed_per_tick
    if state.level >= COMMIT_LEASE_LEVEL:
        _requeue_long(state)
    _remove_old(state.commits, state.clock_ms, removed_max)
    _remove_old(state.replacements, state.clock_ms, removed_max)


def _requeue_long(state: State) -> None:
    """Move commits from the front to the end if they stay longer than new ones: those of compacted segments do.

    `_remove_old` removes commits from the front, and ends at the first one that stays.
    """
    limits = state.limits.log
    usual_ms = state.clock_ms + COMMIT_LEASE_MS + limits.commit_memory_ms
    front = itertools.islice(state.commits.items(), limits.commits_requeued_per_tick)
    moved = list(itertools.takewhile(lambda item: item[1].expires_ms > usual_ms, front))
    for segment_id, each in moved:
        del state.commits[segment_id]
        state.commits[segment_id] = each


def _remove_old(remembered: dict[SegmentId, _Remembered], clock_ms: int, removed_max: int) -> None:
    old: list[SegmentId] = []
    for segment_id, each in remembered.items():
        if each.expires_ms >= clock_ms or len(old) >= removed_max:
            break
        old.append(segment_id)
    for segment_id in old:
        del remembered[segment_id]
