"""Positions in partitions: the first and last offsets, offsets of times, and the words with which users name them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock.cli.kafka.durations import duration_ms
from penstock.cli.kafka.session import TOPIC_DENIED, UNKNOWN_TOPIC, Session, check_ok
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import Clock, SystemClock

EARLIEST, LATEST = "earliest", "latest"
_PARTITION = re.compile(r"(?P<topic>[^/:@]+)(?:[/:](?P<partition>\d{1,10}))?")
_OFFSET, _SHIFT = r"\d{1,19}", r"[+-]\d{1,19}"  # of 64 bits

Partition = tuple[str, int]


class Position(msgspec.Struct, frozen=True):
    """A place in a partition. Exactly one of these is set."""

    word: str = ""  # `earliest` or `latest`
    offset: int | None = None
    shift: int | None = None  # records forwards or, below 0, backwards from the present position
    time_ms: int | None = None


POSITION_HELP = "earliest, latest, an offset, +N or -N records, a time (2026-11-27T08:00) or an age (30s, 15m, 2h, 7d)"


def parse_position(text: str, clock: Clock | None = None) -> Position:
    """The place that a user names; `Invalid` if the text names none."""
    if text in (EARLIEST, LATEST):
        return Position(word=text)
    if re.fullmatch(_SHIFT, text):
        return Position(shift=int(text))
    if re.fullmatch(_OFFSET, text):
        return Position(offset=int(text))
    age_ms = duration_ms(text)
    if age_ms is not None:
        return Position(time_ms=max((clock or SystemClock()).now_ms() - age_ms, 0))
    try:
        # A time without a zone is the local one of the user.
        time_ms = int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Invalid(f"not a position: {text!r:.100}; a position is {POSITION_HELP}") from None
    return Position(time_ms=max(time_ms, 0))  # Kafka gives negative times other meanings


def parse_partition(text: str) -> tuple[str, int | None]:
    """TOPIC or TOPIC/PARTITION; `Invalid` for any other text."""
    found = _PARTITION.fullmatch(text)
    if found is None:
        raise Invalid(f"a partition is TOPIC or TOPIC/NUMBER: {text!r}")
    return found["topic"], int(found["partition"]) if found["partition"] else None


def chosen_partitions(session: Session, texts: Iterable[str]) -> list[Partition]:
    """The partitions that TOPIC or TOPIC/PARTITION name, each once; `Invalid` if one does not exist."""
    wanted = [parse_partition(text) for text in texts]
    counts = _partition_counts(session, sorted({topic for topic, _ in wanted}))
    chosen: dict[Partition, None] = {}
    for topic, number in wanted:
        if number is not None and number >= counts[topic]:
            raise Invalid(f"topic {topic!r} has no partition {number}, but {counts[topic]} from 0")
        chosen |= {(topic, each): None for each in (range(counts[topic]) if number is None else [number])}
    return list(chosen)


def _partition_counts(session: Session, topics: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic in session.admin.describe_topics(list(topics)) if topics else []:
        check_topic(topic)
        found[topic["name"]] = len(topic["partitions"])
    return found


def check_topic(topic: Mapping[str, Any]) -> None:
    """`Invalid` with a sentence if a description of a topic has an error instead of partitions."""
    code, name = topic["error_code"], topic["name"]
    if code in (UNKNOWN_TOPIC, TOPIC_DENIED):
        raise Invalid(f"there is no topic {name!r}, or you may not see it; `penstock topic list` lists all")
    check_ok(code, None, f"topic {name!r}")


def offsets_at(
    session: Session, partitions: Iterable[Partition], word: str, *, is_committed: bool = False
) -> dict[Partition, int]:
    """The earliest or latest offsets of the partitions; the latest committed one is before open transactions."""
    from kafka.admin import OffsetSpec

    spec = OffsetSpec.EARLIEST if word == EARLIEST else OffsetSpec.LATEST
    return _listed(session, dict.fromkeys(partitions, spec), is_committed=is_committed)


def offsets_at_time(session: Session, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
    """The offset of the first record at or after a time in each partition; -1 where there is none."""
    from kafka.admin import OffsetTimestamp

    return _listed(session, dict.fromkeys(partitions, OffsetTimestamp(time_ms)))


def _listed(session: Session, specs: Mapping[Partition, Any], *, is_committed: bool = False) -> dict[Partition, int]:
    from kafka import TopicPartition

    if not specs:
        return {}
    wanted = {TopicPartition(*partition): spec for partition, spec in specs.items()}
    isolation = "read_committed" if is_committed else "read_uncommitted"
    found = session.admin.list_partition_offsets(wanted, isolation_level=isolation)
    return {(partition.topic, partition.partition): each.offset for partition, each in found.items()}


def resolved(session: Session, position: Position, present: Mapping[Partition, int | None]) -> dict[Partition, int]:
    """The offset of the position in each partition, within its bounds.

    `present` has the present offset of each partition, None without one; a shift then counts from the first offset.
    """
    earliest = offsets_at(session, present, EARLIEST)
    latest = offsets_at(session, present, LATEST)
    if position.time_ms is not None:
        found = offsets_at_time(session, present, position.time_ms)
        wanted = {each: offset if offset >= 0 else latest[each] for each, offset in found.items()}
    elif position.shift is not None:
        shift = position.shift
        wanted = {each: (earliest[each] if offset is None else offset) + shift for each, offset in present.items()}
    elif position.offset is not None:
        wanted = dict.fromkeys(present, position.offset)
    else:
        wanted = dict(earliest if position.word == EARLIEST else latest)
    return {each: min(max(offset, earliest[each]), latest[each]) for each, offset in wanted.items()}
