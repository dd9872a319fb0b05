"""What a job writes: pure, from the extents in its segments to one task per output."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from compactor.planner import MIXED, TOPIC, Choice, Kind, PlanLimits
from compactor.tasks import InputExtent, InputRun, InputSegment, MergeTask
from penstock.contracts.ids import TopicId
from penstock.contracts.queries import PlacedExtent

_Found = tuple[TopicId, int, InputExtent]


def tasks_of(
    choice: Choice, extents: Sequence[Sequence[PlacedExtent]], *, compacted: Collection[TopicId], limits: PlanLimits
) -> list[MergeTask]:
    """One task per output, the largest first; `extents` has those of each segment of the choice.

    Topics in `compacted` are left for key compaction to take to level 2.
    """
    runs = _runs(extents)
    segments = [InputSegment(segment.segment_id, segment.level) for segment in choice.segments]
    own = _topics_of_their_own(choice.kind, runs, compacted, limits)
    groups = [(TOPIC, [run for run in runs if run.topic_id == topic_id]) for topic_id in own]
    groups.append((MIXED, [run for run in runs if run.topic_id not in own]))
    tasks = [_task(level, segments, part) for level, group in groups for part in _parts(group, limits)]
    return sorted(tasks, key=lambda task: task.length, reverse=True)


def _runs(extents: Sequence[Sequence[PlacedExtent]]) -> list[InputRun]:
    """Everything by (topic id, partition, offset), neighbours joined."""
    found: list[_Found] = []
    for number, of_segment in enumerate(extents):
        for each in of_segment:
            extent = InputExtent(number, each.base_offset, each.last_offset, each.position, each.length)
            found.append((each.topic_id, each.partition, extent))
    found.sort(key=lambda each: (each[0], each[1], each[2].base_offset))
    runs: list[InputRun] = []
    for topic_id, partition, extent in found:
        last = runs[-1] if runs else None
        if last is not None and _continues(last, topic_id, partition, extent):
            last.extents.append(extent)
        else:
            runs.append(InputRun(topic_id, partition, [extent]))
    return runs


def _continues(run: InputRun, topic_id: TopicId, partition: int, extent: InputExtent) -> bool:
    is_same = (run.topic_id, run.partition) == (topic_id, partition)
    return is_same and run.extents[-1].last_offset + 1 == extent.base_offset


def _topics_of_their_own(
    kind: Kind, runs: Iterable[InputRun], compacted: Collection[TopicId], limits: PlanLimits
) -> dict[TopicId, int]:
    """The topics that get segments of their own, in order."""
    sizes: dict[TopicId, int] = {}
    for run in runs:
        sizes[run.topic_id] = sizes.get(run.topic_id, 0) + run.length
    if kind is Kind.TOPIC:
        return sizes
    if kind is Kind.FLUSHED:
        return {}
    return {
        topic_id: size
        for topic_id, size in sizes.items()
        if size >= limits.topic_bytes_min and topic_id not in compacted
    }


def _parts(runs: Iterable[InputRun], limits: PlanLimits) -> Iterator[list[InputRun]]:
    """Runs for one output each: no more bytes than an output may have, no more extents than a command may replace."""
    part: list[InputRun] = []
    size = extents = 0
    for piece in (piece for run in runs for piece in _pieces(run, limits)):
        size += piece.length
        extents += len(piece.extents)
        if part and (size > limits.output_bytes_max or extents > limits.job_extents_max):
            yield part
            part, size, extents = [], piece.length, len(piece.extents)
        part.append(piece)
    if part:
        yield part


def _pieces(run: InputRun, limits: PlanLimits) -> Iterator[InputRun]:
    """A run that is too much for one output, cut between extents."""
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
    """With only the segments that the runs are in."""
    used = sorted({extent.segment for run in runs for extent in run.extents})
    places = {number: place for place, number in enumerate(used)}
    moved = [
        InputRun(
            run.topic_id,
            run.partition,
            [InputExtent(places[each.segment], *_rest(each)) for each in run.extents],
        )
        for run in runs
    ]
    return MergeTask(level, [segments[number] for number in used], moved)


def _rest(extent: InputExtent) -> tuple[int, int, int, int]:
    return extent.base_offset, extent.last_offset, extent.position, extent.length
