"""Topics: how to create and grow them, and the tables that find them."""

from penstock.contracts.commands import CreatePartitions, CreateTopic, Done, Rejected, TopicCreated
from penstock.contracts.configs.topics import validation_errors
from penstock.contracts.ids import ID_BYTES, NO_TOPIC_ID, TopicId, is_legal_topic_name
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.all_groups.commands import change_topic
from penstock_sequencer.core.log.partitions import new_partition
from penstock_sequencer.core.state.cluster import Changes, State, Topic
from penstock_sequencer.core.state.limits import DEFAULT_PARTITIONS
from penstock_sequencer.core.topics import configs


def create_topic(state: State, command: CreateTopic, changes: Changes) -> TopicCreated | Rejected:
    """Create the topic; an existing topic with the same id was created by this same command."""
    answer = check_create_topic(state, command)
    if isinstance(answer, Rejected) or command.name in state.topics:
        return answer
    partitions = [new_partition(state, command.topic_id, number) for number in range(answer.partitions)]
    altered_sequence = state.sequence if state.level >= JANITOR_LEVEL else 0
    topic = Topic(command.name, command.topic_id, partitions, dict(command.configs), altered_sequence)
    enter_topic(state, topic)
    state.partition_count += len(partitions)
    changes.topics[topic.name] = None
    change_topic(state, topic.name, changes, is_new=True)
    return answer


def check_create_topic(state: State, command: CreateTopic) -> TopicCreated | Rejected:
    """The outcome that `create_topic` would have."""
    existing = state.topics.get(command.name)
    if existing is not None:
        if existing.topic_id == command.topic_id:
            return topic_made(existing)
        return Rejected(Rejection.TOPIC_EXISTS, f"Topic '{command.name}' already exists.")
    return (
        name_validation_error(state, command.name)
        or _id_validation_error(state, command.topic_id)
        or _partitions_validation_error(state, command.partitions)
        or configs.validation_error(validation_errors(command.configs))
        or configs.level_validation_error(state, command.configs)
        or TopicCreated(command.topic_id, _partition_count(command.partitions), command.configs)
    )


def create_partitions(state: State, command: CreatePartitions, changes: Changes) -> Done | Rejected:
    """Add partitions to the topic."""
    answer = check_create_partitions(state, command)
    if isinstance(answer, Done):
        topic = state.topics[command.name]
        before = len(topic.partitions)
        topic.partitions.extend(new_partition(state, topic.topic_id, number) for number in range(before, command.count))
        state.partition_count += command.count - before
        changes.topics[topic.name] = None
        change_topic(state, topic.name, changes)
    return answer


def check_create_partitions(state: State, command: CreatePartitions) -> Done | Rejected:
    """The outcome that `create_partitions` would have."""
    topic = state.topics.get(command.name)
    if topic is None:
        return Rejected(Rejection.UNKNOWN_TOPIC, f"The topic '{command.name}' does not exist.")
    before, count = len(topic.partitions), command.count
    if count == before:
        return Rejected(Rejection.INVALID_PARTITIONS, f"Topic already has {before} partition(s).")
    if count < before:
        message = f"The topic {topic.name} currently has {before} partition(s); {count} would not be an increase."
        return Rejected(Rejection.INVALID_PARTITIONS, message)
    return _count_validation_error(state, count, count - before) or Done()


def enter_topic(state: State, topic: Topic) -> None:
    """Enter the topic in all tables that find it."""
    state.topics[topic.name] = topic
    state.topics_by_id[topic.topic_id] = topic
    state.topics_by_metric_name[metric_name(topic.name)] = topic


def leave_topic(state: State, topic: Topic) -> None:
    """Remove the topic from all tables that find it."""
    del state.topics[topic.name]
    del state.topics_by_id[topic.topic_id]
    del state.topics_by_metric_name[metric_name(topic.name)]


def topic_made(topic: Topic) -> TopicCreated:
    """The topic as the outcome reports it to the client."""
    return TopicCreated(topic.topic_id, len(topic.partitions), topic.configs)


def metric_name(name: str) -> str:
    """The name with '_' for '.': topic names that differ only in these collide in Kafka's metrics."""
    return name.replace(".", "_")


def name_validation_error(state: State, name: str) -> Rejected | None:
    """Why no new topic can have the name; None if one can."""
    if not is_legal_topic_name(name):
        return Rejected(Rejection.INVALID_TOPIC, f"Topic name '{name[:256]}' is illegal.")
    other = state.topics_by_metric_name.get(metric_name(name))
    if other is not None:
        return Rejected(Rejection.INVALID_TOPIC, f"Topic '{name}' collides with existing topic: {other.name}")
    return None


def _id_validation_error(state: State, topic_id: TopicId) -> Rejected | None:
    if len(topic_id) != ID_BYTES or topic_id == NO_TOPIC_ID:
        return Rejected(Rejection.INVALID_REQUEST, f"not a topic id: {topic_id[:ID_BYTES].hex()}")
    if topic_id in state.topics_by_id or topic_id in state.deleted_topics or topic_id in state.recoverable:
        return Rejected(Rejection.INVALID_REQUEST, f"topic id {topic_id.hex()} was used before")
    return None


def _partition_count(asked: int) -> int:
    return DEFAULT_PARTITIONS if asked == -1 else asked


def _partitions_validation_error(state: State, asked: int) -> Rejected | None:
    count = _partition_count(asked)
    if count < 1:
        return Rejected(Rejection.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    return _count_validation_error(state, count, count)


def _count_validation_error(state: State, count: int, growth: int) -> Rejected | None:
    """Why no topic can have `count` partitions, `growth` more than now; None if one can."""
    per_topic_max, in_all_max = state.limits.topics.partitions_per_topic_max, state.limits.topics.partitions_max
    if count <= per_topic_max and state.partition_count + growth <= in_all_max:
        return None
    message = f"{count} partitions are too many: {per_topic_max} per topic, {in_all_max} in all."
    return Rejected(Rejection.INVALID_PARTITIONS, message)
