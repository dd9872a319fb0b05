"""Offsets of many partitions as JSON, for options and checkpoints, in the format of Spark's Kafka source."""

import json
from collections.abc import Mapping

import msgspec

from penstock.contracts.errors import Invalid

EARLIEST_TEXT = "earliest"
LATEST_TEXT = "latest"
EARLIEST = -2  # in JSON, as in Kafka
LATEST = -1
OFFSET_MAX = 2**63 - 1

# "earliest", "latest", or offsets by topic and partition.
Place = str | dict[str, dict[int, int]]
Partition = tuple[str, int]
Offsets = dict[Partition, int]


class LogBounds(msgspec.Struct, frozen=True, gc=False):
    """The readable offsets of a partition: from `start` to before `end`."""

    start: int
    end: int


def parse_place(option: str, text: str) -> Place:
    """Parse `earliest`, `latest` or JSON like {"topic": {"0": 23, "1": -2}}, where -2 is earliest and -1 latest."""
    if text.lower() in (EARLIEST_TEXT, LATEST_TEXT):
        return text.lower()
    try:
        raw = json.loads(text)
        return {
            str(topic): {int(partition): _offset(offset) for partition, offset in partitions.items()}
            for topic, partitions in raw.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise Invalid(
            f'{option} must be earliest, latest, or JSON like {{"topic": {{"0": 23, "1": -2}}}}: {text!r}'
        ) from error


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not EARLIEST <= value <= OFFSET_MAX:
        raise ValueError(f"no offset: {value!r}")
    return value


def resolve(place: Place, bounds: Mapping[Partition, LogBounds], *, option: str) -> Offsets:
    """An offset per partition of `bounds`. A partition that is not in the JSON is read from its start or to its end.

    `Invalid` for a partition that does not exist.
    """
    ending = option.startswith("ending")
    if isinstance(place, str):
        return {key: each.end if place == LATEST_TEXT else each.start for key, each in bounds.items()}
    named = {(topic, number): offset for topic, each in place.items() for number, offset in each.items()}
    for topic, number in named:
        if (topic, number) not in bounds:
            raise Invalid(f"{option} names partition {number} of {topic}, but the read does not include it")
    resolved = {}
    for key, each in bounds.items():
        offset = named.get(key, LATEST if ending else EARLIEST)
        resolved[key] = each.start if offset == EARLIEST else each.end if offset == LATEST else offset
    return resolved


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets in the format of a checkpoint, sorted."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(number)] = offset
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `to_json`."""
    return {(topic, int(number)): offset for topic, each in nested.items() for number, offset in each.items()}


def limit_offsets(start: Offsets, end: Offsets, offsets_max: int) -> Offsets:
    """End offsets for at most `offsets_max` offsets, with at least one from every partition that has new offsets.

    If there are more such partitions than `offsets_max`, they take turns.
    """
    waiting = {key: end[key] - start[key] for key in sorted(end) if end[key] > start[key]}
    total = sum(waiting.values())
    if total <= offsets_max:
        return end
    limited = dict(start)
    keys = list(waiting)
    if len(keys) >= offsets_max:
        first = sum(start.values()) % len(keys)  # grows by the number of partitions of one turn
        for key in (keys[first:] + keys[:first])[:offsets_max]:
            limited[key] += 1
        return limited
    left = offsets_max - len(keys)
    for key, count in waiting.items():
        limited[key] += min(count, 1 + left * count // total)
    return limited
