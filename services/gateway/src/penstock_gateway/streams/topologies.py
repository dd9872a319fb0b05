"""Converts topologies and tasks between the messages of Kafka and the commands of the sequencers."""

from collections.abc import Sequence

from penstock.contracts.commands import InternalTopic, OwnedTasks, Subtopology, TaskIds, TaskOffset, Topology
from penstock.contracts.errors import Invalid
from penstock.kafkawire.api import streams_group_heartbeat as wire

# Groups and the topics in them: more of them exceed the size of a topology that the sequencers accept. An index of two
# bytes becomes a name, so a request could become a command a hundred times as large.
COPARTITIONED_MAX = 4_096
# Tasks and lists of them in one report. A group has at most 20,000 tasks, and a member has one as active, standby or
# warm-up task. The sequencers compare each with the member's tasks.
REPORTED_TASKS_MAX = 60_000


def topology_of(topology: wire.Topology) -> Topology:
    """The topology, in ascending order.

    `Invalid` if a copartition group names no topic of its subtopology, or if there are too many of them.
    """
    groups = [group for each in topology.subtopologies for group in each.copartition_groups]
    count = len(groups) + sum(len(each.source_topics) + len(each.repartition_source_topics) for each in groups)
    if count > COPARTITIONED_MAX:
        raise Invalid(
            f"a topology with {count} copartition groups and topics in them: the limit is {COPARTITIONED_MAX}"
        )
    subtopologies = [_subtopology(each) for each in topology.subtopologies]
    return Topology(topology.epoch, sorted(subtopologies, key=lambda each: each.subtopology_id))


def _subtopology(subtopology: wire.Subtopology) -> Subtopology:
    repartition = [topic.name for topic in subtopology.repartition_source_topics]
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        changelog_topics=_internal_topics(subtopology.state_changelog_topics),
        repartition_source_topics=_internal_topics(subtopology.repartition_source_topics),
        copartition_groups=sorted(
            _copartition_group(subtopology, repartition, group) for group in subtopology.copartition_groups
        ),
    )


def _internal_topics(topics: Sequence[wire.TopicInfo]) -> list[InternalTopic]:
    found = [
        InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            sorted((config.key, config.value) for config in topic.topic_configs),
        )
        for topic in topics
    ]
    return sorted(found, key=lambda topic: topic.name)


def _copartition_group(
    subtopology: wire.Subtopology, repartition: Sequence[str], group: wire.CopartitionGroup
) -> list[str]:
    """The names of the group's topics; `repartition` has those of the subtopology's repartition topics."""
    indexed: list[tuple[Sequence[str], int]]
    indexed = [(subtopology.source_topics, index) for index in group.source_topics]
    indexed += [(repartition, index) for index in group.repartition_source_topics]
    for names, index in indexed:
        if not 0 <= index < len(names):
            raise Invalid(f"a copartition group of subtopology {subtopology.subtopology_id} has no topic {index}")
    return sorted(names[index] for names, index in indexed)


def topics_of(topology: wire.Topology) -> list[str]:
    """The names of all topics that a topology reads or writes, each once."""
    names: dict[str, None] = {}
    for each in topology.subtopologies:
        names |= dict.fromkeys((*each.source_topics, *each.repartition_sink_topics))
        names |= dict.fromkeys(topic.name for topic in (*each.repartition_source_topics, *each.state_changelog_topics))
    return list(names)


def owned_tasks(request: wire.StreamsGroupHeartbeatRequest) -> OwnedTasks | None:
    """The tasks that the member reports, None for no report. `Invalid`: a list without the others, or too many."""
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        if any(each is not None for each in lists):
            raise Invalid("If one task-type is non-null, all must be non-null.")
        return None
    count = sum(1 + len(each.partitions) for listed in lists for each in listed or ())
    if count > REPORTED_TASKS_MAX:
        raise Invalid(f"{count} tasks and lists of tasks: the limit is {REPORTED_TASKS_MAX}")
    return OwnedTasks(_tasks(request.active_tasks), _tasks(request.standby_tasks), _tasks(request.warmup_tasks))


def _tasks(tasks: Sequence[wire.TaskIds]) -> list[TaskIds]:
    found = [TaskIds(each.subtopology_id, sorted(each.partitions)) for each in tasks if each.partitions]
    return sorted(found, key=lambda each: each.subtopology_id)


def tags_of(tags: Sequence[wire.KeyValue] | None) -> list[tuple[str, str]] | None:
    """The client's tags in ascending order, the last value of each key; None for no report."""
    return None if tags is None else sorted({tag.key: tag.value for tag in tags}.items())


def offsets_of(offsets: Sequence[wire.TaskOffset] | None) -> list[TaskOffset] | None:
    """The reported offsets of tasks in ascending order; None for no report."""
    if offsets is None:
        return None
    found = [TaskOffset(each.subtopology_id, each.partition, each.offset) for each in offsets]
    return sorted(found, key=lambda each: (each.subtopology_id, each.partition))
