"""`penstock group reset`, `seek` and `delete`: changes of a group's offsets, with a preview."""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.cli.groups.finding import find_group, read_group
from penstock.cli.groups.members import SHARE, Group
from penstock.cli.groups.share_offsets import delete_start_offsets, set_start_offsets, start_offsets
from penstock.cli.kafka.completers import with_groups
from penstock.cli.kafka.offsets import (
    EARLIEST,
    LATEST,
    POSITION_HELP,
    Partition,
    chosen_partitions,
    offsets_at,
    parse_partition,
    parse_position,
    resolved,
)
from penstock.cli.kafka.session import Session, add_verb, confirm, error_text
from penstock.cli.output import Listing
from penstock.contracts.errors import Invalid

_EMPTY_STATES = ("Empty", "Dead")
_NOTHING = "nothing changes"


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verbs."""
    reset = add_verb(
        verbs,
        "reset",
        reset_offsets,
        help="move a group to another position",
        description=f"Move the offsets of a group without members. A position is {POSITION_HELP}.",
    )
    with_groups(reset.add_argument("name", metavar="GROUP", help="name of the group, which may be a new one"))
    reset.add_argument(
        "--to", required=True, metavar="POSITION", help="the new position; moves of +N or -N are relative"
    )
    reset.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[/PARTITION]",
        help="only this topic or partition; can be repeated (all topics of the group)",
    )
    seek = add_verb(verbs, "seek", seek_offsets, help="set a group's offsets in partitions, or copy those of a group")
    with_groups(seek.add_argument("name", metavar="GROUP", help="name of the group"))
    seek.add_argument("places", nargs="*", metavar="TOPIC/PARTITION@OFFSET", help="the new offsets")
    seek.add_argument("--like", metavar="GROUP", default="", help="the offsets of this group")
    delete = add_verb(verbs, "delete", delete_groups, help="delete groups, or their offsets in a topic")
    with_groups(delete.add_argument("names", nargs="+", metavar="GROUP", help="names of the groups"))
    delete.add_argument("--topic", metavar="TOPIC", default="", help="only the offsets in this topic")
    for verb in (reset, seek):
        verb.add_argument("--dry-run", action="store_true", help="only show the offsets before and after")
    for verb in (reset, seek, delete):
        verb.add_argument("-y", "--yes", action="store_true", help="do not ask")


def reset_offsets(arguments: argparse.Namespace, session: Session) -> Listing:
    """Move the group to a position."""
    position = parse_position(arguments.to)
    group = find_group(session, arguments.name)
    before = offsets_of(session, arguments.name, group)
    partitions = chosen_partitions(session, arguments.topic) if arguments.topic else sorted(before)
    if not partitions:
        raise Invalid(f"group {arguments.name!r} has no offsets: name its topics with --topic")
    after = resolved(session, position, {each: before.get(each) for each in partitions})
    return _change(arguments, session, group, before, after)


def seek_offsets(arguments: argparse.Namespace, session: Session) -> Listing:
    """Set the offsets that the user names, or those of another group."""
    if bool(arguments.places) == bool(arguments.like):
        raise Invalid("name the offsets as TOPIC/PARTITION@OFFSET, or a group with --like")
    wanted = dict(map(parse_place, arguments.places))
    wanted = wanted or offsets_of(session, arguments.like, read_group(session, arguments.like))
    chosen_partitions(session, [f"{topic}/{partition}" for topic, partition in wanted])  # they exist
    earliest, latest = (offsets_at(session, wanted, word) for word in (EARLIEST, LATEST))
    for each, offset in wanted.items():
        if not earliest[each] <= offset <= latest[each]:
            raise Invalid(f"{each[0]}/{each[1]} has offsets {earliest[each]} to {latest[each]}, not {offset}")
    group = find_group(session, arguments.name)
    return _change(arguments, session, group, offsets_of(session, arguments.name, group), wanted)


def delete_groups(arguments: argparse.Namespace, session: Session) -> Listing:
    """Delete groups, or their offsets in one topic, after a question."""
    if arguments.topic:
        return _delete_offsets(arguments, session)
    names = list(dict.fromkeys(arguments.names))
    for name in names:
        read_group(session, name)
    confirm(f"Delete {', '.join(names)} with all offsets?", is_confirmed=arguments.yes)
    rows = []
    for name, error in dict(session.admin.delete_groups(names)).items():
        _check(error, f"group {name!r} is not deleted")
        rows.append({"name": name, "result": "deleted"})
    return Listing(rows, _NOTHING)


def _delete_offsets(arguments: argparse.Namespace, session: Session) -> Listing:
    groups = {name: read_group(session, name) for name in arguments.names}
    found = {
        name: [each for each in offsets_of(session, name, group) if each[0] == arguments.topic]
        for name, group in groups.items()
    }
    for name, partitions in found.items():
        if not partitions:
            raise Invalid(f"group {name!r} has no offsets in topic {arguments.topic!r}")
    confirm(f"Delete the offsets of {', '.join(found)} in {arguments.topic}?", is_confirmed=arguments.yes)
    rows = []
    for name, partitions in found.items():
        if groups[name].type == SHARE:
            delete_start_offsets(session, name, arguments.topic)
        else:
            _delete_committed(session, name, partitions)
        rows.append({"name": name, "topic": arguments.topic, "partitions": len(partitions), "result": "deleted"})
    return Listing(rows, _NOTHING)


def _delete_committed(session: Session, name: str, partitions: Iterable[Partition]) -> None:
    from kafka import TopicPartition

    wanted = [TopicPartition(*each) for each in partitions]
    for partition, error in session.admin.delete_group_offsets(name, wanted).items():
        _check(error, f"group {name!r} keeps its offset in {partition.topic}/{partition.partition}")


def offsets_of(session: Session, name: str, group: Group | None) -> dict[Partition, int]:
    """The committed offsets of a group, the start offsets of a share group. `group` is None if it does not exist."""
    if group is None:
        return {}
    if group.type == SHARE:
        return start_offsets(session, name)
    found = session.admin.list_group_offsets({name: None}).get(name, {})
    return {(each.topic, each.partition): value.offset for each, value in found.items() if value.offset >= 0}


def parse_place(text: str) -> tuple[Partition, int]:
    """The partition and offset in TOPIC/PARTITION@OFFSET; `Invalid` for any other text."""
    place, separator, offset = text.rpartition("@")
    topic, partition = parse_partition(place) if separator else ("", None)
    if partition is None or not offset.isdecimal():
        raise Invalid(f"an offset of a partition is TOPIC/PARTITION@OFFSET: {text!r}")
    return (topic, partition), int(offset)


def _change(
    arguments: argparse.Namespace,
    session: Session,
    group: Group | None,
    before: Mapping[Partition, int],
    after: Mapping[Partition, int],
) -> Listing:
    """Set the new offsets after a question, unless it is only a preview. A new group is one of consumers."""
    rows = [
        {
            "topic": each[0],
            "partition": each[1],
            "before_offset": before.get(each),
            "after_offset": offset,
            "change": offset - before[each] if each in before else None,
        }
        for each, offset in sorted(after.items())
    ]
    if not arguments.dry_run:
        moved = {each: offset for each, offset in after.items() if before.get(each) != offset}
        if not moved:
            return Listing([], _NOTHING)
        _check_is_empty(group)
        confirm(f"Set {len(moved)} offsets of {arguments.name}?", is_confirmed=arguments.yes)
        set_offsets = set_start_offsets if group is not None and group.type == SHARE else _commit
        set_offsets(session, arguments.name, moved)
    return Listing(rows, _NOTHING)


def _check_is_empty(group: Group | None) -> None:
    """`Invalid` if the group has members, whose next commit would undo the change."""
    if group is not None and group.state not in _EMPTY_STATES:
        raise Invalid(f"group {group.name!r} is {group.state} with {len(group.members)} members: stop them first")


def _commit(session: Session, name: str, offsets: Mapping[Partition, int]) -> None:
    from kafka import TopicPartition
    from kafka.structs import OffsetAndMetadata

    wanted = {TopicPartition(*each): OffsetAndMetadata(offset, "", -1) for each, offset in offsets.items()}
    for partition, error in session.admin.alter_group_offsets(name, wanted).items():
        _check(error, f"the offset in {partition.topic}/{partition.partition} is not set")


def _check(error: Any, what: str) -> None:
    """`Invalid` if an answer of kafka-python is an error class other than `NoError`, or a text other than OK."""
    if isinstance(error, str):
        if error != "OK":
            raise Invalid(f"{what}: {error}")
    elif error is not None and error.__name__ != "NoError":
        raise Invalid(f"{what}: {error_text(error())}")
