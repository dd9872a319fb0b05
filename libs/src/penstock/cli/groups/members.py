"""Groups of all kinds as one structure: classic, consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.cli.kafka.session import Session, check_ok
from penstock.contracts.errors import Invalid

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
_UNSUPPORTED = 35  # an error code of Kafka: the listener does not know the request
_NOT_FOUND = 69
_DEAD = "Dead"


class Member(msgspec.Struct, frozen=True):
    """A member of a group, with its partitions by topic."""

    member_id: str
    client_id: str
    host: str
    instance: str | None
    partitions: Mapping[str, Sequence[int]]


class Group(msgspec.Struct, frozen=True):
    """A group with its members; `epoch` is None for a classic group."""

    name: str
    type: str
    state: str
    assignor: str
    epoch: int | None
    members: Sequence[Member]


def described(session: Session, request: Any, name: str) -> Any:
    """The answer for this group to a request for groups of one kind; None if it is of another kind."""
    from kafka.errors import IncompatibleBrokerVersion

    from penstock.cli.kafka.messages import ask_coordinator

    try:
        (group,) = ask_coordinator(session, request, name).groups
    except IncompatibleBrokerVersion:  # this cluster has no such groups
        return None
    if group.error_code in (_NOT_FOUND, _UNSUPPORTED):
        return None
    check_ok(group.error_code, group.error_message, f"group {name!r}")
    return group


def read_consumers(session: Session, name: str) -> Group | None:
    """The consumer group with this name; None if there is none."""
    from penstock.cli.kafka.messages import ConsumerGroupDescribeRequest

    return _read_new(session, name, CONSUMER, ConsumerGroupDescribeRequest)


def read_share(session: Session, name: str) -> Group | None:
    """The share group with this name; None if there is none."""
    from penstock.cli.kafka.messages import ShareGroupDescribeRequest

    return _read_new(session, name, SHARE, ShareGroupDescribeRequest)


def _read_new(session: Session, name: str, kind: str, request: Any) -> Group | None:
    group = described(session, request(group_ids=[name]), name)
    if group is None:
        return None
    members = [
        Member(
            each.member_id,
            each.client_id,
            each.client_host,
            getattr(each, "instance_id", None),
            {topic.topic_name: list(topic.partitions) for topic in each.assignment.topic_partitions},
        )
        for each in group.members
    ]
    return Group(name, kind, group.group_state, group.assignor_name, group.group_epoch, members)


def read_classic(session: Session, name: str) -> Group | None:
    """The classic group with this name; None if there is none."""
    group = session.admin.describe_groups([name])[name]
    if group["group_state"] == _DEAD or "GroupIdNotFound" in (group["error"] or ""):
        return None
    if group["error"]:
        raise Invalid(f"group {name!r}: {group['error']}")
    members = [
        Member(
            each["member_id"],
            each["client_id"],
            each["client_host"],
            each.get("group_instance_id"),
            _classic_partitions(each["member_assignment"]),
        )
        for each in group["members"]
    ]
    return Group(name, CLASSIC, group["group_state"], group["protocol_data"], None, members)


def _classic_partitions(assignment: Any) -> dict[str, list[int]]:
    """The partitions in an assignment of consumers; other protocols have assignments of their own form."""
    if not isinstance(assignment, Mapping):
        return {}
    return {each["topic"]: list(each["partitions"]) for each in assignment["assigned_partitions"]}
