"""Compacted extents replace exactly the extents that they were made of, once or not at all."""

from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    DeleteTopic,
    LogOffset,
    OutputSegment,
    PerItem,
    RaiseLevel,
    Rejected,
    ReplaceExtents,
    Tick,
    UndeleteTopic,
)
from penstock.contracts.ids import new_segment_id
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.queries.compaction import SegmentExtentsQuery
from penstock.contracts.queries.log import LATEST, MAX_TIMESTAMP, OffsetOf, OffsetsQuery, PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits, LogLimits, MaintenanceLimits
from penstock_sequencer.core.state.segments import NOT_DEAD
from tests.unit.sequencer.core.core_world import START_MS, World, batch, topic_id

NONE, CHANGED, INVALID = Rejection.NONE, Rejection.EXTENTS_CHANGED, Rejection.INVALID_REQUEST


@pytest.fixture
def world() -> World:
    """Topic 1 has five extents of 10 records in partition 0; topic 2 shares each of these segments."""
    world = World()
    world.topic("t")
    world.topic("u", number=2)
    for number in range(5):
        world.do(world.segment_command((1, 0, [batch(10, 100, START_MS + number)]), (2, 0, [batch(1, 50)])))
    return world


def rejections(world: World, command: ReplaceExtents) -> list[Rejection]:
    outcome = world.do(command)
    assert isinstance(outcome, PerItem), outcome
    return outcome.rejections


def rejected(world: World, command: ReplaceExtents) -> Rejection:
    """The rejection of the whole command, which then changes nothing."""
    before = encode_state(world.state)
    outcome = world.do(command)
    world.state.sequence -= 1
    assert isinstance(outcome, Rejected), outcome
    assert encode_state(world.state) == before
    return outcome.rejection


def with_run(command: ReplaceExtents, place: int = 0, **changes: Any) -> ReplaceExtents:
    runs = list(command.runs)
    runs[place] = msgspec.structs.replace(runs[place], **changes)
    return msgspec.structs.replace(command, runs=runs)


def with_output(command: ReplaceExtents, **changes: Any) -> ReplaceExtents:
    return msgspec.structs.replace(command, outputs=[msgspec.structs.replace(command.outputs[0], **changes)])


def dead(world: World) -> list[bool]:
    return [each != NOT_DEAD for each in world.state.segments.dead_since_ms]


def test_contiguous_extents_become_one(world: World) -> None:
    assert rejections(world, world.job((1, 0, 1, 4))) == [NONE]
    assert world.extents() == [(0, 9, 0), (10, 39, 1), (40, 49, 0)]
    assert world.state.extent_count == 3 + 5


def test_several_runs_of_a_partition_are_replaced_together(world: World) -> None:
    command = world.job((1, 0, 0, 2), (2, 0, 0, 5), (1, 0, 3, 5))
    assert rejections(world, command) == [NONE, NONE, NONE]
    assert world.extents() == [(0, 19, 1), (20, 29, 0), (30, 49, 1)]
    assert world.extents(2) == [(0, 4, 1)]


def test_runs_come_in_any_order_of_offsets(world: World) -> None:
    assert rejections(world, world.job((1, 0, 3, 5), (1, 0, 0, 2))) == [NONE, NONE]
    assert world.extents() == [(0, 19, 1), (20, 29, 0), (30, 49, 1)]


def test_one_extent_alone_moves_to_another_segment(world: World) -> None:
    assert rejections(world, world.job((1, 0, 2, 3), level=2)) == [NONE]
    assert world.extents()[2] == (20, 29, 2)


def test_inputs_without_live_extents_are_dead_and_others_are_not(world: World) -> None:
    world.wait(5_000)
    world.do(world.job((1, 0, 0, 3), (2, 0, 0, 2)))
    assert dead(world) == [True, True, False, False, False, False]
    assert world.state.segments.dead_since_ms[0] == world.now_ms


def test_compacted_extents_can_be_compacted_again(world: World) -> None:
    world.do(world.job((1, 0, 0, 3)))
    assert rejections(world, world.job((1, 0, 0, 3), (2, 0, 0, 5), level=2)) == [NONE, NONE]
    assert world.extents() == [(0, 49, 2)]
    assert dead(world) == [True] * 6 + [False]


