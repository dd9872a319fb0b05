"""Surveys for consoles: topics with their offsets and sizes, and groups with their lag."""

from collections.abc import Iterable
from itertools import chain

from penstock.contracts.queries.survey import (
    UNKNOWN_TIME,
    GroupSurvey,
    GroupSurveyQuery,
    GroupSurveyView,
    GroupTopicSurvey,
    TopicSurvey,
    TopicSurveyQuery,
    TopicSurveyView,
)
from penstock_sequencer.core.log.control_markers import is_marker
from penstock_sequencer.core.share.group import state_of
from penstock_sequencer.core.state.cluster import Group, Partition, State, Topic
from penstock_sequencer.core.state.extents import Extents
from penstock_sequencer.core.state.group_sizes import members_of
from penstock_sequencer.core.state.pages import NUMBER_BYTES, page_of, text_bytes
from penstock_sequencer.core.state.share_group import ShareGroup

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
_NUMBERS_PER_PARTITION = 4
_NUMBERS_PER_ITEM = 4


def topic_survey(state: State, query: TopicSurveyQuery) -> TopicSurveyView:
    """One page of all topics."""
    names, is_more = page_of(
        state.topics, query.after, state.limits.answers, lambda name: _topic_bytes(state.topics[name])
    )
    topics = [_topic(state.topics[name]) for name in names]
    return TopicSurveyView(state.sequence, state.clock_ms, topics, is_more=is_more)


def _topic(topic: Topic) -> TopicSurvey:
    partitions = topic.partitions
    newest_ms = max((_newest_ms(each.extents) for each in partitions), default=UNKNOWN_TIME)
    return TopicSurvey(
        topic.name,
        topic.topic_id,
        topic.configs,
        [each.log_start_offset for each in partitions],
        [each.high_watermark for each in partitions],
        [each.size_bytes for each in partitions],
        newest_ms,
    )


def _newest_ms(extents: Extents) -> int:
    row = extents.find_latest()
    # The time of a marker is below all times.
    return UNKNOWN_TIME if row == extents.end else max(extents.timestamps[row], UNKNOWN_TIME)


def _topic_bytes(topic: Topic) -> int:
    configs = sum(text_bytes(key) + text_bytes(value) for key, value in topic.configs.items())
    numbers = _NUMBERS_PER_ITEM + _NUMBERS_PER_PARTITION * len(topic.partitions)
    return text_bytes(topic.name) + len(topic.topic_id) + configs + NUMBER_BYTES * numbers


def group_survey(state: State, query: GroupSurveyQuery) -> GroupSurveyView:
    """One page of all groups; no two groups of different kinds have the same id."""
    names, is_more = page_of(
        chain(state.groups, state.share_groups),
        query.after,
        state.limits.answers,
        lambda group_id: _group_bytes(state, group_id),
    )
    groups = [_group(state, group_id) for group_id in names]
    return GroupSurveyView(state.sequence, state.clock_ms, groups, is_more=is_more)


def _group(state: State, group_id: str) -> GroupSurvey:
    group = state.groups.get(group_id)
    if group is None:
        return _share_group(state, state.share_groups[group_id])
    kind = CLASSIC if group.consumer is None else CONSUMER
    kind = kind if group.streams is None else STREAMS
    members = list(members_of(group))
    topics = [
        _lag_of(topic, ((number, each.offset) for number, each in offsets.items()))
        for name, offsets in group.offsets.items()
        if (topic := state.topics.get(name)) is not None
    ]
    return GroupSurvey(group_id, kind, group.state, len(members), topics)


def _share_group(state: State, group: ShareGroup) -> GroupSurvey:
    topics = [
        _lag_of(topic, ((number, share.start) for number, share in shares.items()))
        for topic_id, shares in group.partitions.items()
        if (topic := state.topics_by_id.get(topic_id)) is not None
    ]
    return GroupSurvey(group.group_id, SHARE, state_of(group), len(group.members), topics)


def _lag_of(topic: Topic, offsets: Iterable[tuple[int, int]]) -> GroupTopicSurvey:
    """The lag in the partitions that still exist."""
    found = GroupTopicSurvey(topic.name, [], [], [], [])
    for number, offset in offsets:
        if number >= len(topic.partitions):
            continue
        partition = topic.partitions[number]
        first = max(offset, partition.log_start_offset)
        found.partitions.append(number)
        found.offsets.append(offset)
        found.lags.append(max(partition.high_watermark - first, 0))
        found.oldest_ms.append(_time_at(partition, first))
    return found


def _time_at(partition: Partition, offset: int) -> int:
    """The estimated time of the first record from an offset on; UNKNOWN_TIME if there is none. Markers have no time."""
    extents: Extents = partition.extents
    row, end = extents.find_offset(offset), extents.end
    while row < end and is_marker(partition, row):
        row += 1
    if row == end:
        return UNKNOWN_TIME
    before = row - 1
    while before >= extents.head and is_marker(partition, before):
        before -= 1
    newest_ms = extents.timestamps[row]
    before_ms = extents.timestamps[before] if before >= extents.head else newest_ms
    if not 0 <= before_ms < newest_ms:
        return max(newest_ms, UNKNOWN_TIME)
    first, last = extents.base_offsets[row], extents.last_offsets[row]
    return before_ms + (newest_ms - before_ms) * (max(offset, first) - first + 1) // (last - first + 1)


def _group_bytes(state: State, group_id: str) -> int:
    group: Group | None = state.groups.get(group_id)
    if group is not None:
        topics = [(text_bytes(name), len(offsets)) for name, offsets in group.offsets.items()]
    else:
        shares = state.share_groups[group_id].partitions
        topics = [
            (text_bytes(topic.name), len(partitions))
            for topic_id, partitions in shares.items()
            if (topic := state.topics_by_id.get(topic_id)) is not None
        ]
    numbers = _NUMBERS_PER_ITEM + _NUMBERS_PER_PARTITION * sum(count + 1 for _, count in topics)
    return text_bytes(group_id) + sum(size for size, _ in topics) + NUMBER_BYTES * numbers
