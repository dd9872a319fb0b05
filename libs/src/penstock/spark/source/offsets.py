"""Offsets of many partitions, as people and checkpoints write them (JSON, as Spark's Kafka source has it)."""

import json
from collections.abc import Mapping

import msgspec

from penstock.contracts.errors import Invalid

EARLIEST_TEXT = "earliest"
LATEST_TEXT = "latest"
EARLIEST = -2  # in JSON, as Kafka has it
LATEST = -1
OFFSET_MAX = 2**63 - 1

# "earliest", "latest", or offsets by topic and partition.
Place = str | dict[str, dict[int, int]]
Partition = tuple[str, int]
Offsets = dict[Partition, int]


class LogBounds(msgspec.Struct, frozen=True, gc=False):
    """What a partition can be asked for: from `start` to before `end`."""

    start: int
    end: int


def parse_place(option: str, text: str) -> Place:
    """`earliest`, `latest` or JSON like {"topic": {"0": 23, "1": -2}}, where -2 is earliest and -1 latest."""
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
            f'{option} is earliest, latest, or JSON like {{"topic": {{"0": 23, "1": -2}}}}: {text!r}'
        ) from error


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not EARLIEST <= value <= OFFSET_MAX:
        raise ValueError(f"no offset: {value!r}")
    return value


def resolve(place: Place, bounds: Mapping[Partition, LogBounds], *, option: str) -> Offsets:
    """An offset per partition of `bounds`; with JSON that names some of them, the others begin or end where they do.

    `Invalid` for a partition that does not exist.
    """
    ending = option.startswith("ending")
    if isinstance(place, str):
        return {key: each.end if place == LATEST_TEXT else each.start for key, each in bounds.items()}
    named = {(topic, number): offset for topic, each in place.items() for number, offset in each.items()}
    for topic, number in named:
        if (topic, number) not in bounds:
            raise Invalid(f"{option} names partition {number} of {topic}, which is not among those to read")
    resolved = {}
    for key, each in bounds.items():
        offset = named.get(key, LATEST if ending else EARLIEST)
        resolved[key] = each.start if offset == EARLIEST else each.end if offset == LATEST else offset
    return resolved


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as a checkpoint keeps them, in one order."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(number)] = offset
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """What `to_json` made."""
    return {(topic, int(number)): offset for topic, each in nested.items() for number, offset in each.items()}


def limit_offsets(start: Offsets, end: Offsets, offsets_max: int) -> Offsets:
    """An end with at most `offsets_max` offsets before it, and with one at least of every partition that has any.

    Where that is too many, they take turns.
    """
    waiting = {key: end[key] - start[key] for key in sorted(end) if end[key] > start[key]}
    total = sum(waiting.values())
    if total <= offsets_max:
        return end
    limited = dict(start)
    keys = list(waiting)
    if len(keys) >= offsets_max:
        first = sum(start.values()) % len(keys)  # grows by as many as have their turn
        for key in (keys[first:] + keys[:first])[:offsets_max]:
            limited[key] += 1
        return limited
    left = offsets_max - len(keys)
    for key, count in waiting.items():
        limited[key] += min(count, 1 + left * count // total)
    return limited