def test_only_the_run_whose_extents_changed_is_rejected(world: World) -> None:
    late = world.job((1, 0, 0, 3), (2, 0, 0, 5))
    assert rejections(world, world.job((1, 0, 2, 4))) == [NONE]
    assert rejections(world, late) == [CHANGED, NONE]
    assert world.extents() == [(0, 9, 0), (10, 19, 0), (20, 39, 1), (40, 49, 0)]
    assert world.state.segments.live_bytes[-1] == late.runs[1].length


def test_of_two_jobs_over_the_same_extents_the_second_output_is_dead_at_once(world: World) -> None:
    first, second = world.job((1, 0, 0, 5)), world.job((1, 0, 0, 5))
    assert (rejections(world, first), rejections(world, second)) == ([NONE], [CHANGED])
    assert dead(world)[-2:] == [False, True]


def test_the_same_command_again_gets_the_first_outcome_and_changes_nothing(world: World) -> None:
    late = world.job((1, 0, 0, 3), (2, 0, 0, 5))
    world.do(world.job((1, 0, 2, 4)))
    first = world.do(late)
    world.do(world.job((2, 0, 0, 1), level=2))
    before = encode_state(world.state)
    assert world.do(late) == first == PerItem([CHANGED, NONE])
    world.state.sequence -= 1
    assert encode_state(world.state) == before


def test_the_outcome_is_remembered_as_long_as_the_command_could_be_accepted(world: World) -> None:
    command = world.job((1, 0, 0, 3))
    world.do(command)
    world.wait(DEFAULT_LIMITS.log.segment_commit_age_max_ms)
    assert rejections(world, command) == [NONE]
    world.wait(1)
    assert not world.state.replacements
    assert rejected(world, command) == Rejection.SEGMENT_TOO_OLD


def test_other_runs_for_a_remembered_output_are_rejected(world: World) -> None:
    command = world.job((1, 0, 0, 3))
    world.do(command)
    assert rejected(world, msgspec.structs.replace(command, runs=command.runs * 2)) == INVALID


def test_an_id_belongs_to_one_segment_only(world: World) -> None:
    committed = world.segment_command((1, 0, [batch()]))
    world.do(committed)
    command = world.job((1, 0, 0, 3))
    assert rejected(world, with_output(command, segment_id=committed.segment_id)) == INVALID
    world.do(command)
    again = msgspec.structs.replace(committed, segment_id=command.outputs[0].segment_id)
    assert world.do(again).rejection == INVALID
    second = world.job((1, 0, 1, 2))
    assert rejected(world, msgspec.structs.replace(second, outputs=[*second.outputs, *command.outputs])) == INVALID


def test_an_output_has_the_age_limit_of_a_flushed_segment(world: World) -> None:
    old = world.job((1, 0, 0, 2), born_ms=world.now_ms - DEFAULT_LIMITS.log.segment_commit_age_max_ms - 1)
    assert rejected(world, old) == Rejection.SEGMENT_TOO_OLD
    ahead = world.job((1, 0, 0, 2), born_ms=world.now_ms + DEFAULT_LIMITS.log.segment_commit_age_max_ms + 1)
    assert rejected(world, ahead) == INVALID
    just = world.job((1, 0, 0, 2), born_ms=world.now_ms - DEFAULT_LIMITS.log.segment_commit_age_max_ms)
    assert rejections(world, just) == [NONE]


@pytest.mark.parametrize("level", [-1, 0, 10, 2**63])
def test_an_invalid_level_of_a_compacted_segment_is_rejected(world: World, level: int) -> None:
    assert rejected(world, world.job((1, 0, 0, 2), level=level)) == INVALID


def test_impossible_outputs_are_rejected(world: World) -> None:
    command = world.job((1, 0, 0, 2))
    assert rejected(world, msgspec.structs.replace(command, outputs=[])) == INVALID
    assert rejected(world, msgspec.structs.replace(command, outputs=command.outputs * 2)) == INVALID
    assert rejected(world, with_output(command, segment_id=b"short")) == INVALID
    assert rejected(world, with_output(command, size_bytes=2**32)) == INVALID
    assert rejected(world, with_output(command, size_bytes=-1)) == INVALID
    many = [
        OutputSegment(new_segment_id(world.now_ms, b"x" * 8 + each.to_bytes(2, "big")), 1, 9)
        for each in range(DEFAULT_LIMITS.maintenance.outputs_max + 1)
    ]
    assert rejected(world, msgspec.structs.replace(command, outputs=many)) == INVALID
    assert rejected(world, msgspec.structs.replace(command, job_id="j" * 257)) == INVALID


