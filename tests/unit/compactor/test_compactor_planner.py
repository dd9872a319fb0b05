"""The choice of segments to merge: by count, bytes and age, flushed ones first, and at a bounded cost."""

from collections.abc import Collection

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.ids import SegmentId, TopicId, new_landed_id, new_segment_id
from penstock.contracts.queries.compaction import PlacedExtent, SegmentView
from penstock_compactor.jobs.values import Contents
from penstock_compactor.merge.outputs import tasks_of
from penstock_compactor.merge.tasks import MergeTask
from penstock_compactor.planning.planner import (
    MIB,
    MINUTE_MS,
    Choice,
    Kind,
    PlanLimits,
    choose,
    choose_landed,
    size_class,
)
from tests.testkit.loads.compaction_model import CompactionModel

NOW_MS = 1_700_000_000_000
LIMITS = PlanLimits(flushed_rest_ms=0)
KIB16 = 16 * 1024
A, B = bytes([1]) * 16, bytes([2]) * 16


def identifier(row: int, born_ms: int = NOW_MS) -> SegmentId:
    return new_segment_id(born_ms, row.to_bytes(10, "big"))


def segment(
    row: int, level: int = 0, *, size: int = 1000, extents: int = 1, age_ms: int = 0, leased: bool = False
) -> SegmentView:
    return SegmentView(row, identifier(row, NOW_MS - age_ms), level, size, size, extents, -1, leased)


def chosen(
    segments: list[SegmentView], jobs_max: int = 99, topics: dict[SegmentId, TopicId] | None = None
) -> list[Choice]:
    return choose(segments, topics or {}, now_ms=NOW_MS, limits=LIMITS, jobs_max=jobs_max)


def rows(choice: Choice) -> list[int]:
    return [each.row for each in choice.segments]


@pytest.mark.parametrize(
    ("count", "size", "age_ms", "is_due"),
    [
        (31, 1000, 0, False),
        (32, 1000, 0, True),
        (5, 60 * MIB, 0, True),
        (3, 60 * MIB, 0, False),
        (2, 1000, 2 * MINUTE_MS, True),
        (2, 1000, 2 * MINUTE_MS - 1, False),
        (1, 1000, 99 * MINUTE_MS, False),
    ],
)
def test_flushed_segments_are_merged_by_count_by_bytes_or_by_age(
    count: int, size: int, age_ms: int, is_due: bool
) -> None:
    assert bool(chosen([segment(row, size=size, age_ms=age_ms) for row in range(count)])) is is_due


@pytest.mark.parametrize(
    ("count", "age_ms", "is_due"), [(32, 14_999, False), (32, 15_000, True), (31, 15_000, False), (1_001, 0, True)]
)
def test_many_flushed_segments_wait_a_moment_for_more_unless_a_job_is_full(
    count: int, age_ms: int, is_due: bool
) -> None:
    waiting = [segment(row, age_ms=age_ms) for row in range(count)]
    assert bool(choose(waiting, {}, now_ms=NOW_MS, limits=PlanLimits())) is is_due


@pytest.mark.parametrize(("size", "needs_spark"), [(4 * MIB, False), (5 * MIB, True)])
def test_a_large_job_runs_on_spark_and_waits_for_it(size: int, needs_spark: bool) -> None:
    waiting = [segment(row, size=size) for row in range(32)]
    (job,) = chosen(waiting)
    assert job.needs_spark(LIMITS) is needs_spark
    without = choose(waiting, {}, now_ms=NOW_MS, limits=LIMITS, jobs_max=9, has_spark=False)
    assert without == ([] if needs_spark else [job])
    assert not Choice(Kind.EXPRESS, waiting).needs_spark(LIMITS)


def express(row: int, level: int = 0, age_ms: int = 20_000, *, extents: int = 1, leased: bool = False) -> SegmentView:
    segment_id = new_landed_id(NOW_MS - age_ms, row.to_bytes(10, "little"))
    return SegmentView(row, segment_id, level, 1000, 1000, extents, -1, leased)


def express_rows(segments: list[SegmentView], busy: Collection[SegmentId] = ()) -> list[int]:
    job = choose_landed(segments, now_ms=NOW_MS, limits=LIMITS, busy=busy)
    return [] if job is None else rows(job)


@pytest.mark.parametrize(("age_ms", "is_due"), [(19_999, False), (20_000, True)])
def test_express_segments_leave_the_landing_store_by_age_also_a_single_one(age_ms: int, is_due: bool) -> None:
    assert express_rows([express(7, age_ms=age_ms)]) == [7] * is_due
    assert express_rows([express(7, age_ms=age_ms), express(8, age_ms=0)]) == [7, 8] * is_due


def test_a_job_of_express_segments_is_bounded_and_takes_the_oldest() -> None:
    assert express_rows([express(row, age_ms=0) for row in range(1_500)]) == [*range(1_000)], "it is full"
    assert express_rows([express(row, extents=6_000) for row in range(9)]) == [0, 1, 2]


