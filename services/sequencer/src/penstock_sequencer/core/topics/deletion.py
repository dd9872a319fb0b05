"""Deleting topics: for good, or so that they can come back while their window is open.

A topic without a window is doomed at once: nobody finds its partitions any more, and its extents go step by step. One
with a window is buried: its name is free and nobody reads or writes it, but all that it was is kept, with the offsets
that groups had committed in it. `undelete_topic` brings it back as it was. When the window is over by the machine's
clock and a janitor's, the janitor's next step dooms it; until then it can come back.
"""

from penstock.contracts.commands import (
    DeleteTopic,
    Done,
    DropExtents,
    ExtentsDropped,
    Refused,
    TopicCreated,
    UndeleteTopic,
)
from penstock.contracts.configs.topics import undelete_window_ms
from penstock.contracts.ids import NO_TOPIC_ID, TopicId
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.rejections import Refusal
from penstock_sequencer.core.all_groups.commands import change_topic
from penstock_sequencer.core.groups.offset_commit import forget_offsets, put_back_offsets, release_offsets, take_offsets
from penstock_sequencer.core.log.extent_reclaim import agreed_ms, doom, drop_waiting, is_waiting
from penstock_sequencer.core.log.producers import forget_producers
from penstock_sequencer.core.share.group import forget_deleted_topic
from penstock_sequencer.core.state.cluster import Buried, Changes, State, Topic
from penstock_sequencer.core.state.limits import (
    BURIED_TOPICS_MAX,
    DELETED_TOPIC_MEMORY_MS,
    DELETED_TOPICS_MAX,
    INTEGER_MAX,
    PARTITIONS_DOOMED_PER_STEP,
)
from penstock_sequencer.core.topics.topics import enter_topic, leave_topic, name_objection, topic_made


def delete_topic(state: State, command: DeleteTopic, changes: Changes) -> Done | Refused:
    """The topic, its log, its producers and every group's offsets in it go; its extents step by step.

    By an id that was deleted it is done already: the command was sent again.
    """
    topic = state.topics.get(command.name) if command.name else state.topics_by_id.get(command.topic_id)
    if topic is None and not command.name and _was_deleted(state, command.topic_id):
        return Done()
    if topic is None:
        return Refused(Refusal.UNKNOWN_TOPIC, "This server does not host this topic-partition.")
    window_ms = _window_ms(state, topic)
    if window_ms and len(state.buried) >= BURIED_TOPICS_MAX:
        return Refused(Refusal.OVERLOADED, f"{BURIED_TOPICS_MAX} deleted topics can still come back, no more can")
    leave_topic(state, topic)
    _note_deleted(state, topic.topic_id)
    if window_ms:
        _bury(state, topic, window_ms)
    else:
        for group in state.groups.values():
            if topic.name in group.offsets:
                forget_offsets(state, group, topic.name)
        _doom(state, topic)
        drop_waiting(state)
    changes.topics[topic.name] = None
    change_topic(state, topic.name, changes)
    return Done()


def undelete_topic(state: State, command: UndeleteTopic, changes: Changes) -> TopicCreated | Refused:
    """The topic is as it was, also to its groups; by an id that exists it is done already.

    A command that comes late, after it was sent again and the topic then deleted anew, does not bring it back.
    """
    existing = state.topics_by_id.get(command.topic_id)
    if existing is not None and command.name in ("", existing.name):
        return topic_made(existing)
    buried = _find_buried(state, command)
    if buried is None:
        what = f"'{command.name[:256]}'" if command.name else command.topic_id.hex()
        return Refused(Refusal.UNKNOWN_TOPIC, f"No deleted topic {what} can come back.")
    topic = buried.topic
    if 0 <= command.seen_sequence < buried.deleted_sequence:
        return Refused(Refusal.STALE, f"Topic '{topic.name}' has been deleted since.")
    if topic.name in state.topics:
        return Refused(Refusal.TOPIC_EXISTS, f"Topic '{topic.name}' already exists.")
    objection = name_objection(state, topic.name)
    if objection is not None:
        return objection
    del state.buried[topic.topic_id]
    state.deleted_topics.pop(topic.topic_id, None)
    enter_topic(state, topic)
    for group_id, offsets in buried.offsets.items():
        put_back_offsets(state, group_id, topic.name, offsets)
    changes.topics[topic.name] = None
    change_topic(state, topic.name, changes, is_new=True)
    return topic_made(topic)


def drop_extents(state: State, command: DropExtents, changes: Changes) -> ExtentsDropped:
    """A step further: topics whose window is over are doomed, and extents that wait for it are dropped."""
    clock_ms = agreed_ms(state, command.now_ms)
    _end_windows(state, clock_ms)
    extents, dropped_bytes = drop_waiting(state)
    return ExtentsDropped(extents, dropped_bytes, is_waiting(state) or next_window_ms(state) <= clock_ms)


def next_window_ms(state: State) -> int:
    """When the first of the windows that are open ends; INTEGER_MAX if none is."""
    return min((each.until_ms for each in state.buried.values()), default=INTEGER_MAX)


def _end_windows(state: State, clock_ms: int) -> None:
    over: list[Buried] = []
    partitions = 0
    for buried in state.buried.values():
        if buried.until_ms <= clock_ms and partitions < PARTITIONS_DOOMED_PER_STEP:
            over.append(buried)
            partitions += len(buried.topic.partitions)
    for buried in over:
        del state.buried[buried.topic.topic_id]
        for offsets in buried.offsets.values():
            release_offsets(state, offsets)
        _doom(state, buried.topic)


def forget_deleted_topics(state: State) -> None:
    """Forget ids that nobody sends for any more."""
    deleted = state.deleted_topics
    while deleted:
        topic_id = next(iter(deleted))
        if deleted[topic_id] >= state.clock_ms:
            return
        del deleted[topic_id]


def _window_ms(state: State, topic: Topic) -> int:
    return undelete_window_ms(topic.configs, state.cluster_configs) if state.level >= JANITOR_LEVEL else 0


def _was_deleted(state: State, topic_id: TopicId) -> bool:
    return topic_id in state.deleted_topics or topic_id in state.buried


def _note_deleted(state: State, topic_id: TopicId) -> None:
    deleted = state.deleted_topics
    if len(deleted) >= DELETED_TOPICS_MAX:
        del deleted[next(iter(deleted))]
    deleted[topic_id] = state.clock_ms + DELETED_TOPIC_MEMORY_MS


def _bury(state: State, topic: Topic, window_ms: int) -> None:
    offsets = {
        group.group_id: take_offsets(state, group, topic.name)
        for group in state.groups.values()
        if topic.name in group.offsets
    }
    until_ms = min(state.clock_ms + window_ms, INTEGER_MAX)
    state.buried[topic.topic_id] = Buried(topic, state.clock_ms, until_ms, offsets, state.sequence)


def _doom(state: State, topic: Topic) -> None:
    forget_deleted_topic(state, topic.topic_id)
    for partition in topic.partitions:
        forget_producers(state, partition)
    doom(state, topic.partitions)


def _find_buried(state: State, command: UndeleteTopic) -> Buried | None:
    """By its id, or the one that was deleted last under the name."""
    if command.topic_id != NO_TOPIC_ID:
        by_id = state.buried.get(command.topic_id)
        return by_id if by_id is not None and command.name in ("", by_id.topic.name) else None
    return next((each for each in reversed(state.buried.values()) if each.topic.name == command.name), None)
