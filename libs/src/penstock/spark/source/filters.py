"""The scope of a read: narrowed by predicates on topic, partition, offset and timestamp, not by others. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

OFFSET_END = 2**63 - 1


class Scope(msgspec.Struct, frozen=True):
    """An upper bound of the records to read; every record that Spark would keep is in it."""

    topics: frozenset[str] | None = None  # None: all
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_end: int = OFFSET_END  # after the last
    timestamp_min_ms: int | None = None

    def has_topic(self, topic: str) -> bool:
        """Whether records of the topic may be wanted."""
        return self.topics is None or topic in self.topics

    def has_partition(self, partition: int) -> bool:
        """Whether records of partitions with this number may be wanted."""
        return self.partitions is None or partition in self.partitions


def scope_of(filters: Sequence[Any]) -> Scope:
    """The scope of PySpark's filters; a record must pass all filters."""
    scope = Scope()
    for each in filters:
        scope = _narrowed(scope, each)
    return scope


def _narrowed(scope: Scope, each: Any) -> Scope:
    kind = type(each).__name__
    column: Sequence[str] = getattr(each, "attribute", ())
    value = getattr(each, "value", None)
    if len(column) != 1 or value is None:
        return scope
    if kind == "In":
        return _among(scope, column[0], list(value))
    if kind in ("EqualTo", "EqualNullSafe") and column[0] in ("topic", "partition"):
        return _among(scope, column[0], [value])
    if column[0] == "offset" and isinstance(value, int):
        return _offsets(scope, kind, value)
    if column[0] == "timestamp" and isinstance(value, datetime):
        return _times(scope, kind, value)
    return scope


def _among(scope: Scope, column: str, values: list[Any]) -> Scope:
    if column == "topic":
        chosen = frozenset(str(value) for value in values)
        return msgspec.structs.replace(scope, topics=chosen if scope.topics is None else scope.topics & chosen)
    if column == "partition":
        numbers = frozenset(int(value) for value in values if value is not None)
        known = numbers if scope.partitions is None else scope.partitions & numbers
        return msgspec.structs.replace(scope, partitions=known)
    if column == "offset" and values and all(isinstance(value, int) for value in values):
        return _offsets(_offsets(scope, "GreaterThanOrEqual", min(values)), "LessThanOrEqual", max(values))
    return scope


def _offsets(scope: Scope, kind: str, value: int) -> Scope:
    first, end = scope.offset_min, scope.offset_end
    if kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual"):
        first = max(first, value)
    if kind == "GreaterThan":
        first = max(first, value + 1)
    if kind in ("EqualTo", "EqualNullSafe", "LessThanOrEqual"):
        end = min(end, value + 1)
    if kind == "LessThan":
        end = min(end, value)
    return msgspec.structs.replace(scope, offset_min=first, offset_end=max(0, end))


def _times(scope: Scope, kind: str, value: datetime) -> Scope:
    """Narrow only by the oldest allowed time: segments record the largest timestamp, but not the smallest."""
    if kind not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual") or value.tzinfo is None:
        return scope
    milliseconds = int(value.timestamp() * 1000) - 1  # a float may be slightly larger than the exact value
    known = scope.timestamp_min_ms
    return msgspec.structs.replace(scope, timestamp_min_ms=milliseconds if known is None else max(known, milliseconds))
