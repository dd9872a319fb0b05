"""Streams groups (KIP-1071): their topology, and the tasks of their members."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.cli.groups.members import STREAMS, Group, Member, described
from penstock.cli.kafka.session import Session

Tasks = Mapping[str, Sequence[int]]  # the numbers of tasks by subtopology


class StreamsMember(Member, frozen=True):
    """A member with its tasks. Its partitions are those that its active tasks read."""

    process: str
    epoch: int
    topology_epoch: int
    active: Tasks
    standby: Tasks
    warm_up: Tasks


class Subtopology(msgspec.Struct, frozen=True):
    """A part of the topology with the topics that its tasks read and write."""

    name: str
    source_topics: Sequence[str]
    repartition_topics: Sequence[str]  # the tasks read them, too
    sink_topics: Sequence[str]  # repartition topics of other subtopologies
    changelog_topics: Sequence[str]


class StreamsGroup(Group, frozen=True):
    """A group with its topology; the epochs are those of the assignment and of the topology."""

    assignment_epoch: int
    topology_epoch: int
    subtopologies: Sequence[Subtopology]


def find_streams_group(session: Session, name: str) -> StreamsGroup | None:
    """The group, None if there is none; `Invalid` if this user may not see it."""
    from penstock.cli.kafka.messages import StreamsGroupDescribeRequest

    group = described(session, StreamsGroupDescribeRequest(group_ids=[name]), name)
    return None if group is None else streams_group_of(group)


def streams_group_of(group: Any) -> StreamsGroup:
    """The group in an answer."""
    topology = group.topology
    subtopologies = [] if topology is None else [_subtopology(each) for each in topology.subtopologies or []]
    inputs = {each.name: [*each.source_topics, *each.repartition_topics] for each in subtopologies}
    return StreamsGroup(
        group.group_id,
        STREAMS,
        group.group_state,
        group.assignor_name or "",
        group.group_epoch,
        [_member(each, inputs) for each in group.members],
        group.assignment_epoch,
        0 if topology is None else topology.epoch,
        subtopologies,
    )


def _subtopology(subtopology: Any) -> Subtopology:
    return Subtopology(
        subtopology.subtopology_id,
        list(subtopology.source_topics),
        [topic.name for topic in subtopology.repartition_source_topics],
        list(subtopology.repartition_sink_topics),
        [topic.name for topic in subtopology.state_changelog_topics],
    )


def _member(member: Any, inputs: Mapping[str, Sequence[str]]) -> StreamsMember:
    tasks = member.assignment
    active = _tasks(tasks.active_tasks)
    partitions = {topic: numbers for name, numbers in active.items() for topic in inputs.get(name, ())}
    return StreamsMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id,
        partitions,
        member.process_id,
        member.member_epoch,
        member.topology_epoch,
        active,
        _tasks(tasks.standby_tasks),
        _tasks(tasks.warmup_tasks),
    )


def _tasks(tasks: Iterable[Any]) -> dict[str, list[int]]:
    return {each.subtopology_id: list(each.partitions) for each in tasks}
