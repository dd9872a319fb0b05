"""Deletion of topics: for good, or so that a topic can come back during its undelete window.

A topic without a window becomes pending delete at once: no query finds its partitions any more, and its extents are
dropped step by step.

A topic with a window becomes recoverable: its name is free, and no client reads or writes it. The state keeps all of
it, with the offsets that groups had committed in it. `undelete_topic` brings it back as it was.

The window ends when both the machine's clock and a janitor's have passed it. The janitor's next step then makes the
topic pending delete; until then it can come back.
"""

from penstock.contracts.commands import (
    DeleteTopic,
    Done,
    DropExtents,
    ExtentsDropped,
    Rejected,
    TopicCreated,
    UndeleteTopic,
)
from penstock.contracts.configs.topics import undelete_window_ms
from penstock.contracts.ids import NO_TOPIC_ID, TopicId
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.all_groups.commands import change_topic
from penstock_sequencer.core.groups.offset_commit import put_back_offsets, release_offsets, remove_offsets, take_offsets
from penstock_sequencer.core.log.producer_table import remove_producers
from penstock_sequencer.core.log.reclaim import agreed_ms, drop_waiting, is_waiting, mark_pending_delete
from penstock_sequencer.core.share.group import remove_deleted_topic
from penstock_sequencer.core.state.cluster import Changes, RecoverableTopic, State, Topic
from penstock_sequencer.core.state.limits import INTEGER_MAX
from penstock_sequencer.core.topics.topics import enter_topic, leave_topic, name_validation_error, topic_made


def delete_topic(state: State, command: DeleteTopic, changes: Changes) -> Done | Rejected:
    """Delete the topic with its log, its producers and all groups' offsets in it.

    Its extents are dropped step by step. For the id of a deleted topic the outcome is Done: the command was sent again.
    """
    topic = state.topics.get(command.name) if command.name else state.topics_by_id.get(command.topic_id)
    if topic is None and not command.name and _was_deleted(state, command.topic_id):
        return Done()
    if topic is None:
        return Rejected(Rejection.UNKNOWN_TOPIC, "This server does not host this topic-partition.")
    window_ms = _window_ms(state, topic)
    recoverable_max = state.limits.topics.recoverable_topics_max
    if window_ms and len(state.recoverable) >= recoverable_max:
        return Rejected(Rejection.OVERLOADED, f"{recoverable_max} deleted topics are recoverable, which is the limit")
    leave_topic(state, topic)
    _record_deleted(state, topic.topic_id)
    if window_ms:
        _make_recoverable(state, topic, window_ms)
    else:
        for group in state.groups.values():
            if topic.name in group.offsets:
                remove_offsets(state, group, topic.name)
        _mark_pending_delete(state, topic)
        drop_waiting(state)
    changes.topics[topic.name] = None
    change_topic(state, topic.name, changes)
    return Done()


def undelete_topic(state: State, command: UndeleteTopic, changes: Changes) -> TopicCreated | Rejected:
    """Bring the topic back as it was, also for its groups.

    For the id of an existing topic the command is done already. A command that comes late does not bring the topic back
    if the topic was deleted again since.
    """
    existing = state.topics_by_id.get(command.topic_id)
    if existing is not None and command.name in ("", existing.name):
        return topic_made(existing)
    recoverable = _find_recoverable(state, command)
    if recoverable is None:
        topic_name = f"'{command.name[:256]}'" if command.name else command.topic_id.hex()
        return Rejected(Rejection.UNKNOWN_TOPIC, f"No deleted topic {topic_name} can come back.")
    topic = recoverable.topic
    if 0 <= command.seen_sequence < recoverable.deleted_sequence:
        return Rejected(Rejection.STALE, f"Topic '{topic.name}' has been deleted since.")
    if topic.name in state.topics:
        return Rejected(Rejection.TOPIC_EXISTS, f"Topic '{topic.name}' already exists.")
    validation_error = name_validation_error(state, topic.name)
    if validation_error is not None:
        return validation_error
    del state.recoverable[topic.topic_id]
    state.deleted_topics.pop(topic.topic_id, None)
    enter_topic(state, topic)
    for group_id, offsets in recoverable.offsets.items():
        put_back_offsets(state, group_id, topic.name, offsets)
    changes.topics[topic.name] = None
    change_topic(state, topic.name, changes, is_new=True)
    return topic_made(topic)


def drop_extents(state: State, command: DropExtents, changes: Changes) -> ExtentsDropped:
    """Take one step: topics whose window has ended become pending delete, and waiting extents are dropped."""
    clock_ms = agreed_ms(state, command.now_ms)
    _end_windows(state, clock_ms)
    extents, dropped_bytes = drop_waiting(state)
    return ExtentsDropped(extents, dropped_bytes, is_waiting(state) or next_window_ms(state) <= clock_ms)


def next_window_ms(state: State) -> int:
    """When the first open window ends; INTEGER_MAX if none is open."""
    return min((each.until_ms for each in state.recoverable.values()), default=INTEGER_MAX)


def _end_windows(state: State, clock_ms: int) -> None:
    over: list[RecoverableTopic] = []
    partitions, partitions_max = 0, state.limits.topics.partitions_pending_delete_per_step
    for recoverable in state.recoverable.values():
        if recoverable.until_ms <= clock_ms and partitions < partitions_max:
            over.append(recoverable)
            partitions += len(recoverable.topic.partitions)
    for recoverable in over:
        del state.recoverable[recoverable.topic.topic_id]
        for offsets in recoverable.offsets.values():
            release_offsets(state, offsets)
        _mark_pending_delete(state, recoverable.topic)


def remove_deleted_topics(state: State) -> None:
    """Remove the ids of deleted topics that clients no longer send commands for."""
    deleted = state.deleted_topics
    while deleted:
        topic_id = next(iter(deleted))
        if deleted[topic_id] >= state.clock_ms:
            return
        del deleted[topic_id]


def _window_ms(state: State, topic: Topic) -> int:
    return undelete_window_ms(topic.configs, state.cluster_configs) if state.level >= JANITOR_LEVEL else 0


def _was_deleted(state: State, topic_id: TopicId) -> bool:
    return topic_id in state.deleted_topics or topic_id in state.recoverable


def _record_deleted(state: State, topic_id: TopicId) -> None:
    deleted = state.deleted_topics
    if len(deleted) >= state.limits.topics.deleted_topics_max:
        del deleted[next(iter(deleted))]
    deleted[topic_id] = state.clock_ms + state.limits.topics.deleted_topic_memory_ms


def _make_recoverable(state: State, topic: Topic, window_ms: int) -> None:
    offsets = {
        group.group_id: take_offsets(state, group, topic.name)
        for group in state.groups.values()
        if topic.name in group.offsets
    }
    until_ms = min(state.clock_ms + window_ms, INTEGER_MAX)
    state.recoverable[topic.topic_id] = RecoverableTopic(topic, state.clock_ms, until_ms, offsets, state.sequence)


def _mark_pending_delete(state: State, topic: Topic) -> None:
    remove_deleted_topic(state, topic.topic_id)
    for partition in topic.partitions:
        remove_producers(state, partition)
    mark_pending_delete(state, topic.partitions)


def _find_recoverable(state: State, command: UndeleteTopic) -> RecoverableTopic | None:
    """The recoverable topic by its id, or the one that was deleted last under the name."""
    if command.topic_id != NO_TOPIC_ID:
        by_id = state.recoverable.get(command.topic_id)
        return by_id if by_id is not None and command.name in ("", by_id.topic.name) else None
    return next((each for each in reversed(state.recoverable.values()) if each.topic.name == command.name), None)
