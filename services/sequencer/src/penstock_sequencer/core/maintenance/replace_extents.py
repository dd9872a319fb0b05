"""Commits of compactions: extents in new segments replace the extents that they were made of.

Each run stands for itself. It is accepted if exactly its inputs still lie between its two offsets. So any change since
the job was planned does no harm: readers see the records of the range once, in the old place or in the new one. All
runs are checked against the state before the command, and the accepted ones take effect together.

A marker among the inputs is named as an extent of NO_SEGMENT_ID. From then on it is stored with the run. A run that
lies before the last stable offset may leave out aborted records (ADR 0012).

A cleaned run keeps only the last record of each key. That also makes a statement about the records before the run: none
of them is an older record of one of its keys. The statement is true only if the earlier runs of the same pass over the
log were accepted. So a pass begins at the log's start, and each further run must continue it, or it is rejected.
"""

from array import array
from bisect import bisect_left, insort
from operator import itemgetter

import msgspec

from penstock.contracts.commands import OutputSegment, PerItem, Rejected, ReplacedRun, ReplaceExtents
from penstock.contracts.ids import TopicId, segment_born_ms
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.commits.segment_commit import check_segment, is_full
from penstock_sequencer.core.log.control_markers import segment_id
from penstock_sequencer.core.log.partitions import find_kept_partition, first_kept_offset, last_stable_offset
from penstock_sequencer.core.log.segment_contents import content_entry
from penstock_sequencer.core.state.cluster import NO_HORIZON, Changes, Partition, RememberedCommit, Replacement, State
from penstock_sequencer.core.state.limits import INTEGER_MAX, SEGMENT_LEVEL_MAX

_COMPACTED = -1  # a number of batches that no commit of a flusher has
_NOT_FOUND = -1  # instead of the slot of an input: no run has named an extent of it yet
_Span = tuple[int, int, ReplacedRun]  # rows from the first to before the second, and the run that replaces them
_span_start = itemgetter(0)


class _Job(msgspec.Struct, eq=False):
    """The progress of one command."""

    command: ReplaceExtents
    input_slots: list[int]
    output_ends: list[int]  # up to where the runs seen so far use each output
    spans: dict[int, list[_Span]]  # by partition index: accepted spans in order, without overlaps
    ended: set[tuple[TopicId, int]]  # partitions with a rejected cleaned run


def replace_extents(state: State, command: ReplaceExtents, changes: Changes) -> PerItem | Rejected:
    """Add the outputs as segments, and let each run that is still valid replace its inputs."""
    if not command.outputs:
        return Rejected(Rejection.INVALID_REQUEST, "no outputs")
    remembered = state.replacements.get(command.outputs[0].segment_id)
    if remembered is not None:
        return _answer_again(remembered, command)
    validation_error = _validation_error(state, command)
    if validation_error is not None:
        return validation_error
    job = _Job(command, [_NOT_FOUND] * len(command.inputs), [0] * len(command.outputs), {}, set())
    rejections = [_decide(state, job, run, changes) for run in command.runs]
    _apply(state, job)
    _remember(state, command, rejections)
    return PerItem(rejections)


def _answer_again(remembered: Replacement, command: ReplaceExtents) -> PerItem | Rejected:
    if remembered.runs != len(command.runs):
        return Rejected(Rejection.INVALID_REQUEST, "the segment was committed with other runs")
    rejections = remembered.rejections.ljust(remembered.runs, b"\0")
    return PerItem([Rejection(each) for each in rejections])


