"""Predicates narrow the read records, but never leave out a record that they keep."""

from datetime import UTC, datetime

from penstock.spark.source.filters import Scope, scope_of


class Filter:
    """A filter as in PySpark: one class per kind, with a column's path and a value."""

    def __init__(self, column: str, value: object) -> None:
        self.attribute = tuple(column.split("."))
        self.value = value


class EqualTo(Filter): ...


class EqualNullSafe(Filter): ...


class GreaterThan(Filter): ...


class GreaterThanOrEqual(Filter): ...


class LessThan(Filter): ...


class LessThanOrEqual(Filter): ...


class In(Filter): ...


class StringStartsWith(Filter): ...


def test_the_scope_has_topics_and_partitions_that_all_predicates_allow() -> None:
    scope = scope_of([In("topic", ["a", "b"]), EqualTo("topic", "b"), In("partition", [1, 2, None])])
    assert scope == Scope(topics=frozenset({"b"}), partitions=frozenset({1, 2}))
    assert scope.has_topic("b")
    assert not scope.has_topic("a")
    assert scope.has_partition(2)
    assert not scope.has_partition(0)


def test_offsets_are_bounded_from_both_sides() -> None:
    assert scope_of([GreaterThan("offset", 4), LessThanOrEqual("offset", 9)]) == Scope(offset_min=5, offset_end=10)
    assert scope_of([GreaterThanOrEqual("offset", 4), LessThan("offset", 9)]) == Scope(offset_min=4, offset_end=9)
    assert scope_of([EqualTo("offset", 7)]) == Scope(offset_min=7, offset_end=8)
    assert scope_of([In("offset", [7, 3])]) == Scope(offset_min=3, offset_end=8)


def test_only_lower_bounds_of_time_narrow_the_scope() -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    scope = scope_of([GreaterThanOrEqual("timestamp", noon), LessThan("timestamp", noon)])
    assert scope.timestamp_min_ms is not None
    assert 0 <= int(noon.timestamp() * 1000) - scope.timestamp_min_ms <= 2
    assert scope_of([LessThan("timestamp", noon)]) == Scope()


def test_other_predicates_do_not_narrow_the_scope() -> None:
    unused = [StringStartsWith("topic", "a"), EqualTo("key", b"k"), EqualTo("headers.key", "x"), EqualTo("topic", None)]
    assert scope_of(unused) == Scope()
