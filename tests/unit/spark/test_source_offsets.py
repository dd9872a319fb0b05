"""Offsets in the format of Spark's Kafka source, and the limits of micro-batches."""

import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.errors import Invalid
from penstock.spark.source.offsets import LogBounds, Offsets, from_json, limit_offsets, parse_place, resolve, to_json

BOUNDS = {("a", 0): LogBounds(5, 20), ("a", 1): LogBounds(0, 7), ("b", 0): LogBounds(0, 0)}


def test_earliest_and_latest_are_the_bounds_of_each_log() -> None:
    assert resolve("earliest", BOUNDS, option="startingOffsets") == {("a", 0): 5, ("a", 1): 0, ("b", 0): 0}
    assert resolve("latest", BOUNDS, option="endingOffsets") == {("a", 0): 20, ("a", 1): 7, ("b", 0): 0}


def test_partitions_that_json_leaves_out_are_read_completely() -> None:
    place = parse_place("startingOffsets", '{"a": {"0": 9, "1": -1}}')
    assert resolve(place, BOUNDS, option="startingOffsets") == {("a", 0): 9, ("a", 1): 7, ("b", 0): 0}
    assert resolve(place, BOUNDS, option="endingOffsets") == {("a", 0): 9, ("a", 1): 7, ("b", 0): 0}
    place = parse_place("endingOffsets", '{"a": {"0": -2}}')
    assert resolve(place, BOUNDS, option="endingOffsets") == {("a", 0): 5, ("a", 1): 7, ("b", 0): 0}


def test_a_partition_that_does_not_exist_is_rejected() -> None:
    with pytest.raises(Invalid, match="names partition 2 of a"):
        resolve({"a": {2: 0}}, BOUNDS, option="startingOffsets")


keys = st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 11))
ranges = st.dictionaries(keys, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1)


@settings(deadline=None)
@given(ranges)
def test_offsets_survive_a_round_trip_through_a_checkpoint(ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
    offsets: Offsets = {key: first for key, (first, _) in ranges.items()}
    assert from_json(to_json(offsets)) == offsets
    assert str(to_json(offsets)) == str(to_json(dict(reversed(offsets.items()))))


@settings(deadline=None)
@given(ranges, st.integers(1, 3000))
def test_a_limited_micro_batch_advances_and_stays_within_its_limit(
    ranges: dict[tuple[str, int], tuple[int, int]], offsets_max: int
) -> None:
    start = {key: first for key, (first, _) in ranges.items()}
    end = {key: first + count for key, (first, count) in ranges.items()}
    limited = limit_offsets(start, end, offsets_max)
    assert all(start[key] <= limited[key] <= end[key] for key in end)
    taken = sum(limited[key] - start[key] for key in end)
    assert taken <= offsets_max
    assert taken > 0 or start == end


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 15))
def test_no_partition_waits_for_ever_with_any_limit_of_offsets(count: int, offsets_max: int) -> None:
    start = {("t", number): 0 for number in range(count)}
    end = {("t", number): 10**9 * (number + 1) for number in range(count)}
    for _ in range(2 * count):
        start = limit_offsets(start, end, offsets_max)
    assert min(start.values()) >= min(2 * offsets_max // max(count, offsets_max), 1)