def test_only_waiting_express_segments_are_moved_and_no_other_job_takes_them() -> None:
    waiting = [express(0, leased=True), express(1, extents=0), express(2, level=1), express(3), express(4), segment(5)]
    assert express_rows(waiting, busy={waiting[3].segment_id}) == [4]
    assert chosen([express(row) for row in range(99)]) == []
    assert [rows(job) for job in chosen([express(row, 1) for row in range(16)])] == [[*range(16)]]


def test_many_waiting_segments_become_several_jobs_oldest_first() -> None:
    waiting = [segment(row, size=8 * MIB) for row in range(70)]
    jobs = chosen(waiting)
    assert [len(job.segments) for job in jobs] == [32, 32], "the six last segments wait for more"
    assert rows(jobs[0]) == list(range(32))


def test_a_job_replaces_no_more_extents_than_one_command_may() -> None:
    jobs = chosen([segment(row, extents=6000) for row in range(64)])
    assert {sum(each.live_extents for each in job.segments) for job in jobs} == {18_000}


def test_segments_with_more_extents_than_a_command_may_replace_are_merged_two_by_two() -> None:
    assert [rows(job) for job in chosen([segment(row, extents=25_000) for row in range(4)])] == [[0, 1]]


def test_leased_dead_empty_and_busy_segments_are_not_chosen() -> None:
    waiting = [segment(row) for row in range(34)]
    waiting[3] = segment(3, leased=True)
    waiting[4] = msgspec.structs.replace(waiting[4], dead_since_ms=NOW_MS)
    waiting[5] = segment(5, extents=0)
    busy = {waiting[6].segment_id}
    jobs = choose([*waiting, *[segment(row) for row in range(34, 40)]], {}, now_ms=NOW_MS, limits=LIMITS, busy=busy)
    assert [set(range(40)) - set(rows(job)) for job in jobs] == [{3, 4, 5, 6}]


def test_flushed_segments_come_first_then_the_queue_that_saves_most_reads() -> None:
    cheap = [segment(row, 1, size=MIB // 2, extents=100) for row in range(16)]
    dear = [segment(row, 1, size=100 * MIB, extents=100) for row in range(100, 116)]
    flushed = [segment(row) for row in range(200, 232)]
    kinds = [(job.kind, job.segments[0].row) for job in chosen([*dear, *cheap, *flushed])]
    assert kinds == [(Kind.FLUSHED, 200), (Kind.MIXED, 0), (Kind.MIXED, 100)]


def test_large_and_small_segments_wait_in_separate_queues() -> None:
    small = [segment(row, 1, size=1000) for row in range(15)]
    large = [segment(row, 1, size=100 * MIB) for row in range(15, 30)]
    assert chosen([*small, *large]) == []
    assert [rows(job) for job in chosen([*small, *large, segment(99, 1, size=2000)])] == [[*range(15), 99]]


def test_full_segments_are_never_merged_again() -> None:
    assert chosen([segment(row, 1, size=LIMITS.full_bytes) for row in range(99)]) == []


def test_segments_of_one_topic_are_merged_only_with_each_other() -> None:
    waiting = [segment(row, 2, size=100 * MIB) for row in range(32)]
    topics = {each.segment_id: bytes([each.row % 2]) * 16 for each in waiting}
    assert [{row % 2 for row in rows(job)} for job in chosen(waiting, topics=topics)] == [{0}, {1}]
    topics.popitem()
    assert len(chosen(waiting, topics=topics)) == 1, "a segment of an unknown topic was chosen"


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 600 * MIB), st.integers(0, 30_000)), max_size=80),
    st.integers(0, 5),
)
def test_no_segment_is_in_two_jobs_and_jobs_are_bounded(found: list[tuple[int, int, int]], jobs_max: int) -> None:
    segments = [segment(row, level, size=size, extents=count) for row, (level, size, count) in enumerate(found)]
    jobs = chosen(segments, jobs_max, {each.segment_id: bytes(16) for each in segments})
    taken = [row for job in jobs for row in rows(job)]
    assert len(jobs) <= jobs_max and len(taken) == len(set(taken))
    for job in jobs:
        assert rows(job) == sorted(rows(job)) and len(job.segments) > 1
        assert len(job.segments) == 2 or sum(each.live_extents for each in job.segments) <= LIMITS.job_extents_max


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 0), (KIB16 - 1, 0), (KIB16, 1), (16 * KIB16 - 1, 1), (16 * KIB16, 2)]
)
def test_each_size_class_is_sixteen_times_the_one_below_it(size: int, expected: int) -> None:
    assert size_class(size) == expected


