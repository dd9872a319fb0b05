"""Groups as the command line lists and describes them, from answers as they come from gateways."""

import json
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.groups.members import Group, Member
from penstock.cli.groups.reading import group_report, list_groups
from penstock.cli.groups.streams import StreamsGroup, streams_group_of
from penstock.cli.kafka.messages import StreamsGroupDescribeResponse
from penstock.cli.output import as_text
from penstock.kafkawire.api import encode_response
from penstock.kafkawire.api.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member as WireMember,
    StreamsGroupDescribeResponse as WireResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

DESCRIBE = 89
SUBTOPOLOGIES = [
    Subtopology("0", ["orders"], ["by-customer"]),
    Subtopology("1", ["customers"], [], [TopicInfo("store")], [TopicInfo("by-customer", 3)]),
]
FIRST = WireMember(
    member_id="m1",
    member_epoch=7,
    instance_id="i",
    client_id="app-1",
    client_host="/10.0.0.1",
    topology_epoch=0,
    process_id="p1",
    assignment=Assignment(
        [TaskIds("0", [0, 1, 2]), TaskIds("1", [2, 0])], [TaskIds("1", [1])], warmup_tasks=[TaskIds("1", [4])]
    ),
    target_assignment=Assignment([TaskIds("0", [9])]),
)
GROUP = DescribedGroup(
    group_id="app",
    group_state="Stable",
    group_epoch=8,
    assignment_epoch=7,
    topology=Topology(3, SUBTOPOLOGIES),
    members=[FIRST, WireMember(member_id="m2", process_id="p2")],
    assignor_name="sticky",
)


def described(group: DescribedGroup, version: int = 1) -> StreamsGroup:
    """The group out of the bytes of an answer."""
    data = b"".join(encode_response(DESCRIBE, version, WireResponse(groups=[group])))
    (answer,) = StreamsGroupDescribeResponse.decode(data, version=version, header=False).groups
    return streams_group_of(answer)


def test_a_streams_group_has_its_topology_and_each_member_its_tasks() -> None:
    assert json.loads(as_text(group_report(described(GROUP)), "json")) == {
        "name": "app",
        "type": "streams",
        "state": "Stable",
        "assignor": "sticky",
        "epoch": 8,
        "assignment_epoch": 7,
        "topology_epoch": 3,
        "member_count": 2,
        "subtopologies": [
            {
                "subtopology": "0",
                "source_topics": ["orders"],
                "repartition_topics": [],
                "sink_topics": ["by-customer"],
                "changelog_topics": [],
            },
            {
                "subtopology": "1",
                "source_topics": ["customers"],
                "repartition_topics": ["by-customer"],
                "sink_topics": [],
                "changelog_topics": ["store"],
            },
        ],
        "members": [
            {
                "member_id": "m1",
                "client_id": "app-1",
                "host": "/10.0.0.1",
                "instance": "i",
                "process": "p1",
                "epoch": 7,
                "topology_epoch": 0,
                "active": ["0/0-2", "1/0,2"],
                "standby": ["1/1"],
                "warm_up": ["1/4"],
            },
            {
                "member_id": "m2",
                "client_id": "",
                "host": "",
                "instance": None,
                "process": "p2",
                "epoch": 0,
                "topology_epoch": 0,
                "active": [],
                "standby": [],
                "warm_up": [],
            },
        ],
    }


def test_the_table_shows_tasks_as_ranges() -> None:
    lines = as_text(group_report(described(GROUP)), "table").splitlines()
    assert "assignment epoch  7" in lines
    assert lines[lines.index("subtopologies:") + 2].split() == ["0", "orders", "-", "by-customer", "-"]
    first = lines[lines.index("members:") + 2].split()
    assert first == ["m1", "app-1", "/10.0.0.1", "i", "p1", "7", "0", "0/0-2,", "1/0,2", "1/1", "1/4"]


def test_a_member_has_the_partitions_that_its_active_tasks_read_so_that_lag_has_an_owner() -> None:
    first, second = described(GROUP).members
    assert first.partitions == {"orders": [0, 1, 2], "customers": [2, 0], "by-customer": [2, 0]}
    assert second.partitions == {}


@pytest.mark.parametrize("topology", [None, Topology(0, None)])
def test_a_group_of_an_older_broker_without_topology_and_assignor_is_described(topology: Topology | None) -> None:
    group = described(DescribedGroup(group_id="app", group_state="Empty", topology=topology), version=0)
    assert (group.assignor, group.topology_epoch, group.subtopologies, group.members) == ("", 0, [], [])


def test_other_groups_have_no_tasks_and_no_topology() -> None:
    facts = group_report(
        Group("g", "consumer", "Stable", "uniform", 4, [Member("m", "c", "/h", None, {"t": [0, 1]})])
    ).facts
    assert facts == {
        "name": "g",
        "type": "consumer",
        "state": "Stable",
        "assignor": "uniform",
        "epoch": 4,
        "member_count": 1,
        "members": [
            {"member_id": "m", "client_id": "c", "host": "/h", "instance": None, "partitions": ["t/0-1"]},
        ],
    }


LISTED = [
    {"group_id": "b", "protocol_type": "", "group_state": "NotReady", "group_type": "streams"},
    {"group_id": "a", "protocol_type": "consumer", "group_state": "PreparingRebalance", "group_type": "classic"},
    {"group_id": "c", "protocol_type": "consumer"},  # from a broker that reports no type
]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, ["a", "b", "c"]),
        ({"type": ["streams"]}, ["b"]),
        ({"type": ["streams", "classic"]}, ["a", "b", "c"]),
        ({"state": ["notready"]}, ["b"]),
        ({"state": ["preparing-rebalance"]}, ["a"]),
        ({"state": ["Stable"]}, []),
        ({"pattern": "[ab]", "type": ["classic"]}, ["a"]),
    ],
)
def test_groups_are_listed_by_name_state_and_type(chosen: dict[str, Any], names: list[str]) -> None:
    session: Any = SimpleNamespace(admin=SimpleNamespace(list_groups=lambda: LISTED))
    listing = list_groups(Namespace(**({"pattern": "*", "state": [], "type": []} | chosen)), session)
    assert [row["name"] for row in listing.rows] == names
    assert listing.nothing == ("there is no such group" if chosen else "there are no groups")
    assert {row["name"]: row["type"] for row in listing.rows}.items() <= {
        "a": "classic",
        "b": "streams",
        "c": "classic",
    }.items()
