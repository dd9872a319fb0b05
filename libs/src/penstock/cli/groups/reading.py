"""`penstock group list` and `describe`."""

import argparse
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.groups.members import read_group
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
    found = session.admin.list_groups(states_filter=arguments.state or None, types_filter=arguments.type or None)
    groups = {group["group_id"]: group for group in found if fnmatch.fnmatchcase(group["group_id"], arguments.pattern)}
    rows = [
        {"name": name, "type": group.get("group_type") or "classic", "state": group.get("group_state", "")}
        for name, group in sorted(groups.items())
    ]
    return Listing(rows, "there are no groups" if arguments.pattern == "*" else "no group has such a name")


def describe_group(arguments: argparse.Namespace, session: Session) -> Report:
    """One group: its facts and its members."""
    group = read_group(session, arguments.name)
    return Report(
        {
            "name": group.name,
            "type": group.type,
            "state": group.state,
            "assignor": group.assignor,
            "epoch": group.epoch,
            "member_count": len(group.members),
            "members": [
                {
                    "member_id": member.member_id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "instance": member.instance,
                    "partitions": assignment_text(member.partitions),
                }
                for member in group.members
            ],
        }
    )


def assignment_text(partitions: Mapping[str, Sequence[int]]) -> list[str]:
    """Each topic with its partitions, runs as ranges: `orders/0-3,7`."""
    return [f"{topic}/{_ranges(sorted(numbers))}" for topic, numbers in sorted(partitions.items()) if numbers]


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