def _validation_error(state: State, command: ReplaceExtents) -> Rejected | None:
    limits = state.limits.maintenance
    if len(command.job_id) > limits.lease_names_length_max:
        return Rejected(Rejection.INVALID_REQUEST, f"a job id of {len(command.job_id)} characters")
    extents = sum(len(run.inputs) // 2 for run in command.runs)
    if max(extents, len(command.runs), len(command.inputs)) > limits.replaced_extents_max:
        return Rejected(Rejection.INVALID_REQUEST, f"{len(command.runs)} runs of {extents} extents are too many")
    identifiers = {output.segment_id for output in command.outputs}
    if not len(identifiers) == len(command.outputs) <= limits.outputs_max:
        return Rejected(Rejection.INVALID_REQUEST, f"{len(command.outputs)} outputs are too many, or one occurs twice")
    for output in command.outputs:
        validation_error = _output_validation_error(state, output)
        if validation_error is not None:
            return validation_error
    if is_full(state, len(command.outputs)) or len(state.replacements) >= limits.remembered_replacements_max:
        return Rejected(Rejection.OVERLOADED, "the limit of segments, commits or compactions is reached")
    return None


def _output_validation_error(state: State, output: OutputSegment) -> Rejected | None:
    if not 0 < output.level <= SEGMENT_LEVEL_MAX:
        return Rejected(Rejection.INVALID_REQUEST, f"a compacted segment of level {output.level}")
    if output.segment_id in state.commits:
        return Rejected(Rejection.INVALID_REQUEST, "the segment was committed before")
    return check_segment(state, output.segment_id, output.size_bytes)


def _decide(state: State, job: _Job, run: ReplacedRun, changes: Changes) -> Rejection:
    rejection = _accept(state, job, run, changes)
    if rejection and run.cleaned:
        job.ended.add((run.topic_id, run.partition))
    return rejection


def _accept(state: State, job: _Job, run: ReplacedRun, changes: Changes) -> Rejection:
    """Whether the run may replace its inputs; if so, record it in `job`."""
    if not _is_sound(job, run):
        return Rejection.INVALID_REQUEST
    job.output_ends[run.output] = run.position + run.length
    partition = find_kept_partition(state, run.topic_id, run.partition)
    if partition is None:
        return Rejection.UNKNOWN_TOPIC
    start = partition.extents.find_offset(run.base_offset)
    stop = start + len(run.inputs) // 2
    if not _are_inputs(state, job, run, partition, start, stop) or _is_new_range(changes, run):
        return Rejection.EXTENTS_CHANGED
    if state.level >= JANITOR_LEVEL and start < partition.extents.find_offset(partition.log_start_offset):
        return Rejection.EXTENTS_CHANGED  # extents to be dropped would live on in the extent at the log's start
    if run.without_aborted and run.last_offset >= last_stable_offset(partition):
        return Rejection.EXTENTS_CHANGED  # which records are aborted was not decided there
    if run.cleaned and partition.transactions is not None and not run.without_aborted:
        return Rejection.EXTENTS_CHANGED  # an aborted record may count as the last of its key
    spans = job.spans.setdefault(partition.index, [])
    if _touches(spans, start, stop) or (run.cleaned and not _continues(job, partition, run)):
        return Rejection.EXTENTS_CHANGED
    insort(spans, (start, stop, run), key=_span_start)
    if run.cleaned:
        _record_cleaned(partition, run)
    return Rejection.NONE


def _is_sound(job: _Job, run: ReplacedRun) -> bool:
    """Whether the run fits into its output after the runs before it, and every number fits its column."""
    command, places = job.command, run.inputs[::2]
    if not places or len(run.inputs) % 2 or min(places) < 0 or max(places) >= len(command.inputs):
        return False
    if not 0 <= run.output < len(command.outputs) or run.length <= 0:
        return False
    if max(run.max_timestamp, run.delete_horizon_ms) > INTEGER_MAX:
        return False
    return job.output_ends[run.output] <= run.position <= command.outputs[run.output].size_bytes - run.length


def _are_inputs(state: State, job: _Job, run: ReplacedRun, partition: Partition, start: int, stop: int) -> bool:
    """Whether the rows are exactly the run's inputs, from its first offset to its last."""
    columns = partition.extents
    if stop > columns.end:
        return False
    if columns.base_offsets[start] != run.base_offset or columns.last_offsets[stop - 1] != run.last_offset:
        return False
    if columns.positions[start:stop].tolist() != run.inputs[1::2]:
        return False
    # A lookup of each input by its id would cost more than all other steps here. The extents lead to the ids.
    found, places, slots = job.input_slots, run.inputs[::2], columns.segments[start:stop].tolist()
    for place, slot in zip(places, slots, strict=True):
        if found[place] == _NOT_FOUND and segment_id(state, slot) == job.command.inputs[place]:
            found[place] = slot
    return slots == [found[place] for place in places]


def _is_new_range(changes: Changes, run: ReplacedRun) -> bool:
    """Whether this same entry commits the range: no compactor can know it yet, and it is not announced."""
    advanced = changes.advanced.get((run.topic_id, run.partition))
    return advanced is not None and run.last_offset >= advanced[1]


def _touches(spans: list[_Span], start: int, stop: int) -> bool:
    after = bisect_left(spans, start, key=_span_start)
    return (after > 0 and spans[after - 1][1] > start) or (after < len(spans) and spans[after][0] < stop)


def _continues(job: _Job, partition: Partition, run: ReplacedRun) -> bool:
    """Whether the run begins a pass over the log, or continues the present one."""
    if run.last_offset >= last_stable_offset(partition) or (run.topic_id, run.partition) in job.ended:
        return False
    return run.base_offset in (first_kept_offset(partition), partition.pass_offset)


def _record_cleaned(partition: Partition, run: ReplacedRun) -> None:
    if run.base_offset == first_kept_offset(partition):
        partition.pass_horizon_ms = NO_HORIZON
    horizons_ms = [each for each in (partition.pass_horizon_ms, run.delete_horizon_ms) if each >= 0]
    partition.pass_horizon_ms = min(horizons_ms, default=NO_HORIZON)
    partition.pass_offset = run.last_offset + 1
    if partition.pass_offset >= partition.cleaned_offset:
        partition.cleaned_offset = partition.pass_offset
        partition.delete_horizon_ms = partition.pass_horizon_ms


def _apply(state: State, job: _Job) -> None:
    segments = state.segments
    outputs = [segments.add(each.segment_id, each.level, each.size_bytes, "", "") for each in job.command.outputs]
    contents: list[list[bytes]] = [[] for _ in outputs]
    for index, spans in job.spans.items():
        partition = state.partitions_by_index[index]
        extents = partition.extents
        for start, stop, run in spans:
            segments.gain(outputs[run.output], 1, run.length)
            contents[run.output].append(content_entry(index, run.base_offset))
            state.extent_count += 1 - (stop - start)
            lost_bytes = segments.lose_many(extents.segments[start:stop], extents.lengths[start:stop])
            partition.size_bytes += run.length - lost_bytes
            if partition.transactions is not None:
                partition.transactions.remove_markers(run.base_offset, run.last_offset)
                if run.without_aborted:
                    removed = partition.transactions.remove_aborted(run.base_offset, run.last_offset)
                    state.aborted_count -= removed
        if spans:
            extents.replace([(start, stop, _row(run, outputs[run.output])) for start, stop, run in spans])
    for slot, entries in zip(outputs, contents, strict=True):
        segments.contents[slot] = b"".join(entries)
    for slot in (*outputs, *job.input_slots):
        if slot != _NOT_FOUND:
            segments.mark_dead_if_empty(slot, state.clock_ms, state.sequence)


def _row(run: ReplacedRun, segment: int) -> tuple[int, int, int, int, int, int]:
    return run.base_offset, run.last_offset, segment, run.position, run.length, run.max_timestamp


def _remember(state: State, command: ReplaceExtents, rejections: list[Rejection]) -> None:
    """Remember the outcome by the first output; each output's id counts as committed."""
    born_ms = max(segment_born_ms(output.segment_id) for output in command.outputs)
    expires_ms = max(state.clock_ms, born_ms) + state.limits.log.segment_commit_age_max_ms
    remembered = bytes(rejections).rstrip(b"\0")
    state.replacements[command.outputs[0].segment_id] = Replacement(expires_ms, len(rejections), remembered)
    for output in command.outputs:
        state.commits[output.segment_id] = RememberedCommit(expires_ms, _COMPACTED, array("q"), {})
