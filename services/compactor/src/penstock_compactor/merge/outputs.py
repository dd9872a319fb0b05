"""Plans the outputs of a merge job: one task per output, from the extents in its segments. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from penstock.contracts.batches import NO_SEGMENT_ID, AbortedTransaction, Marker
from penstock.contracts.ids import TopicId
from penstock.contracts.queries.compaction import LogTransactions, PlacedExtent
from penstock_compactor.jobs.values import Contents
from penstock_compactor.merge.tasks import InputExtent, InputRun, InputSegment, MergeTask
from penstock_compactor.planning.planner import FLUSHED, MIXED, TOPIC, Choice, Kind, PlanLimits

_Found = tuple[TopicId, int, InputExtent]
_Log = tuple[TopicId, int]


class _Known(msgspec.Struct):
    """The known transactions of a log."""

    decided_offset: int
    markers: dict[int, Marker] = {}
    aborted: list[AbortedTransaction] = []


def tasks_of(
    choice: Choice, contents: Contents, *, compacted: Collection[TopicId], limits: PlanLimits
) -> list[MergeTask]:
    """One task per output, the largest first; `contents` has the extents in each segment of the choice.

    Topics in `compacted` stay in level 1. Key compaction moves them to level 2.
    """
    known = _known(contents.transactions)
    runs = _runs(contents.extents, known)
    segments = [InputSegment(segment.segment_id, segment.level) for segment in choice.segments]
    segments.append(InputSegment(NO_SEGMENT_ID, FLUSHED))  # of the markers
    separate = _separate_topics(choice.kind, runs, compacted, limits)
    groups = [(TOPIC, [run for run in runs if run.topic_id == topic_id]) for topic_id in separate]
    groups.append((MIXED, [run for run in runs if run.topic_id not in separate]))
    parts = [(level, part) for level, group in groups for part in _parts(group, limits)]
    tasks = [_task(level, segments, [_with_transactions(run, known) for run in part]) for level, part in parts]
    return sorted(tasks, key=lambda task: task.length, reverse=True)


def _known(transactions: Iterable[LogTransactions]) -> dict[_Log, _Known]:
    """The known transactions by log. Later answers may reflect a later state, so the smallest decided offset counts."""
    known: dict[_Log, _Known] = {}
    for each in transactions:
        of_log = known.setdefault((each.topic_id, each.partition), _Known(each.decided_offset))
        of_log.decided_offset = min(of_log.decided_offset, each.decided_offset)
        of_log.markers.update((marker.offset, marker) for marker in each.markers)
        of_log.aborted += each.aborted
    return known


def _with_transactions(run: InputRun, known: dict[_Log, _Known]) -> InputRun:
    """The run with the transactions that its task needs."""
    of_log = known.get((run.topic_id, run.partition))
    if of_log is None:
        return run
    first, last = run.extents[0].base_offset, run.extents[-1].last_offset
    is_decided = last < of_log.decided_offset
    aborted = [each for each in of_log.aborted if each.first_offset <= last and each.last_offset >= first]
    return msgspec.structs.replace(
        run,
        markers=[marker for offset, marker in of_log.markers.items() if first <= offset <= last],
        aborted=aborted if is_decided else [],
        without_aborted=is_decided,
    )


def _runs(extents: Sequence[Sequence[PlacedExtent]], known: dict[_Log, _Known]) -> list[InputRun]:
    """Runs of neighbouring extents by (topic id, partition, offset); markers are in one additional segment."""
    found: list[_Found] = []
    for number, of_segment in enumerate(extents):
        for each in of_segment:
            extent = InputExtent(number, each.base_offset, each.last_offset, each.position, each.length)
            found.append((each.topic_id, each.partition, extent))
    for (topic_id, partition), of_log in known.items():
        found += [(topic_id, partition, InputExtent(len(extents), at, at, 0, 0)) for at in of_log.markers]
    found.sort(key=lambda each: (each[0], each[1], each[2].base_offset))
    runs: list[InputRun] = []
    for topic_id, partition, extent in found:
        last = runs[-1] if runs else None
        if last is not None and _continues(last, topic_id, partition, extent, known.get((topic_id, partition))):
            last.extents.append(extent)
        else:
            runs.append(InputRun(topic_id, partition, [extent]))
    return runs


def _continues(run: InputRun, topic_id: TopicId, partition: int, extent: InputExtent, known: _Known | None) -> bool:
    """Whether the extent continues the run. A run ends where open transactions begin, so that these delay no others."""
    before = run.extents[-1]
    is_next = (run.topic_id, run.partition, before.last_offset + 1) == (topic_id, partition, extent.base_offset)
    return is_next and (known is None or not before.last_offset < known.decided_offset <= extent.last_offset)


def _separate_topics(
    kind: Kind, runs: Iterable[InputRun], compacted: Collection[TopicId], limits: PlanLimits
) -> dict[TopicId, int]:
    """The topics that get separate segments, in order."""
    sizes: dict[TopicId, int] = {}
    for run in runs:
        sizes[run.topic_id] = sizes.get(run.topic_id, 0) + run.length
    if kind is Kind.TOPIC:
        return sizes
    if kind in (Kind.FLUSHED, Kind.EXPRESS):
        return {}
    return {
        topic_id: size
        for topic_id, size in sizes.items()
        if size >= limits.topic_bytes_min and topic_id not in compacted
    }


def _parts(runs: Iterable[InputRun], limits: PlanLimits) -> Iterator[list[InputRun]]:
    """The runs of each output, within the limits of bytes per output and of extents per command."""
    part: list[InputRun] = []
    size = extents = 0
    for fragment in (fragment for run in runs for fragment in _fragments(run, limits)):
        size += fragment.length
        extents += len(fragment.extents)
        if part and (size > limits.output_bytes_max or extents > limits.job_extents_max):
            yield part
            part, size, extents = [], fragment.length, len(fragment.extents)
        part.append(fragment)
    if part:
        yield part


def _fragments(run: InputRun, limits: PlanLimits) -> Iterator[InputRun]:
    """A run that is too large for one output, cut between extents."""
    taken: list[InputExtent] = []
    size = 0
    for extent in run.extents:
        size += extent.length
        if taken and (size > limits.output_bytes_max or len(taken) >= limits.job_extents_max):
            yield InputRun(run.topic_id, run.partition, taken)
            taken, size = [], extent.length
        taken.append(extent)
    yield InputRun(run.topic_id, run.partition, taken)


def _task(level: int, segments: Sequence[InputSegment], runs: Sequence[InputRun]) -> MergeTask:
    """A task with only the segments of its runs."""
    used = sorted({extent.segment for run in runs for extent in run.extents})
    places = {number: place for place, number in enumerate(used)}
    moved = [
        msgspec.structs.replace(run, extents=[InputExtent(places[each.segment], *_rest(each)) for each in run.extents])
        for run in runs
    ]
    return MergeTask(level, [segments[number] for number in used], moved)


def _rest(extent: InputExtent) -> tuple[int, int, int, int]:
    return extent.base_offset, extent.last_offset, extent.position, extent.length