# Flushes, milliseconds between them, and bytes of each topic in each.
LOADS = {
    "much of one topic": (600, 250, [8 * MIB]),
    "much of many topics": (600, 250, [MIB // 2] * 16),
    "little of many topics": (2000, 250, [500] * 16),
    "one topic that is much more than the others": (1200, 250, [7 * MIB, *[1000] * 8]),
    "a record now and then": (1500, 60_000, [300]),
    "hardly any record": (300, 600_000, [300]),
}


@pytest.mark.parametrize("load", LOADS)
def test_the_costs_of_writes_and_reads_stay_within_their_limits(load: str) -> None:
    """At every load, each byte is written a few times, and a full read of a partition needs few ranges."""
    flushes, pause_ms, sizes = LOADS[load]
    model = CompactionModel(LIMITS, NOW_MS)
    for _ in range(flushes):
        model.flush({(bytes([number]) * 16, 0): size for number, size in enumerate(sizes)})
        model.now_ms += pause_ms
        model.compact()
    model.now_ms += 61 * MINUTE_MS
    model.compact()
    amplification = model.written_bytes / model.flushed_bytes
    ranges = max(len(model.ranges(place)) for place in model.ends)
    assert amplification <= (6 if model.flushed_bytes < MIB else 4), amplification
    assert ranges <= 64 + model.flushed_bytes // LIMITS.full_bytes


def test_segments_with_more_partitions_than_a_command_replaces_are_not_merged_for_ever() -> None:
    """Three segments with different partitions. Two of them have more partitions than one command can have."""
    model = CompactionModel(msgspec.structs.replace(LIMITS, job_extents_max=20, flushed_count=2), NOW_MS)
    for first in (0, 12, 24):
        for _ in range(2):
            model.flush({(A, partition): 100 for partition in range(first, first + 12)})
    model.compact()
    assert all(len(model.ranges(place)) == 1 for place in model.ends)
    assert model.written_bytes <= 4 * model.flushed_bytes


def placed(topic_id: TopicId, partition: int, base: int, last: int, length: int = 100) -> PlacedExtent:
    return PlacedExtent(topic_id, partition, base, last, 0, length, 0)


def tasks(
    kind: Kind, extents: list[list[PlacedExtent]], limits: PlanLimits = LIMITS, compacted: tuple[TopicId, ...] = ()
) -> list[MergeTask]:
    level = {Kind.FLUSHED: 0, Kind.MIXED: 1, Kind.TOPIC: 2}[kind]
    choice = Choice(kind, [segment(row, level) for row in range(len(extents))])
    return tasks_of(choice, Contents(extents), compacted=compacted, limits=limits)


def test_neighbours_become_one_run_and_a_gap_divides_them() -> None:
    (task,) = tasks(Kind.FLUSHED, [[placed(A, 0, 0, 4), placed(A, 1, 0, 1)], [placed(A, 0, 5, 9), placed(A, 1, 3, 4)]])
    found = [(run.partition, [(each.segment, each.base_offset) for each in run.extents]) for run in task.runs]
    assert found == [(0, [(0, 0), (1, 5)]), (1, [(0, 0)]), (1, [(1, 3)])]
    assert task.level == 1


def test_a_topic_with_enough_bytes_gets_a_separate_output_and_the_others_share_one() -> None:
    much = LIMITS.topic_bytes_min
    found = tasks(Kind.MIXED, [[placed(A, 0, 0, 4, much), placed(B, 0, 0, 1)], [placed(bytes(16), 0, 5, 9)]])
    assert [(task.level, {run.topic_id for run in task.runs}) for task in found] == [(2, {A}), (1, {B, bytes(16)})]
    assert [len(task.segments) for task in found] == [1, 2], "a task names only the segments that it reads"


def test_topics_that_are_compacted_by_key_stay_in_level_one() -> None:
    (task,) = tasks(Kind.MIXED, [[placed(A, 0, 0, 4, LIMITS.topic_bytes_min)]], compacted=(A,))
    assert task.level == 1


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 3), st.integers(1, 9)), max_size=12), max_size=6
    ),
    st.sampled_from([Kind.FLUSHED, Kind.MIXED, Kind.TOPIC]),
)
def test_every_extent_is_in_exactly_one_task(found: list[list[tuple[TopicId, int, int]]], kind: Kind) -> None:
    limits = PlanLimits(output_bytes_max=20, job_extents_max=3, topic_bytes_min=25)
    ends: dict[tuple[TopicId, int], int] = {}
    extents = []
    for of_segment in found:
        extents.append([placed(topic_id, partition, 0, 0, length) for topic_id, partition, length in of_segment])
        for number, each in enumerate(extents[-1]):
            end = ends.get((each.topic_id, each.partition), 0)
            ends[each.topic_id, each.partition] = end + 1
            extents[-1][number] = msgspec.structs.replace(each, base_offset=end, last_offset=end)
    outputs = tasks(kind, extents, limits)
    seen = []
    for task in outputs:
        assert task.extent_count <= limits.job_extents_max
        assert task.length <= limits.output_bytes_max
        keys = [(run.topic_id, run.partition, run.extents[0].base_offset) for run in task.runs]
        assert keys == sorted(keys)
        assert task.level == 1 or len({run.topic_id for run in task.runs}) == 1
        for run in task.runs:
            offsets = [each.base_offset for each in run.extents]
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
            seen += [(run.topic_id, run.partition, offset) for offset in offsets]
    assert sorted(seen) == sorted((*place, offset) for place, end in ends.items() for offset in range(end))
