"""Queries of consoles: all topics with their offsets and sizes, and all groups with their lag."""

import msgspec

from penstock.contracts.ids import TopicId

UNKNOWN_TIME = -1


class TopicSurveyQuery(msgspec.Struct, frozen=True, array_like=True):
    """Topics with names greater than `after`, in pages ordered by name."""

    min_sequence: int
    after: str = ""
    fresh: bool = False


class TopicSurvey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A topic. Each list has one item per partition."""

    name: str
    topic_id: TopicId
    configs: dict[str, str]  # the values that were set, not the defaults
    log_start_offsets: list[int]
    high_watermarks: list[int]
    size_bytes: list[int]
    newest_ms: int  # the newest timestamp of all records, UNKNOWN_TIME without records


class TopicSurveyView(msgspec.Struct, frozen=True, array_like=True):
    """One page of topics; `clock_ms` is the state machine's clock."""

    sequence: int
    clock_ms: int
    topics: list[TopicSurvey]
    failure: str | None = None
    is_more: bool = False  # there are more after the last of these


class GroupSurveyQuery(msgspec.Struct, frozen=True, array_like=True):
    """Groups of all kinds with ids greater than `after`, in pages ordered by id."""

    min_sequence: int
    after: str = ""
    fresh: bool = False


class GroupTopicSurvey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The partitions of one topic in which a group has an offset."""

    topic: str
    partitions: list[int]
    offsets: list[int]  # committed; of a share group the first offset that is not done
    lags: list[int]  # offsets from there to the high watermark
    # An estimate of the time of the oldest record that is not consumed: its place in its extent, between the newest
    # times of that extent and of the one before. UNKNOWN_TIME where there is no such record.
    oldest_ms: list[int]


class GroupSurvey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group; the kind is `classic`, `consumer` or `share`, the state is in Kafka's words."""

    group_id: str
    kind: str
    state: str
    members: int
    topics: list[GroupTopicSurvey]


class GroupSurveyView(msgspec.Struct, frozen=True, array_like=True):
    """One page of groups; `clock_ms` is the state machine's clock."""

    sequence: int
    clock_ms: int
    groups: list[GroupSurvey]
    failure: str | None = None
    is_more: bool = False  # there are more after the last of these
