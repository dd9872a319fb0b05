"""Plans of key compaction: which logs are due, how far a job may go, and how it is divided into outputs."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.batches import NO_SEGMENT_ID
from penstock.contracts.configs.topics import CompactionConfigs, compaction_configs
from penstock.contracts.ids import new_segment_id
from penstock.contracts.queries.compaction import LogView
from penstock_compactor.keys.plan import KeyExtent, KeyInput, KeyJob, KeyLimits, key_plans

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
TOPIC = b"t" * 16
OTHER = b"u" * 16
LIMITS = KeyLimits(output_bytes_max=1_000, together_bytes_max=1_000, dirty_bytes_min=10, extents_max=50)
DEFAULTS = compaction_configs({})


def extent(
    number: int,
    length: int = 100,
    *,
    level: int = 1,
    age_ms: int = HOUR_MS,
    time_ms: int = NOW_MS,
    leased: bool = False,
) -> KeyExtent:
    """An extent of ten offsets, in a separate segment."""
    segment_id = new_segment_id(NOW_MS - age_ms, number.to_bytes(10, "big"))
    return KeyExtent(KeyInput(segment_id, level, 10 * number, 10 * number + 9, 64, length, time_ms), leased)


def extents(*lengths: int, **options: Any) -> list[KeyExtent]:
    return [extent(number, length, **options) for number, length in enumerate(lengths)]


def log(partition: int = 0, *, cleaned: int = 0, stable: int = 10**6, horizon_ms: int = -1, start: int = 0) -> LogView:
    return LogView(TOPIC, partition, start, stable, stable, cleaned, horizon_ms, 0, 0, -1)


def plans(
    of_log: Sequence[KeyExtent], settings: CompactionConfigs = DEFAULTS, limits: KeyLimits = LIMITS, **about_log: Any
) -> list[KeyJob]:
    return key_plans([log(**about_log)], {TOPIC: settings}, {(TOPIC, 0): of_log}, NOW_MS, limits)


def inputs_of(jobs: Sequence[KeyJob]) -> list[KeyInput]:
    return [each for job in jobs for output in job.outputs for run in output.runs for each in run.inputs]


def with_settings(**changes: Any) -> CompactionConfigs:
    return msgspec.structs.replace(DEFAULTS, **changes)


def test_a_log_that_was_never_compacted_is_due() -> None:
    of_log = extents(100, 200)
    (job,) = plans(of_log)
    assert inputs_of([job]) == [each.input for each in of_log]
    assert job.segment_ids == [each.input.segment_id for each in of_log]
    assert job.delete_retention_ms == 86_400_000


def test_topics_that_are_not_compacted_are_left_alone() -> None:
    assert key_plans([log()], {OTHER: DEFAULTS}, {(TOPIC, 0): extents(100)}, NOW_MS, LIMITS) == []


@pytest.mark.parametrize(("dirty_length", "is_due"), [(100, False), (101, True)])
def test_the_dirty_part_must_be_larger_than_its_ratio(dirty_length: int, is_due: bool) -> None:
    assert bool(plans(extents(100, dirty_length), cleaned=10)) is is_due


def test_a_log_that_is_clean_is_left_alone() -> None:
    assert plans(extents(100, 100), with_settings(dirty_ratio_min=0.0), cleaned=20) == []


@pytest.mark.parametrize(("time_ms", "is_due"), [(NOW_MS - HOUR_MS, False), (NOW_MS - HOUR_MS - 1, True)])
def test_a_record_does_not_stay_longer_than_the_greatest_lag(time_ms: int, is_due: bool) -> None:
    of_log = [extent(0, 10_000), extent(1, 1, time_ms=time_ms)]
    assert bool(plans(of_log, with_settings(max_lag_ms=HOUR_MS), cleaned=10)) is is_due


@pytest.mark.parametrize(("horizon_ms", "is_due"), [(-1, False), (NOW_MS, True), (NOW_MS + 1, False)])
def test_a_log_is_due_when_a_tombstone_may_be_removed(horizon_ms: int, is_due: bool) -> None:
    assert bool(plans(extents(100), cleaned=10, horizon_ms=horizon_ms)) is is_due


@pytest.mark.parametrize(("age_ms", "is_due"), [(4 * 60_000, False), (5 * 60_000, True)])
def test_a_few_dirty_bytes_wait_for_five_minutes(age_ms: int, is_due: bool) -> None:
    assert bool(plans(extents(9, age_ms=age_ms))) is is_due
    assert plans(extents(10, age_ms=age_ms)) != []


@pytest.mark.parametrize(
    "stop",
    [
        extent(1, leased=True),
        extent(1, level=0, age_ms=10 * 60_000 - 1),
        KeyExtent(msgspec.structs.replace(extent(1).input, last_offset=10**6)),
        KeyExtent(msgspec.structs.replace(extent(1).input, base_offset=11)),
    ],
    ids=["has another job", "was just flushed", "is not stable", "does not follow"],
)
def test_a_job_ends_before_the_first_extent_that_cannot_be_compacted_yet(stop: KeyExtent) -> None:
    assert inputs_of(plans([extent(0), stop, extent(2)])) == [extent(0).input]


def test_records_younger_than_the_least_lag_wait_and_all_records_after_them() -> None:
    of_log = [extent(0, time_ms=NOW_MS - 5), extent(1, time_ms=NOW_MS - 4), extent(2, time_ms=NOW_MS - 5)]
    assert inputs_of(plans(of_log, with_settings(min_lag_ms=5))) == [of_log[0].input]
    ahead = [extent(0, time_ms=NOW_MS + 1)]
    assert inputs_of(plans(ahead)) == [ahead[0].input], "without a least lag, clocks that are ahead do not matter"


def test_an_old_flushed_extent_is_compacted_without_a_merge() -> None:
    assert len(plans(extents(100, level=0, age_ms=10 * 60_000))) == 1


def test_a_log_with_a_missing_extent_waits() -> None:
    assert plans(extents(100, 100), cleaned=40) == []
    assert plans([extent(1), extent(2)], start=5) == [], "the extent that holds the log's start is missing"


@pytest.mark.parametrize("start", [10, 15, 19])
def test_a_log_that_starts_inside_an_extent_is_compacted_from_that_extent_on(start: int) -> None:
    of_log = [extent(1), extent(2)]
    assert inputs_of(plans(of_log, start=start)) == [each.input for each in of_log]


def test_a_log_of_markers_only_waits_because_a_job_needs_a_segment_to_lease() -> None:
    marker = KeyExtent(KeyInput(NO_SEGMENT_ID, 0, 0, 0, 0, 0, -1))
    assert plans([marker], horizon_ms=NOW_MS) == []
    stored = KeyExtent(msgspec.structs.replace(extent(0).input, base_offset=1))
    assert len(plans([marker, stored], horizon_ms=NOW_MS)) == 1


def test_a_leased_clean_extent_keeps_the_partition_waiting() -> None:
    assert plans([extent(0, leased=True), extent(1)], cleaned=10) == []


def test_small_partitions_share_an_output_and_a_large_one_has_its_own() -> None:
    logs = [log(number) for number in range(4)]
    of_logs = {(TOPIC, number): extents(length) for number, length in enumerate((600, 500, 400, 1_001))}
    jobs = key_plans(logs, {TOPIC: DEFAULTS}, of_logs, NOW_MS, LIMITS)
    partitions = [[[run.partition for run in output.runs] for output in job.outputs] for job in jobs]
    assert partitions == [[[3]], [[0], [1, 2]]]


def test_a_job_has_no_more_outputs_than_allowed() -> None:
    logs = [log(number) for number in range(5)]
    of_logs = {(TOPIC, number): extents(1_000) for number in range(5)}
    limits = msgspec.structs.replace(LIMITS, outputs_per_job_max=2)
    jobs = key_plans(logs, {TOPIC: DEFAULTS}, of_logs, NOW_MS, limits)
    assert [len(job.outputs) for job in jobs] == [2, 2, 1]


@given(st.lists(st.integers(1, 700), min_size=1, max_size=300), st.integers(1, 60))
def test_a_large_partition_is_cut_without_loss_within_all_limits(lengths: list[int], extents_max: int) -> None:
    of_log = extents(*lengths)
    limits = msgspec.structs.replace(LIMITS, extents_max=extents_max, dirty_bytes_min=0)
    (job,) = plans(of_log, limits=limits)
    assert inputs_of([job]) == [each.input for each in of_log]
    for output in job.outputs:
        (run,) = output.runs
        assert len(run.inputs) <= extents_max
        assert run.size_bytes <= 1_000
    assert len(job.outputs) == 1 or job.is_one_partition
