"""The numbers of partitions and tasks that follow from a topology and the existing topics, as in Kafka.

A repartition topic may have no fixed number of partitions. It gets the largest number among the sources of the
subtopologies that write to it. Topics that must be copartitioned then get the same number. A subtopology has as many
tasks as its largest source has partitions, and so have its changelog topics.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import msgspec

from penstock.contracts.commands import InternalTopic, StreamsStatus, Subtopology, Topology
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.streams_group import Configured

_NAMES_SHOWN = 3
_Counts = dict[str, int]


class _WrongTopics(Exception):
    """The topics do not fit the topology."""

    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _BrokenTopology(Exception):
    """No topics could fit the topology."""


def topology_error(topology: Topology) -> str:
    """Why no group can have the topology, in Kafka's words; "" if one can."""
    seen: dict[str, None] = {}
    for each in topology.subtopologies:
        if each.subtopology_id in seen:
            return f"Subtopology {each.subtopology_id} occurs twice."
        seen[each.subtopology_id] = None
        for topic in each.changelog_topics:
            if topic.partitions:
                return (
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )
        if any(topic.partitions < 0 for topic in each.repartition_source_topics):
            return f"A repartition topic of subtopology {each.subtopology_id} has a negative number of partitions."
        if not each.source_topics and not each.repartition_source_topics:
            return f"No source topics found for subtopology {each.subtopology_id}"
        read = {*source_names(each)}
        strange = [name for group in each.copartition_groups for name in group if name not in read]
        if strange:
            text = f"A copartition group of subtopology {each.subtopology_id} names {strange[0]}"
            return f"{text}, which is none of its source topics."
    try:
        _repartition_counts(topology, {name: 1 for each in topology.subtopologies for name in each.source_topics})
    except _BrokenTopology as error:
        return str(error)
    return ""


def required_topics(topology: Topology) -> dict[str, None]:
    """The names of all topics that the topology reads, and of its changelog topics."""
    names: dict[str, None] = {}
    for each in topology.subtopologies:
        names |= dict.fromkeys(source_names(each))
        names |= dict.fromkeys(topic.name for topic in each.changelog_topics)
    return names


def source_subtopologies(topology: Topology) -> dict[str, str]:
    """The subtopology that reads each topic."""
    return {name: each.subtopology_id for each in topology.subtopologies for name in source_names(each)}


def configure(state: State, topology: Topology) -> Configured:
    """Compare the topology, which has no `topology_error`, with the existing topics."""
    existing = {name: len(state.topics[name].partitions) for name in required_topics(topology) if name in state.topics}
    try:
        return _configured(topology, existing, state.limits.streams.tasks_max)
    except _WrongTopics as error:
        return Configured((error.status, str(error)), {}, {}, [])


