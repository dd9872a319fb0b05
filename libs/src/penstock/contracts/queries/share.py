"""Questions about share groups (KIP-932)."""

import msgspec

from penstock.contracts.commands.consumer_groups import TopicPartitions
from penstock.contracts.commands.outcomes import Rejected
from penstock.contracts.commands.share import OffsetRange, ShareHeartbeat, ShareMembership
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection

WINDOWS_PER_PARTITION_MAX = 64


class ShareHeartbeatQuery(msgspec.Struct, frozen=True, array_like=True):
    """A member says that it lives; never journaled."""

    min_sequence: int
    heartbeat: ShareHeartbeat
    fresh: bool = False


class ShareHeartbeatView(msgspec.Struct, frozen=True, array_like=True):
    """The answer; None where the heartbeat changes something and so is to be journaled."""

    sequence: int
    outcome: ShareMembership | Rejected | None
    failure: str | None = None


class SharePartitionRef(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a member would like to fetch."""

    topic_id: TopicId
    partition: int


class SharePartitionsQuery(msgspec.Struct, frozen=True, array_like=True):
    """What the group could acquire now of these partitions, answered at once.

    Whoever is assigned a partition has begun to share it; one that nobody has been assigned yet has nothing.
    """

    min_sequence: int
    group_id: str
    member_id: str
    partitions: list[SharePartitionRef]


class SharePartitionView(msgspec.Struct, frozen=True, array_like=True):
    """Offsets that a member could acquire now: ascending windows, the first WINDOWS_PER_PARTITION_MAX of them.

    The last may be what lies behind all that is in flight; it is cut to what the group may have in flight. No windows:
    there is nothing, or enough in flight.
    """

    rejection: Rejection  # NONE, UNKNOWN_TOPIC
    start_offset: int  # below it all is done with (Kafka's SPSO)
    end_offset: int  # nothing from here on was ever acquired (behind Kafka's SPEO)
    high_watermark: int  # or the last stable offset: where the group's records end now
    windows: list[OffsetRange]


class SharePartitionsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per partition, in the query's order."""

    sequence: int
    partitions: list[SharePartitionView]
    read_committed: bool = False  # the group's `share.isolation.level`
    rejection: Rejection = Rejection.NONE  # UNKNOWN_GROUP, UNKNOWN_MEMBER: it is told nothing of partitions then
    failure: str | None = None


class ShareGroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Share groups by id."""

    min_sequence: int
    group_ids: list[str]
    fresh: bool = False


class ShareMemberView(msgspec.Struct, frozen=True, array_like=True):
    """A member as an administrator sees it."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: list[str]
    assigned: list[TopicPartitions]


class ShareGroupView(msgspec.Struct, frozen=True, array_like=True):
    """A group as an administrator sees it; `state` is "" where there is no share group of that id, or Empty, Stable."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[ShareMemberView]
    topic_names: list[tuple[bytes, str]]  # of the topics that the members have


class ShareGroupsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per id, in the query's order."""

    sequence: int
    groups: list[ShareGroupView]
    failure: str | None = None


class ShareOffsetTopic(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic, by its name."""

    topic: str
    partitions: list[int]


class ShareOffsetsQuery(msgspec.Struct, frozen=True, array_like=True):
    """Where a group is; `topics` None is all that it has begun to share."""

    min_sequence: int
    group_id: str
    topics: list[ShareOffsetTopic] | None
    fresh: bool = False


class ShareOffsetView(msgspec.Struct, frozen=True, array_like=True):
    """`start_offset` and `lag` -1 where the group has not begun to share the partition."""

    topic: str
    topic_id: TopicId
    partition: int
    rejection: Rejection  # NONE, UNKNOWN_TOPIC
    start_offset: int
    lag: int  # offsets that are not done with
    leader_epoch: int


class ShareOffsetsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per partition, in the query's order."""

    sequence: int
    offsets: list[ShareOffsetView]
    rejection: Rejection = Rejection.NONE  # UNKNOWN_GROUP
    failure: str | None = None