def test_more_extents_than_one_command_may_replace_are_rejected(world: World) -> None:
    command = world.job((1, 0, 0, 2))
    too_many = DEFAULT_LIMITS.maintenance.replaced_extents_max + 1
    assert rejected(world, with_run(command, inputs=[0, 0] * too_many)) == INVALID
    assert rejected(world, msgspec.structs.replace(command, runs=command.runs * too_many)) == INVALID
    assert rejected(world, msgspec.structs.replace(command, inputs=[b""] * too_many)) == INVALID


def test_compaction_continues_at_the_limit_of_extents(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(extents_max=world.state.extent_count)))
    assert world.do(world.segment_command((1, 0, [batch()]))).rejection == Rejection.OVERLOADED
    assert rejections(world, world.job((1, 0, 0, 2))) == [NONE]
    world.produce(batch())


@pytest.mark.parametrize(
    "limits",
    [
        Limits(log=LogLimits(segments_max=5)),
        Limits(log=LogLimits(remembered_commits_max=5)),
        Limits(maintenance=MaintenanceLimits(remembered_replacements_max=0)),
    ],
)
def test_the_number_of_outputs_is_limited(world: World, limits: Limits) -> None:
    command = world.job((1, 0, 0, 2))
    world.use_limits(limits)
    assert rejected(world, command) == Rejection.OVERLOADED
    world.use_limits(DEFAULT_LIMITS)
    assert rejections(world, command) == [NONE]


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": 11},
        {"base_offset": 9},
        {"base_offset": 0},
        {"base_offset": -1},
        {"base_offset": 2**63},
        {"last_offset": 28},
        {"last_offset": 30},
        {"last_offset": 39},
        {"inputs": [0, 0]},
        {"inputs": [0, 0, 1, 0, 1, 0]},
        {"inputs": [1, 0, 0, 0]},
        {"inputs": [0, 0, 1, 1]},
        {"inputs": [0, 0, 0, 0]},
        {"inputs": [0, 0, 1, 2**63]},
    ],
)
def test_only_the_planned_extents_are_replaced(world: World, changes: dict[str, Any]) -> None:
    before = world.extents()
    assert rejections(world, with_run(world.job((1, 0, 1, 3)), **changes)) == [CHANGED]
    assert world.extents() == before
    assert dead(world)[-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": []},
        {"inputs": [0, 0, 1]},
        {"inputs": [0, 0, 2, 0]},
        {"inputs": [-1, 0, 1, 0]},
        {"output": 1},
        {"output": -1},
        {"position": -1},
        {"position": 1},
        {"length": 0},
        {"length": -5},
        {"length": 201},
        {"length": 2**63},
        {"max_timestamp": 2**63},
        {"delete_horizon_ms": 2**63},
    ],
)
def test_a_run_that_does_not_fit_into_its_output_is_rejected(world: World, changes: dict[str, Any]) -> None:
    assert rejections(world, with_run(world.job((1, 0, 1, 3)), **changes)) == [INVALID]


def test_runs_of_an_output_do_not_share_bytes(world: World) -> None:
    command = with_run(world.job((1, 0, 0, 2), (2, 0, 0, 2)), 1, position=199)
    assert rejections(world, command) == [NONE, INVALID]


def test_the_same_extents_are_not_replaced_twice_by_one_command(world: World) -> None:
    assert rejections(world, world.job((1, 0, 0, 2), (1, 0, 0, 2), (1, 0, 1, 3), (1, 0, 2, 4))) == [
        NONE,
        CHANGED,
        CHANGED,
        NONE,
    ]
    assert world.extents() == [(0, 19, 1), (20, 39, 1), (40, 49, 0)]


def test_partitions_that_do_not_exist_are_unknown(world: World) -> None:
    command = world.job((1, 0, 0, 2), (2, 0, 0, 2), (2, 0, 2, 4))
    command = with_run(with_run(command, 1, partition=1), 2, partition=-1)
    command = with_run(command, 0, topic_id=topic_id(9))
    assert rejections(world, command) == [Rejection.UNKNOWN_TOPIC] * 3


def test_a_deleted_topic_does_not_prevent_the_compaction_of_others(world: World) -> None:
    command = world.job((1, 0, 0, 5), (2, 0, 0, 5))
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert rejections(world, command) == [Rejection.UNKNOWN_TOPIC, NONE]
    assert dead(world) == [True] * 5 + [False]