def _configured(topology: Topology, existing: _Counts, tasks_max: int) -> Configured:
    sources = {name for each in topology.subtopologies for name in each.source_topics}
    missing = sorted(name for name in sources if name not in existing)
    if missing:
        raise _WrongTopics(StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {_listed(missing)} are missing.")
    decided = _repartition_counts(topology, existing)
    _copartition(topology, existing, decided)
    tasks: dict[str, int] = {}
    for each in topology.subtopologies:
        tasks[each.subtopology_id] = max(_count(name, existing, decided) for name in source_names(each))
        decided |= {topic.name: tasks[each.subtopology_id] for topic in each.changelog_topics}
    if sum(tasks.values()) > tasks_max:
        detail = f"The topology has {sum(tasks.values())} tasks; at most {tasks_max} are allowed."
        raise _WrongTopics(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
    internal = {topic.name: _with_count(topic, decided) for topic in _internal_topics(topology)}
    for name, topic in sorted(internal.items()):
        if existing.get(name, topic.partitions) != topic.partitions:
            detail = f"Existing topic {name} has different number of partitions: "
            detail += f"expected {topic.partitions}, found {existing[name]}"
            raise _WrongTopics(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
    absent = [topic for name, topic in sorted(internal.items()) if name not in existing]
    counts = {name: topic.partitions for name, topic in internal.items()}
    if not absent:
        return Configured(None, tasks, counts, [])
    detail = f"Internal topics are missing: {_listed([topic.name for topic in absent])}"
    return Configured((StreamsStatus.MISSING_INTERNAL_TOPICS, detail), tasks, counts, absent)


def source_names(subtopology: Subtopology) -> Iterator[str]:
    """The names of all topics that the subtopology reads, as often as it names them."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def _internal_topics(topology: Topology) -> Iterator[InternalTopic]:
    for each in topology.subtopologies:
        yield from each.repartition_source_topics
        yield from each.changelog_topics


def _with_count(topic: InternalTopic, decided: _Counts) -> InternalTopic:
    return msgspec.structs.replace(topic, partitions=topic.partitions or decided[topic.name])


def _count(name: str, existing: _Counts, decided: _Counts) -> int:
    """The number of partitions that the topic has or will have."""
    return existing[name] if name in existing else decided[name]


def _repartition_counts(topology: Topology, existing: _Counts) -> _Counts:
    """The numbers of partitions of all repartition topics; those of the sources in `existing` are known."""
    decided = {
        topic.name: topic.partitions
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    _decide(topology, existing, decided)
    if any(name not in decided for each in topology.subtopologies for name in each.repartition_sink_topics):
        raise _BrokenTopology(
            "Failed to compute number of partitions for all repartition topics. "
            "There may be loops in the topology that cannot be resolved."
        )
    read = [topic.name for each in topology.subtopologies for topic in each.repartition_source_topics]
    if any(name not in decided for name in read):
        raise _BrokenTopology(
            "Failed to compute number of partitions for all repartition topics, "
            "because a repartition source topic is never used as a sink topic."
        )
    return decided


def _decide(topology: Topology, existing: _Counts, decided: _Counts) -> None:
    """Decide the numbers of repartition topics, as in Kafka: round by round, each in the order of subtopologies.

    A subtopology decides its sinks as soon as the number of one of its sources is known. It waits in a heap for that,
    by round and place. So a long chain takes no walk over all subtopologies in each round.
    """
    subtopologies = topology.subtopologies
    readers: dict[str, list[int]] = {}
    for place, each in enumerate(subtopologies):
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(place)
    due = [(0, place) for place, each in enumerate(subtopologies) if _known_counts(each, existing, decided)]
    has_decided = [False] * len(subtopologies)
    while due:
        now, place = heappop(due)
        if has_decided[place]:
            continue
        has_decided[place], each = True, subtopologies[place]
        sinks = dict.fromkeys(name for name in each.repartition_sink_topics if name not in decided)
        decided |= dict.fromkeys(sinks, max(_known_counts(each, existing, decided)))
        for reader in (reader for name in sinks for reader in readers.get(name, ())):
            heappush(due, (now if reader > place else now + 1, reader))


def _known_counts(subtopology: Subtopology, existing: _Counts, decided: _Counts) -> list[int]:
    """The numbers of partitions of its sources, as far as they are known."""
    known = [decided[topic.name] for topic in subtopology.repartition_source_topics if topic.name in decided]
    return known + [existing[name] for name in subtopology.source_topics if name in existing]


def _copartition(topology: Topology, existing: _Counts, decided: _Counts) -> None:
    """Give repartition topics the numbers that their copartition groups demand."""
    repartition = {topic.name: topic for each in topology.subtopologies for topic in each.repartition_source_topics}
    for each in topology.subtopologies:
        for group in each.copartition_groups:
            fixed = [name for name in group if name in repartition and repartition[name].partitions]
            given = [name for name in group if name not in repartition] or fixed
            if given:
                wanted = _same_count(given, existing, decided)
            else:
                wanted = max((_count(name, existing, decided) for name in group), default=0)
            for name in group:
                if name in fixed and _count(name, existing, decided) != wanted:
                    detail = f"Number of partitions [{_count(name, existing, decided)}] of repartition topic [{name}] "
                    detail += f"doesn't match number of partitions [{wanted}] of the source topic."
                    raise _WrongTopics(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
                if name in repartition:
                    decided[name] = wanted


def _same_count(names: list[str], existing: _Counts, decided: _Counts) -> int:
    counts = {name: _count(name, existing, decided) for name in sorted(names)}
    wanted = counts[names[0]]
    if any(count != wanted for count in counts.values()):
        listed = ", ".join(f"{name}={count}" for name, count in counts.items())
        detail = f"Following topics do not have the same number of partitions: [{{{listed}}}]"
        raise _WrongTopics(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
    return wanted


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    rest = len(found) - _NAMES_SHOWN
    return ", ".join(found[:_NAMES_SHOWN]) + (f" and {rest} additional topics" if rest > 0 else "")
