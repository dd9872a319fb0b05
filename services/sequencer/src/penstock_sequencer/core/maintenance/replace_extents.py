"""Compaction: extents in new segments take the place of the extents that they were made of.

Each run stands for itself. It is accepted if what it was made of still lies between its two offsets, and nothing else;
so whatever happened since the job was planned, readers see the records of that range once, in their old place or in
the new one. All runs are held against the state before the command, and the accepted ones take effect together.
Markers among the inputs are named as extents of NO_SEGMENT_ID, and are stored with the run from then on. What was
aborted may have been left out of a run that lies before the last stable offset (ADR 0012).

A run that was cleaned (of each key only the last record is left) says something about the records before it, too: that
no older record of one of its keys is among them. That is true only if the runs before it in its pass over the log were
accepted. So a pass begins at the log's start, and each further run continues it, or is refused.
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

_COMPACTED = -1  # a number of batches that no commit has
_NOT_FOUND = -1  # in the place of an input's slot: no run has named an extent of it yet
_Span = tuple[int, int, ReplacedRun]  # rows of a partition from the first to before the second, and what replaces them
_span_start = itemgetter(0)


class _Job(msgspec.Struct, eq=False):
    """A command on its way."""

    command: ReplaceExtents
    input_slots: list[int]
    output_ends: list[int]  # up to where each output is taken by the runs seen
    spans: dict[int, list[_Span]]  # by the partition's index: accepted, in order, none over another
    ended: set[tuple[TopicId, int]]  # partitions of which a cleaned run was refused


def replace_extents(state: State, command: ReplaceExtents, changes: Changes) -> PerItem | Rejected:
    """The outputs become segments, and each run that is still right takes the place of its inputs."""
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
        return Rejected(Rejection.INVALID_REQUEST, f"a job of {len(command.job_id)} letters")
    extents = sum(len(run.inputs) // 2 for run in command.runs)
    if max(extents, len(command.runs), len(command.inputs)) > limits.replaced_extents_max:
        return Rejected(Rejection.INVALID_REQUEST, f"{len(command.runs)} runs of {extents} extents are too many")
    identifiers = {output.segment_id for output in command.outputs}
    if not len(identifiers) == len(command.outputs) <= limits.outputs_max:
        return Rejected(
            Rejection.INVALID_REQUEST, f"{len(command.outputs)} outputs are too many, or one is there twice"
        )
    for output in command.outputs:
        validation_error = _output_validation_error(state, output)
        if validation_error is not None:
            return validation_error
    if is_full(state, len(command.outputs)) or len(state.replacements) >= limits.remembered_replacements_max:
        return Rejected(Rejection.OVERLOADED, "no room for another segment")
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
    """Whether the run takes the place of its inputs; if so it is noted in `job`."""
    if not _is_sound(job, run):
        return Rejection.INVALID_REQUEST
    job.output_ends[run.output] = run.position + run.length
    partition = find_kept_partition(state, run.topic_id, run.partition)
    if partition is None:
        return Rejection.UNKNOWN_TOPIC
    start = partition.extents.find_offset(run.base_offset)
    stop = start + len(run.inputs) // 2
    if not _are_inputs(state, job, run, partition, start, stop) or _is_news(changes, run):
        return Rejection.EXTENTS_CHANGED
    if state.level >= JANITOR_LEVEL and start < partition.extents.find_offset(partition.log_start_offset):
        return Rejection.EXTENTS_CHANGED  # what is to be dropped would live on in the extent that holds the log's start
    if run.without_aborted and run.last_offset >= last_stable_offset(partition):
        return Rejection.EXTENTS_CHANGED  # nobody can have known what will be aborted there
    if run.cleaned and partition.transactions is not None and not run.without_aborted:
        return Rejection.EXTENTS_CHANGED  # what was aborted may have been taken for the latest of its key
    spans = job.spans.setdefault(partition.index, [])
    if _touches(spans, start, stop) or (run.cleaned and not _continues(job, partition, run)):
        return Rejection.EXTENTS_CHANGED
    insort(spans, (start, stop, run), key=_span_start)
    if run.cleaned:
        _record_cleaned(partition, run)
    return Rejection.NONE


def _is_sound(job: _Job, run: ReplacedRun) -> bool:
    """Whether the run can be in its output, behind the runs before it, and every number fits its column."""
    command, places = job.command, run.inputs[::2]
    if not places or len(run.inputs) % 2 or min(places) < 0 or max(places) >= len(command.inputs):
        return False
    if not 0 <= run.output < len(command.outputs) or run.length <= 0:
        return False
    if max(run.max_timestamp, run.delete_horizon_ms) > INTEGER_MAX:
        return False
    return job.output_ends[run.output] <= run.position <= command.outputs[run.output].size_bytes - run.length


def _are_inputs(state: State, job: _Job, run: ReplacedRun, partition: Partition, start: int, stop: int) -> bool:
    """Whether the rows are just the run's inputs, and reach from its first offset to its last."""
    columns = partition.extents
    if stop > columns.end:
        return False
    if columns.base_offsets[start] != run.base_offset or columns.last_offsets[stop - 1] != run.last_offset:
        return False
    if columns.positions[start:stop].tolist() != run.inputs[1::2]:
        return False
    # To look each input up by its id would cost more than everything else here; the extents lead to the ids.
    found, places, slots = job.input_slots, run.inputs[::2], columns.segments[start:stop].tolist()
    for place, slot in zip(places, slots, strict=True):
        if found[place] == _NOT_FOUND and segment_id(state, slot) == job.command.inputs[place]:
            found[place] = slot
    return slots == [found[place] for place in places]


def _is_news(changes: Changes, run: ReplacedRun) -> bool:
    """Whether the range is committed by this very entry: nobody knew of it, and it is still to be announced."""
    advanced = changes.advanced.get((run.topic_id, run.partition))
    return advanced is not None and run.last_offset >= advanced[1]


def _touches(spans: list[_Span], start: int, stop: int) -> bool:
    after = bisect_left(spans, start, key=_span_start)
    return (after > 0 and spans[after - 1][1] > start) or (after < len(spans) and spans[after][0] < stop)


def _continues(job: _Job, partition: Partition, run: ReplacedRun) -> bool:
    """Whether the run begins a pass over the log, or continues the one that there is."""
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
    """The outcome by the first output; each output's id is taken, as if it had been committed."""
    born_ms = max(segment_born_ms(output.segment_id) for output in command.outputs)
    expires_ms = max(state.clock_ms, born_ms) + state.limits.log.segment_commit_age_max_ms
    remembered = bytes(rejections).rstrip(b"\0")
    state.replacements[command.outputs[0].segment_id] = Replacement(expires_ms, len(rejections), remembered)
    for output in command.outputs:
        state.commits[output.segment_id] = RememberedCommit(expires_ms, _COMPACTED, array("q"), {})
