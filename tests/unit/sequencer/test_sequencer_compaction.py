"""A compactor's requests to any of several sequencers: query segments, lease a job, replace segments, repeat."""

import asyncio

from penstock.contracts.commands import Done, LeaseJob, OutputSegment, PerItem, ReleaseJob, ReplacedRun, ReplaceExtents
from penstock.contracts.ids import new_segment_id
from penstock.contracts.queries.compaction import (
    LogsQuery,
    LogsView,
    SegmentExtentsQuery,
    SegmentExtentsView,
    SegmentsQuery,
    SegmentsView,
)
from penstock.contracts.queries.log import Plan, PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import SequencerRig, rig
from tests.unit.sequencer.sequencer_stored_rig import stored_rig

DEADLINE_S = 5


async def level_reached(built: SequencerRig) -> None:
    async with asyncio.timeout(60):
        await until(lambda: built.level > 0)


async def segments(built: SequencerRig) -> SegmentsView:
    return await built.client.query("segments", SegmentsQuery(0, 0, [], 100), SegmentsView)


async def planned(built: SequencerRig) -> ReplaceExtents:
    """A job over all segments of the one topic, with one run."""
    views = (await segments(built)).segments
    query = SegmentExtentsQuery(0, [view.row for view in views])
    answered = await built.client.query("segment_extents", query, SegmentExtentsView)
    extents = [extent for (extent,) in answered.extents]
    inputs = [number for place, extent in enumerate(extents) for number in (place, extent.position)]
    length = sum(extent.length for extent in extents)
    ends = (extents[0].base_offset, extents[-1].last_offset)
    newest = max(extent.max_timestamp for extent in extents)
    run = ReplacedRun(extents[0].topic_id, 0, *ends, inputs, 0, 64, length, newest)
    now_ms = built.clock.now_ms()
    output = OutputSegment(new_segment_id(now_ms, built.entropy.take(10)), 1, length + 200)
    return ReplaceExtents(now_ms, "job-1", [view.segment_id for view in views], [output], [run])


@in_virtual_time
async def test_a_job_is_planned_leased_and_done_through_any_sequencers() -> None:
    async with rig("a", "b") as two:
        await level_reached(two)
        commits = [two.commit("t", 3) for _ in range(4)]
        await two.client.command([two.create_topic("t"), *commits], deadline_s=DEADLINE_S)
        command = await planned(two)
        lease = LeaseJob(command.now_ms, command.job_id, "compactor-1", command.inputs, 60_000)
        assert await two.client.command([lease], deadline_s=DEADLINE_S) == [Done()]
        assert all(view.leased for view in (await segments(two)).segments)
        assert await two.client.command([command], deadline_s=DEADLINE_S) == [PerItem([Rejection.NONE])]
        await two.client.command([ReleaseJob(command.now_ms, command.job_id, "compactor-1")], deadline_s=DEADLINE_S)
        (left,) = (await segments(two)).segments
        assert (left.segment_id, left.level, left.leased) == (command.outputs[0].segment_id, 1, False)
        plan = await two.client.query("plan", PlanQuery(0, [PlanPartition(two.topic_id("t"), 0, 5, 1)], 1), Plan)
        (extent,) = plan.partitions[0].extents
        assert (extent.base_offset, extent.last_offset, extent.segment.level) == (0, 11, 1)
        (log,) = (await two.client.query("logs", LogsQuery(0, [two.topic_id("t")]), LogsView)).logs
        assert (log.high_watermark, log.dirty_bytes) == (12, 1_200)


@in_virtual_time
async def test_a_job_that_is_sent_again_through_another_sequencer_gets_the_first_outcome() -> None:
    async with rig("a", "b") as two:
        await level_reached(two)
        await two.client.command([two.create_topic("t"), two.commit("t"), two.commit("t")], deadline_s=DEADLINE_S)
        command, late = await planned(two), await planned(two)
        first = await two.client.command([command, late], deadline_s=DEADLINE_S)
        assert first == [PerItem([Rejection.NONE]), PerItem([Rejection.EXTENTS_CHANGED])]
        await two.kill("a")
        assert await two.client.command([command, late], deadline_s=DEADLINE_S) == first
        await two.kill("b")
        await two.start("c")
        assert await two.client.command([command, late], deadline_s=DEADLINE_S) == first


@in_virtual_time
async def test_a_replica_that_starts_from_a_snapshot_has_the_same_state_of_compaction() -> None:
    async with stored_rig("a") as one:
        built = one.rig
        await level_reached(built)
        await one.work(1)
        command = await planned(built)
        lease = LeaseJob(command.now_ms, "job-2", "compactor-1", [command.outputs[0].segment_id], 600_000)
        await built.client.command([command, lease], deadline_s=DEADLINE_S)
        await one.until_snapshots(2)
        await one.until_trimmed()
        second = await built.start("b")
        await until(lambda: second.applied == built.running["a"].applied)
        state = second.sequencer.replica.state
        assert state.replacements
        assert state.leases
        one.check(second)
        assert state.segments.contents == built.running["a"].sequencer.replica.state.segments.contents
        more = await planned(built)
        assert await built.client.command([more], deadline_s=DEADLINE_S) == [PerItem([Rejection.NONE])]
