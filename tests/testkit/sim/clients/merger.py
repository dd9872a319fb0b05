"""The real service's merging of segments in the simulation, without Spark, on random segments.

Other than `compactor`, which merges any extents, it treats transactions as the service does: it stores markers, and
leaves out aborted records.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import cast

from penstock.contracts.batches import NO_SEGMENT_ID
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import PerItem
from penstock.contracts.ids import ENTROPY_BYTES, new_segment_id
from penstock.contracts.queries.compaction import SegmentExtentsQuery, SegmentExtentsView, SegmentsQuery, SegmentsView
from penstock.contracts.rejections import Rejection
from penstock.objectstore import streamed_put
from penstock.segment import CompactedWriter
from penstock.segment.keys import segment_key
from penstock.spark.ranges import Fragment, Range, StoreRanges
from penstock_compactor.merge.merge_task import write_runs
from penstock_compactor.merge.outputs import Contents, tasks_of
from penstock_compactor.merge.tasks import Merged, MergeTask
from penstock_compactor.merge.work import replacement
from penstock_compactor.planning.planner import Choice, Kind, PlanLimits
from penstock_sequencer.core.state.cluster import Topic
from tests.testkit.sim.clients.compactor import COMMIT_DEADLINE_S, LEVEL_MAX, PLACE_BYTES, Compactor

SEGMENTS_MAX = 12  # of a job
SEGMENTS_LISTED = 1_000
LIMITS = PlanLimits()


class Merger(Compactor):
    """Merges random consecutive segments, for ever."""

    async def _work(self, topic: Topic) -> None:
        levels = list(range(LEVEL_MAX + 1))
        listed = await self._sequencer.query("segments", SegmentsQuery(0, 0, levels, SEGMENTS_LISTED), SegmentsView)
        if not listed.segments:
            return
        first = self._stream.randrange(len(listed.segments))
        chosen = listed.segments[first : first + self._stream.randint(1, SEGMENTS_MAX)]
        rows = SegmentExtentsQuery(0, [each.row for each in chosen])
        view = await self._sequencer.query("segment_extents", rows, SegmentExtentsView)
        contents = Contents(view.extents, [each for of_segment in view.transactions for each in of_segment])
        choice = Choice(Kind.FLUSHED, chosen[: len(view.extents)])
        for task in tasks_of(choice, contents, compacted=(), limits=LIMITS):
            await self._merge(task)

    async def _merge(self, task: MergeTask) -> None:
        merged = await self._write(task)
        await asyncio.sleep(self._stream.uniform(0, self._settings.job_s_max))
        command = replacement(self._clock.now_ms(), "job", [(task, merged)])
        (outcome,) = await self._sequencer.command([command], deadline_s=COMMIT_DEADLINE_S)
        if isinstance(outcome, PerItem):
            self.replaced += outcome.rejections.count(Rejection.NONE)
            self.rejected += len(outcome.rejections) - outcome.rejections.count(Rejection.NONE)

    async def _write(self, task: MergeTask) -> Merged:
        born_ms = self._clock.now_ms()
        segment_id = new_segment_id(born_ms, self._stream.randbytes(ENTROPY_BYTES))
        keys = [segment_key("", self._cluster, each.level, each.segment_id) for each in task.segments]
        body: list[Buffer] = []
        writer = CompactedWriter(
            segment_id, level=task.level, created_ms=born_ms, sink=body.append, place_bytes=PLACE_BYTES
        )
        ranges = _Ranges(
            [
                await self._store.get_range(keys[each.segment], each.position, each.length)
                for run in task.runs
                for each in run.extents
                if task.segments[each.segment].segment_id != NO_SEGMENT_ID
            ]
        )
        runs = write_runs(cast(StoreRanges, ranges), task, keys, writer)
        size_bytes = writer.finish().size_bytes
        async with streamed_put(self._store, segment_key("", self._cluster, task.level, segment_id)) as put:
            for buffer in body:
                await put.write(buffer)
        return Merged(segment_id, task.level, size_bytes, runs, 0.0, 0.0, 0)


class _Ranges:
    """The ranges that were read before, in place of `StoreRanges`."""

    def __init__(self, data: Sequence[bytes]) -> None:
        self._data = data

    def stream(self, ranges: Sequence[Range]) -> Iterator[Fragment]:
        """One fragment for each range."""
        for number, (asked, data) in enumerate(zip(ranges, self._data, strict=True)):
            assert asked.length == len(data), "the task asks for ranges in another order than they were read"
            yield Fragment(number, memoryview(data), is_last=True)