def test_a_recoverable_topic_is_compacted_like_any_other(world: World) -> None:
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    window = ConfigChange("penstock.undelete.window.ms", ConfigOperation.SET, "60000")
    world.do(AlterConfigs(world.now_ms, "", [window]))
    command = world.job((1, 0, 0, 5), (2, 0, 0, 5))
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert rejections(world, with_run(command, partition=1)) == [Rejection.UNKNOWN_TOPIC, NONE]
    recoverable = world.state.recoverable[topic_id(1)].topic.partitions[0]
    live = [world.state.segments.numbers[slot] for slot in recoverable.extents.segments]
    view = queries.segment_extents(world.state, SegmentExtentsQuery(0, live))
    assert [[each.base_offset for each in segment] for segment in view.extents] == [[0], [10], [20], [30], [40]]
    world.do(UndeleteTopic(world.now_ms, "t", bytes(16)))
    second = world.job((1, 0, 0, 5))
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert rejections(world, second) == [NONE]
    assert dead(world)[:5] == [True] * 5
    world.do(UndeleteTopic(world.now_ms, "t", bytes(16)))
    assert world.extents() == [(0, 49, 1)]


def test_compaction_leaves_a_segment_live_while_a_deleted_topic_has_extents_in_it(world: World) -> None:
    extents = world.partition(1).extents
    many = 2 * DEFAULT_LIMITS.log.extents_dropped_per_step_max
    for _ in range(many):  # a log that is too long to be dropped at once
        extents.append(extents.last_offsets[-1] + 1, extents.last_offsets[-1] + 1, 4, 0, 1, START_MS)
    world.partition(1).high_watermark += many
    world.partition(1).size_bytes += many
    world.state.segments.gain(4, many, many)
    world.state.extent_count += many
    command = world.job((2, 0, 0, 5))
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert world.state.pending_delete
    assert rejections(world, command) == [NONE]
    assert dead(world)[:5] == [True, True, True, True, False]
    world.do(Tick(world.now_ms))
    world.do(Tick(world.now_ms))
    assert dead(world)[:5] == [True] * 5


def test_extents_are_announced_before_they_can_be_compacted(world: World) -> None:
    committed = world.segment_command((1, 0, [batch(10, 100)]))
    early, late = world.job((1, 0, 4, 5)), world.job((1, 0, 4, 5))
    both = {"last_offset": 59, "inputs": [0, 0, 1, 0]}
    early, late = (
        with_run(msgspec.structs.replace(each, inputs=[*each.inputs, committed.segment_id]), **both)
        for each in (early, late)
    )
    (outcomes,) = world.entry([committed, early])
    assert outcomes[1] == PerItem([CHANGED])
    assert world.effects is not None
    assert [extent.base_offset for extent in world.effects.partitions[0].extents] == [50]
    assert rejections(world, late) == [NONE]


def test_a_compaction_is_not_announced(world: World) -> None:
    world.do(world.job((1, 0, 0, 5)))
    assert world.effects is not None
    assert world.effects.partitions == []


def test_plans_and_times_lead_to_compacted_extents(world: World) -> None:
    world.do(world.job((1, 0, 1, 4)))
    (plan,) = queries.plan(world.state, PlanQuery(0, [PlanPartition(topic_id(1), 0, 25, 10_000)], 10_000)).partitions
    assert [(each.base_offset, each.last_offset, each.segment.level) for each in plan.extents] == [
        (10, 39, 1),
        (40, 49, 0),
    ]
    assert plan.extents[0].segment.writer == ""
    wanted = [OffsetOf(topic_id(1), 0, each) for each in (START_MS + 2, MAX_TIMESTAMP, LATEST)]
    found = queries.offsets(world.state, OffsetsQuery(0, wanted)).partitions
    assert found[0].extent is not None
    assert found[0].extent.base_offset == 10
    assert found[1].offset == 49
    assert found[2].offset == 50


def test_a_newest_timestamp_that_key_compaction_removed_is_not_found(world: World) -> None:
    world.produce(batch(1, 100, START_MS + 1_000))
    world.produce(batch(1, 100, START_MS + 10))
    world.do(with_run(world.job((1, 0, 4, 6)), max_timestamp=START_MS + 4))
    wanted = [OffsetOf(topic_id(1), 0, each) for each in (MAX_TIMESTAMP, START_MS + 5, START_MS + 11)]
    found = queries.offsets(world.state, OffsetsQuery(0, wanted)).partitions
    assert found[0].offset == 51
    assert found[1].extent is not None
    assert found[1].extent.base_offset == 51
    assert found[2].extent is None


