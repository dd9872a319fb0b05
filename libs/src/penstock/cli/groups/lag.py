"""`penstock group lag`: how far groups are behind, in records and in seconds."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.cli.groups.finding import read_group
from penstock.cli.groups.members import SHARE
from penstock.cli.groups.share_offsets import start_offsets
from penstock.cli.kafka.completers import with_groups
from penstock.cli.kafka.offsets import EARLIEST, LATEST, Partition, offsets_at
from penstock.cli.kafka.session import Session, add_verb
from penstock.cli.output import Listing
from penstock.runtime.clock import SystemClock

_LEVELS = ("partition", "topic", "group")
_POLL_MS = 500


class PartitionLag(msgspec.Struct, frozen=True):
    """The lag of one group in one partition."""

    group: str
    topic: str
    partition: int
    committed_offset: int
    latest_offset: int
    lag: int
    behind_seconds: float | None  # the age of the oldest record that is not consumed; None if it is unknown
    member: str = ""

    @property
    def place(self) -> Partition:
        """The partition."""
        return self.topic, self.partition


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verb."""
    verb = add_verb(
        verbs,
        "lag",
        show_lag,
        help="show how far groups are behind, in records and seconds",
        description="Show how far groups are behind: in records, and in seconds as the age of the oldest record that "
        "is not consumed. One group is listed by partition, several by group.",
    )
    with_groups(verb.add_argument("names", nargs="*", metavar="GROUP", help="names of groups (all groups)"))
    verb.add_argument("--by", choices=_LEVELS, default="", help="one line for each of these")
    verb.add_argument("--no-seconds", action="store_true", help="read no records, so without seconds")


def show_lag(arguments: argparse.Namespace, session: Session) -> Listing:
    """The lag by partition, topic or group; the largest lag first, except by partition."""
    names = arguments.names or sorted({group["group_id"] for group in session.admin.list_groups()})
    found = read_lag(session, names, with_seconds=not arguments.no_seconds)
    level = arguments.by or ("partition" if len(arguments.names) == 1 else "group")
    if level == "partition":
        with_members = _with_members(session, names[0], found) if len(names) == 1 else found
        return Listing([msgspec.structs.asdict(each) for each in with_members], "no offsets are committed")
    return Listing(summed(found, by_topic=level == "topic"), "no offsets are committed")


def read_lag(session: Session, names: Sequence[str], *, with_seconds: bool) -> list[PartitionLag]:
    """The lag of the groups in each partition in which they have an offset, by name."""
    committed = _committed(session, names)
    partitions = {partition for offsets in committed.values() for partition in offsets}
    present = _existing(session, partitions)
    earliest, latest = (offsets_at(session, present, word) for word in (EARLIEST, LATEST))
    lags = []
    for name, offsets in committed.items():
        for partition, offset in sorted(offsets.items()):
            if partition in present:
                lag = max(latest[partition] - max(offset, earliest[partition]), 0)
                lags.append(PartitionLag(name, *partition, offset, latest[partition], lag, None if lag else 0.0))
    return _with_seconds(session, lags, earliest) if with_seconds else lags


def summed(lags: Iterable[PartitionLag], *, by_topic: bool) -> list[dict[str, Any]]:
    """The lags summed by group, or by group and topic, the largest first; seconds are those of the oldest record."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for each in lags:
        key = (each.group, each.topic) if by_topic else (each.group,)
        names = {"group": each.group, "topic": each.topic} if by_topic else {"group": each.group}
        row = rows.setdefault(key, names | {"partitions": 0, "lag": 0, "behind_seconds": 0.0})
        row["partitions"] += 1
        row["lag"] += each.lag
        seconds = (row["behind_seconds"], each.behind_seconds)
        row["behind_seconds"] = None if None in seconds else max(seconds)
    return sorted(rows.values(), key=lambda row: -int(row["lag"]))


def _committed(session: Session, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
    """The committed offsets of each group. A share group has none: its start offsets stand for them."""
    found: dict[str, dict[Partition, int]] = {}
    listed = session.admin.list_group_offsets(dict.fromkeys(names)) if names else {}
    for name in names:
        offsets = {
            (partition.topic, partition.partition): each.offset
            for partition, each in listed.get(name, {}).items()
            if each.offset >= 0
        }
        if not offsets and len(names) == 1:
            offsets = start_offsets(session, name) if read_group(session, name).type == SHARE else {}
        found[name] = offsets
    return found


def _existing(session: Session, partitions: Iterable[Partition]) -> list[Partition]:
    """The partitions that still exist: offsets stay for a while after their topic."""
    wanted = set(partitions)
    topics = session.admin.describe_topics(sorted({topic for topic, _ in wanted})) if wanted else []
    found = {(topic["name"], each["partition_index"]) for topic in topics for each in topic["partitions"]}
    return sorted(wanted & found)


def _with_members(session: Session, name: str, lags: Sequence[PartitionLag]) -> list[PartitionLag]:
    """The lags with the clients that have the partitions."""
    owners: dict[Partition, str] = {}
    for member in read_group(session, name).members:
        for topic, numbers in member.partitions.items():
            owners |= {(topic, number): f"{member.client_id}@{member.host.lstrip('/')}" for number in numbers}
    return [msgspec.structs.replace(each, member=owners.get(each.place, "")) for each in lags]


def _with_seconds(
    session: Session, lags: Sequence[PartitionLag], earliest: Mapping[Partition, int]
) -> list[PartitionLag]:
    positions = {(each.place, max(each.committed_offset, earliest[each.place])) for each in lags if each.lag}
    times = record_times(session, positions)
    now_ms = SystemClock().now_ms()
    found = []
    for each in lags:
        time_ms = times.get((each.place, max(each.committed_offset, earliest[each.place])))
        if each.lag and time_ms is not None:
            each = msgspec.structs.replace(each, behind_seconds=max(now_ms - time_ms, 0) / 1000)
        found.append(each)
    return found


def record_times(session: Session, positions: Iterable[tuple[Partition, int]]) -> dict[tuple[Partition, int], int]:
    """The time in ms of the first record at or after each position. None of a position without a record in time.

    The reader asks for the smallest answer, which is one batch of each partition.
    """
    left = sorted(set(positions))
    found: dict[tuple[Partition, int], int] = {}
    if not left:
        return found
    consumer = session.new_consumer(
        max_partition_fetch_bytes=1, auto_offset_reset="earliest", enable_auto_commit=False, check_crcs=False
    )
    deadline_s = SystemClock().monotonic_s() + session.timeout_s
    while left:
        # Groups with different offsets in one partition need a round each.
        batch = {position[0]: position for position in reversed(left)}
        found |= _times_of_round(consumer, list(batch.values()), deadline_s)
        taken = set(batch.values())
        left = [each for each in left if each not in taken]
    return found


def _times_of_round(
    consumer: Any, positions: Sequence[tuple[Partition, int]], deadline_s: float
) -> dict[tuple[Partition, int], int]:
    from kafka import TopicPartition

    waiting = {TopicPartition(*place): (place, offset) for place, offset in positions}
    consumer.assign(list(waiting))
    consumer.resume(*waiting)  # the round before may have paused them
    for partition, (_, offset) in waiting.items():
        consumer.seek(partition, offset)
    found: dict[tuple[Partition, int], int] = {}
    clock = SystemClock()
    while waiting and clock.monotonic_s() < deadline_s:
        for partition, records in consumer.poll(timeout_ms=_POLL_MS).items():
            if partition in waiting and records:
                found[waiting.pop(partition)] = records[0].timestamp
                consumer.pause(partition)
    return found
