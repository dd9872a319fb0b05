"""Topics: making, growing and deleting them, and letting go of what a deleted one held."""

from penstock.contracts.commands import CreatePartitions, CreateTopic, DeleteTopic, Done, Refused, TopicCreated
from penstock.contracts.ids import ID_BYTES, NO_TOPIC_ID, TopicId, is_legal_topic_name
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.refusals import Refusal
from penstock.contracts.topic_configs import objections
from sequencer.core import configs
from sequencer.core.dropping import doom, drop_waiting
from sequencer.core.group_offsets import forget_offsets
from sequencer.core.limits import (
    DEFAULT_PARTITIONS,
    DELETED_TOPIC_MEMORY_MS,
    DELETED_TOPICS_MAX,
    PARTITIONS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
)
from sequencer.core.partitions import new_partition
from sequencer.core.producers import forget_producers
from sequencer.core.state import Changes, State, Topic


def create_topic(state: State, command: CreateTopic, changes: Changes) -> TopicCreated | Refused:
    """A new topic; one that exists with the same id was made by this very command."""
    answer = check_create_topic(state, command)
    if isinstance(answer, Refused) or command.name in state.topics:
        return answer
    partitions = [new_partition(state, command.topic_id, number) for number in range(answer.partitions)]
    altered_sequence = state.sequence if state.level >= JANITOR_LEVEL else 0
    topic = Topic(command.name, command.topic_id, partitions, dict(command.configs), altered_sequence)
    state.topics[topic.name] = topic
    state.topics_by_id[topic.topic_id] = topic
    state.topics_by_metric_name[metric_name(topic.name)] = topic
    state.partition_count += len(partitions)
    changes.topics[topic.name] = None
    return answer


def check_create_topic(state: State, command: CreateTopic) -> TopicCreated | Refused:
    """What `create_topic` would answer."""
    existing = state.topics.get(command.name)
    if existing is not None:
        if existing.topic_id == command.topic_id:
            return TopicCreated(existing.topic_id, len(existing.partitions), existing.configs)
        return Refused(Refusal.TOPIC_EXISTS, f"Topic '{command.name}' already exists.")
    return (
        _name_objection(state, command.name)
        or _id_objection(state, command.topic_id)
        or _partitions_objection(state, command.partitions)
        or configs.objection(objections(command.configs))
        or configs.level_objection(state, command.configs)
        or TopicCreated(command.topic_id, _partition_count(command.partitions), command.configs)
    )


def create_partitions(state: State, command: CreatePartitions, changes: Changes) -> Done | Refused:
    """The topic grows."""
    answer = check_create_partitions(state, command)
    if isinstance(answer, Done):
        topic = state.topics[command.name]
        before = len(topic.partitions)
        topic.partitions.extend(new_partition(state, topic.topic_id, number) for number in range(before, command.count))
        state.partition_count += command.count - before
        changes.topics[topic.name] = None
    return answer


def check_create_partitions(state: State, command: CreatePartitions) -> Done | Refused:
    """What `create_partitions` would answer."""
    topic = state.topics.get(command.name)
    if topic is None:
        return Refused(Refusal.UNKNOWN_TOPIC, f"The topic '{command.name}' does not exist.")
    before, count = len(topic.partitions), command.count
    if count == before:
        return Refused(Refusal.INVALID_PARTITIONS, f"Topic already has {before} partitions.")
    if count < before:
        message = f"The topic {topic.name} currently has {before} partition(s); {count} would not be an increase."
        return Refused(Refusal.INVALID_PARTITIONS, message)
    if count > PARTITIONS_PER_TOPIC_MAX or state.partition_count + count - before > PARTITIONS_MAX:
        return Refused(Refusal.INVALID_PARTITIONS, _too_many(count))
    return Done()


def delete_topic(state: State, command: DeleteTopic, changes: Changes) -> Done | Refused:
    """The topic, its log, its producers and every group's offsets in it go; its extents step by step.

    By an id that was deleted it is done already: the command was sent again.
    """
    topic = state.topics.get(command.name) if command.name else state.topics_by_id.get(command.topic_id)
    if topic is None and not command.name and command.topic_id in state.deleted_topics:
        return Done()
    if topic is None:
        return Refused(Refusal.UNKNOWN_TOPIC, "This server does not host this topic-partition.")
    del state.topics[topic.name]
    del state.topics_by_id[topic.topic_id]
    del state.topics_by_metric_name[metric_name(topic.name)]
    _note_deleted(state, topic.topic_id)
    for partition in topic.partitions:
        forget_producers(state, partition)
    doom(state, topic.partitions)
    for group in state.groups.values():
        if topic.name in group.offsets:
            forget_offsets(state, group, topic.name)
    drop_waiting(state)
    changes.topics[topic.name] = None
    return Done()


def forget_deleted_topics(state: State) -> None:
    """Forget ids that nobody sends for any more."""
    deleted = state.deleted_topics
    while deleted:
        topic_id = next(iter(deleted))
        if deleted[topic_id] >= state.clock_ms:
            return
        del deleted[topic_id]


def _note_deleted(state: State, topic_id: TopicId) -> None:
    deleted = state.deleted_topics
    if len(deleted) >= DELETED_TOPICS_MAX:
        del deleted[next(iter(deleted))]
    deleted[topic_id] = state.clock_ms + DELETED_TOPIC_MEMORY_MS


def metric_name(name: str) -> str:
    """Names that differ in nothing else collide, as Kafka's metrics would."""
    return name.replace(".", "_")


def _name_objection(state: State, name: str) -> Refused | None:
    if not is_legal_topic_name(name):
        return Refused(Refusal.INVALID_TOPIC, f"Topic name '{name[:256]}' is illegal.")
    other = state.topics_by_metric_name.get(metric_name(name))
    if other is not None:
        return Refused(Refusal.INVALID_TOPIC, f"Topic '{name}' collides with existing topics: {other.name}")
    return None


def _id_objection(state: State, topic_id: TopicId) -> Refused | None:
    if len(topic_id) != ID_BYTES or topic_id == NO_TOPIC_ID:
        return Refused(Refusal.INVALID_REQUEST, f"not a topic id: {topic_id[:ID_BYTES].hex()}")
    if topic_id in state.topics_by_id or topic_id in state.deleted_topics:
        return Refused(Refusal.INVALID_REQUEST, f"topic id {topic_id.hex()} was used before")
    return None


def _partition_count(asked: int) -> int:
    return DEFAULT_PARTITIONS if asked == -1 else asked


def _partitions_objection(state: State, asked: int) -> Refused | None:
    count = _partition_count(asked)
    if count < 1:
        return Refused(Refusal.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if count > PARTITIONS_PER_TOPIC_MAX or state.partition_count + count > PARTITIONS_MAX:
        return Refused(Refusal.INVALID_PARTITIONS, _too_many(count))
    return None


def _too_many(count: int) -> str:
    return f"{count} partitions are too many: {PARTITIONS_PER_TOPIC_MAX} per topic, {PARTITIONS_MAX} in all."
