"""A model of a cluster that runs each planned compaction job at once: it measures cost and gain of compaction."""

from penstock.contracts.ids import SegmentId, TopicId, new_segment_id
from penstock.contracts.queries.compaction import PlacedExtent, SegmentView
from penstock_compactor.jobs.values import Contents
from penstock_compactor.merge.outputs import tasks_of
from penstock_compactor.merge.tasks import MergeTask
from penstock_compactor.planning.planner import Choice, Kind, PlanLimits, choose

Place = tuple[TopicId, int]


class CompactionModel:
    """Segments with the sizes of their extents, but no bytes; each flush has one batch of each partition."""

    def __init__(self, limits: PlanLimits, now_ms: int) -> None:
        self.limits = limits
        self.now_ms = now_ms
        self.segments: dict[SegmentId, SegmentView] = {}
        self.extents: dict[SegmentId, list[PlacedExtent]] = {}
        self.ends: dict[Place, int] = {}
        self.flushed_bytes = 0
        self.written_bytes = 0
        self._row = 0

    def flush(self, sizes: dict[Place, int]) -> None:
        """Add a segment with these bytes of each partition."""
        placed = []
        for place, size in sorted(sizes.items()):
            end = self.ends.get(place, 0)
            self.ends[place] = end + 1
            placed.append(PlacedExtent(*place, end, end, 0, size, 0))
        self._add(0, placed)
        self.flushed_bytes += sum(sizes.values())

    def compact(self, *kinds: Kind) -> None:
        """Run jobs of these kinds, by default of all, until none is due."""
        while jobs := [job for job in self._due() if not kinds or job.kind in kinds]:
            for job in jobs:
                extents = [self.extents[each.segment_id] for each in job.segments]
                for task in tasks_of(job, Contents(extents), compacted=(), limits=self.limits):
                    self._write(task)
                for each in job.segments:
                    del self.segments[each.segment_id], self.extents[each.segment_id]

    def ranges(self, place: Place) -> list[int]:
        """The length of each range that a catch-up read of a partition reads."""
        return [
            each.length
            for placed in self.extents.values()
            for each in placed
            if (each.topic_id, each.partition) == place
        ]

    def _due(self) -> list[Choice]:
        return choose(self.segments.values(), self._topics(), now_ms=self.now_ms, limits=self.limits, jobs_max=8)

    def _write(self, task: MergeTask) -> None:
        placed = [
            PlacedExtent(
                run.topic_id, run.partition, run.extents[0].base_offset, run.extents[-1].last_offset, 0, run.length, 0
            )
            for run in task.runs
        ]
        self.written_bytes += task.length
        self._add(task.level, placed)

    def _add(self, level: int, placed: list[PlacedExtent]) -> None:
        self._row += 1
        size = sum(each.length for each in placed)
        segment_id = new_segment_id(self.now_ms, self._row.to_bytes(10, "big"))
        self.segments[segment_id] = SegmentView(self._row, segment_id, level, size, size, len(placed), -1, False)
        self.extents[segment_id] = placed

    def _topics(self) -> dict[SegmentId, TopicId]:
        return {each: placed[0].topic_id for each, placed in self.extents.items()}
