"""Queries about share groups (KIP-932)."""

import msgspec

from penstock.contracts.commands.consumer_groups import TopicPartitions
from penstock.contracts.commands.outcomes import Rejected
from penstock.contracts.commands.share import DeadRecords, OffsetRange, ShareHeartbeat, ShareMembership
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection

WINDOWS_PER_PARTITION_MAX = 64
DEAD_LETTER_GROUPS_MAX = 1_000
DEAD_LETTERS_PER_VIEW_MAX = 500
SHARE_OFFSETS_ASKED_MAX = 10_000  # at most 3 MB of an answer, with the longest names


class ShareHeartbeatQuery(msgspec.Struct, frozen=True, array_like=True):
    """A member's heartbeat, answered without a journal entry if it changes nothing."""

    min_sequence: int
    heartbeat: ShareHeartbeat
    fresh: bool = False


class SharePartitionRef(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a member fetches, or begins to share."""

    topic_id: TopicId
    partition: int


class ShareHeartbeatView(msgspec.Struct, frozen=True, array_like=True):
    """The answer; None if the heartbeat changes something, so that the gateway must send it as a command.

    That command makes the group begin in the partitions `begins`, at the first record at or after `timestamp`. The
    gateway adds the offsets of these records to the command. `begins` has at most SHARE_STARTS_MAX partitions.
    """

    sequence: int
    outcome: ShareMembership | Rejected | None
    failure: str | None = None
    timestamp: int = 0  # ms since 1970
    begins: list[SharePartitionRef] = []


class SharePartitionsQuery(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of these partitions that the group could acquire now, answered at once.

    A group shares a partition from its first assignment on; before that there is nothing to acquire in it.
    """

    min_sequence: int
    group_id: str
    member_id: str
    partitions: list[SharePartitionRef]


class SharePartitionView(msgspec.Struct, frozen=True, array_like=True):
    """Windows of offsets that a member could acquire now, in ascending order, at most WINDOWS_PER_PARTITION_MAX.

    The last window may lie after all records in flight; the group's limit of records in flight bounds it. Without
    windows there is no record to acquire, or the limit is reached.
    """

    rejection: Rejection  # NONE, UNKNOWN_TOPIC
    start_offset: int  # all offsets below it are done (Kafka's SPSO)
    end_offset: int  # no offset from here on was ever acquired (the offset after Kafka's SPEO)
    high_watermark: int  # the end of the group's records: the high watermark, or the last stable offset
    windows: list[OffsetRange]


class SharePartitionsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per partition, in the query's order."""

    sequence: int
    partitions: list[SharePartitionView]
    read_committed: bool = False  # the group's `share.isolation.level`
    rejection: Rejection = Rejection.NONE  # UNKNOWN_GROUP, UNKNOWN_MEMBER: then `partitions` is empty
    failure: str | None = None


class DeadLetterGroupsQuery(msgspec.Struct, frozen=True, array_like=True):
    """The share groups with pending dead letters whose ids come after `after`, at most DEAD_LETTER_GROUPS_MAX."""

    min_sequence: int
    after: str = ""


class DeadLetterGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group with pending dead letters, and one of them; the same one in two answers means no progress."""

    group_id: str
    topic_id: TopicId
    partition: int
    records: DeadRecords


class DeadLetterGroupsView(msgspec.Struct, frozen=True, array_like=True):
    """The groups, in the order of their ids."""

    sequence: int
    groups: list[DeadLetterGroup]
    is_more: bool = False
    failure: str | None = None


class DeadLettersQuery(msgspec.Struct, frozen=True, array_like=True):
    """Pending dead letters of a share group, at most DEAD_LETTERS_PER_VIEW_MAX."""

    min_sequence: int
    group_id: str


class DeadLetters(msgspec.Struct, frozen=True, array_like=True):
    """Records that died together; `rejected` by a member, else delivered as often as the limit allows."""

    records: DeadRecords
    deliveries: int
    rejected: bool


class DeadLettersOfPartition(msgspec.Struct, frozen=True, array_like=True):
    """Pending dead letters of one partition, in the order of their offsets."""

    topic_id: TopicId
    topic: str
    partition: int
    log_start_offset: int
    letters: list[DeadLetters]


class DeadLettersView(msgspec.Struct, frozen=True, array_like=True):
    """The pending dead letters, with the configurations in force; `topic` is "" if the group no longer has one."""

    sequence: int
    partitions: list[DeadLettersOfPartition]
    topic: str = ""
    copies_records: bool = False
    prefix: str = ""  # of the names of topics for dead letters
    creates_topics: bool = False
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
    """A group as an administrator sees it; `state` is Empty, Stable, or "" if there is no such share group."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[ShareMemberView]
    topic_names: list[tuple[bytes, str]]  # of the topics in the members' assignments


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
    """The start offsets of a group; `topics` None means all partitions that it shares.

    Of these the answer is a page: topics whose names come after `after`, all without one. A query names at most
    SHARE_OFFSETS_ASKED_MAX partitions.
    """

    min_sequence: int
    group_id: str
    topics: list[ShareOffsetTopic] | None
    fresh: bool = False
    after: str | None = None


class ShareOffsetView(msgspec.Struct, frozen=True, array_like=True):
    """The state of one partition; `start_offset` and `lag` are -1 if the group does not share it yet."""

    topic: str
    topic_id: TopicId
    partition: int
    rejection: Rejection  # NONE, UNKNOWN_TOPIC
    start_offset: int
    lag: int  # the number of offsets that are not done
    leader_epoch: int


class ShareOffsetsView(msgspec.Struct, frozen=True, array_like=True):
    """One view per partition, in the query's order; a page is in the order of topics' names."""

    sequence: int
    offsets: list[ShareOffsetView]
    rejection: Rejection = Rejection.NONE  # UNKNOWN_GROUP
    failure: str | None = None
    is_more: bool = False  # there are more after the topic of the last of these
