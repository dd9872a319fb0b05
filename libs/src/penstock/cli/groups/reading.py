"""`penstock group list` and `describe`."""

import argparse
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.groups.finding import read_group
from penstock.cli.groups.members import CLASSIC, Group, Member
from penstock.cli.groups.streams import StreamsGroup, StreamsMember, Subtopology
from penstock.cli.kafka.completers import with_groups
from penstock.cli.kafka.session import Session, add_verb
from penstock.cli.output import Listing, Report


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verbs."""
    listed = add_verb(verbs, "list", list_groups, help="list groups")
    listed.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="only names like 'billing-*'")
    listed.add_argument("--state", action="append", default=[], metavar="STATE", help="only groups in this state")
    listed.add_argument(
        "--type",
        action="append",
        default=[],
        choices=("classic", "consumer", "share", "streams"),
        help="only groups of this type",
    )
    described = add_verb(verbs, "describe", describe_group, help="show members and assignments of a group")
    with_groups(described.add_argument("name", metavar="GROUP", help="name of the group"))


def list_groups(arguments: argparse.Namespace, session: Session) -> Listing:
    """The groups by name. While gateways change, two may list one group."""
    # kafka-python rejects filters by states and types that it does not know, such as those of streams groups.
    groups = {group["group_id"]: group for group in session.admin.list_groups()}
    rows = [
        {"name": name, "type": group.get("group_type") or CLASSIC, "state": group.get("group_state", "")}
        for name, group in sorted(groups.items())
        if fnmatch.fnmatchcase(name, arguments.pattern)
    ]
    states, types = {_plain(state) for state in arguments.state}, set(arguments.type)
    rows = [
        row
        for row in rows
        if (not states or _plain(row["state"]) in states) and (not types or row["type"].lower() in types)
    ]
    is_chosen = arguments.pattern != "*" or states or types
    return Listing(rows, "there is no such group" if is_chosen else "there are no groups")


def _plain(state: str) -> str:
    return state.lower().replace("-", "").replace("_", "")


def describe_group(arguments: argparse.Namespace, session: Session) -> Report:
    """One group: its facts and its members, and for a streams group its topology."""
    return group_report(read_group(session, arguments.name))


def group_report(group: Group) -> Report:
    """The facts of a group that `describe` shows."""
    epochs: dict[str, Any] = {"epoch": group.epoch}
    parts: dict[str, Any] = {}
    if isinstance(group, StreamsGroup):
        epochs |= {"assignment_epoch": group.assignment_epoch, "topology_epoch": group.topology_epoch}
        parts = {"subtopologies": [_subtopology_row(each) for each in group.subtopologies]}
    return Report(
        {
            "name": group.name,
            "type": group.type,
            "state": group.state,
            "assignor": group.assignor,
            **epochs,
            "member_count": len(group.members),
            **parts,
            "members": [_member_row(member) for member in group.members],
        }
    )


def _subtopology_row(subtopology: Subtopology) -> dict[str, Any]:
    return {
        "subtopology": subtopology.name,
        "source_topics": list(subtopology.source_topics),
        "repartition_topics": list(subtopology.repartition_topics),
        "sink_topics": list(subtopology.sink_topics),
        "changelog_topics": list(subtopology.changelog_topics),
    }


def _member_row(member: Member) -> dict[str, Any]:
    row = {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "instance": member.instance,
    }
    if not isinstance(member, StreamsMember):
        return row | {"partitions": assignment_text(member.partitions)}
    return row | {
        "process": member.process,
        "epoch": member.epoch,
        "topology_epoch": member.topology_epoch,
        "active": assignment_text(member.active),
        "standby": assignment_text(member.standby),
        "warm_up": assignment_text(member.warm_up),
    }


def assignment_text(partitions: Mapping[str, Sequence[int]]) -> list[str]:
    """Each topic with its partitions, runs as ranges: `orders/0-3,7`. The same for subtopologies with their tasks."""
    return [f"{name}/{_ranges(sorted(numbers))}" for name, numbers in sorted(partitions.items()) if numbers]


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