def cleaned(world: World, *spans: tuple[int, int], horizon_ms: int = -1) -> list[Rejection]:
    command = world.job(*((1, 0, *span) for span in spans), cleaned=True, delete_horizon_ms=horizon_ms)
    return rejections(world, command)


def progress(world: World) -> tuple[int, int]:
    return world.partition().cleaned_offset, world.partition().delete_horizon_ms


def test_a_pass_of_key_compaction_begins_at_the_logs_start(world: World) -> None:
    assert cleaned(world, (1, 3)) == [CHANGED]
    assert cleaned(world, (0, 2)) == [NONE]
    assert progress(world) == (20, -1)


def test_extents_before_the_logs_start_are_not_merged_with_later_ones(world: World) -> None:
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    world.use_limits(Limits(log=LogLimits(extents_dropped_per_command_max=1)))
    with_deleted, without = world.job((1, 0, 1, 4)), world.job((1, 0, 2, 4))
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 25)]))
    assert world.extents()[0] == (10, 19, 0), "this extent waits to be dropped"
    assert rejections(world, with_deleted) == [CHANGED]
    assert rejections(world, without) == [NONE]
    world.wait(1)
    assert world.extents() == [(20, 39, 1), (40, 49, 0)]


def test_a_pass_begins_with_the_extent_that_holds_the_logs_start(world: World) -> None:
    """DeleteRecords does not move the start of a pass into the middle of an extent."""
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    assert cleaned(world, (0, 2), horizon_ms=7_000) == [NONE]
    assert progress(world) == (20, 7_000)
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 35)]))
    assert world.extents() == [(30, 39, 0), (40, 49, 0)]
    assert cleaned(world, (1, 2)) == [CHANGED]
    assert cleaned(world, (0, 1)) == [NONE]
    assert progress(world) == (40, -1), "deleted tombstones do not count any more"


def test_a_pass_continues_where_it_ended_in_this_command_or_another(world: World) -> None:
    assert cleaned(world, (0, 1), (1, 2)) == [NONE, NONE]
    assert cleaned(world, (3, 4)) == [CHANGED]
    assert cleaned(world, (2, 4)) == [NONE]
    assert progress(world) == (40, -1)


def test_a_pass_ends_at_a_rejected_run(world: World) -> None:
    planned = world.job((1, 0, 0, 1), (1, 0, 1, 2), (1, 0, 2, 3), cleaned=True)
    world.do(world.job((1, 0, 1, 2)))  # another job rewrote the middle
    assert rejections(world, planned) == [NONE, CHANGED, CHANGED]
    assert progress(world) == (10, -1)


def test_a_pass_with_a_rejected_run_does_not_continue_another_pass_at_the_same_offset(world: World) -> None:
    planned = world.job((1, 0, 0, 1), (1, 0, 1, 2), cleaned=True)
    assert cleaned(world, (0, 1)) == [NONE]
    assert rejections(world, planned) == [CHANGED, CHANGED]
    assert progress(world) == (10, -1)


def test_the_next_pass_counts_when_it_reaches_the_end_of_the_one_before(world: World) -> None:
    assert cleaned(world, (0, 2), (2, 4), horizon_ms=7_000) == [NONE, NONE]
    assert progress(world) == (40, 7_000)
    assert cleaned(world, (0, 1)) == [NONE]
    assert progress(world) == (40, 7_000)  # extents after the new run may still hold the tombstone
    assert cleaned(world, (1, 3)) == [NONE]
    assert progress(world) == (50, -1)


def test_the_log_has_the_first_horizon_of_a_pass(world: World) -> None:
    command = world.job((1, 0, 0, 1), (1, 0, 1, 2), (1, 0, 2, 3), cleaned=True)
    for place, horizon_ms in enumerate((9_000, -1, 8_000)):
        command = with_run(command, place, delete_horizon_ms=horizon_ms)
    assert rejections(world, command) == [NONE] * 3
    assert progress(world) == (30, 8_000)


def test_a_merge_is_no_cleaning(world: World) -> None:
    world.do(world.job((1, 0, 0, 3), delete_horizon_ms=5))
    assert progress(world) == (0, -1)
