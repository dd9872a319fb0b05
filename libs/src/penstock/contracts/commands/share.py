"""Commands of share groups (KIP-932), and their outcomes."""

import enum

import msgspec

from penstock.contracts.commands.consumer_groups import TopicPartitions
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection

SHARE_RANGES_MAX = 20_000  # over all partitions of one command; the same limit holds for its outcome
SHARE_PARTITIONS_PER_COMMAND_MAX = 10_000
SHARE_STARTS_MAX = 1_000  # partitions of one heartbeat: the gateway reads records in each of them
NO_TICKET = 0
NO_OFFSET = -1
NO_ACQUISITION = 0


class AcknowledgeType(enum.IntEnum):
    """A member's acknowledgement of an acquired record; the numbers up to RENEW are Kafka's (AcknowledgeTypes)."""

    GAP = 0  # the offset has no record: compaction removed it, it is a marker, or its transaction was aborted
    ACCEPT = 1
    RELEASE = 2  # delivered again to any member, unless the delivery limit is reached
    REJECT = 3  # never delivered again
    RENEW = 4  # the acquisition lock starts again (KIP-1222)
    UNREAD = 5  # from gateways only: never sent to the member, so it does not count as a delivery


class OffsetRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets from `first` to `last`, both included."""

    first: int
    last: int


class AcquiredRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets that the member has acquired; `delivery_count` is 1 at the first delivery."""

    first: int
    last: int
    delivery_count: int


class AcknowledgedRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets from `first` to `last`: one acknowledge type for all of them, or one per offset.

    This is Kafka's AcknowledgementBatch. The state machine accepts all batches of a partition, or none.
    """

    first: int
    last: int
    acknowledge_types: bytes


class SharePartition(msgspec.Struct, frozen=True, array_like=True):
    """A member's acknowledgements in one partition, and the offsets that it asks to acquire (`first` -1: none).

    The member gets the available offsets from `first` to `last` (`last` -1: up to the end), the lowest first. The
    gateway knows that the offsets in `gaps` have no records. Those that no member has acquired become done, and are
    not delivered.
    """

    topic_id: TopicId
    partition: int
    acknowledged: list[AcknowledgedRange] = []  # in ascending order
    first: int = NO_OFFSET
    last: int = NO_OFFSET
    records_max: int = 0
    gaps: list[OffsetRange] = []  # in ascending order


class ShareStart(msgspec.Struct, frozen=True, array_like=True):
    """The first offset of a group in a partition that it does not share yet."""

    topic_id: TopicId
    partition: int
    offset: int


class ShareStarts(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of the first records at or after `timestamp` (ms since 1970), in at most SHARE_STARTS_MAX partitions.

    Partitions without such a record are not listed.
    """

    timestamp: int
    offsets: list[ShareStart]


class ShareHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag=100):
    """A member joins (epoch 0), stays, or leaves (-1); None means "unchanged". The outcome is `ShareMembership`.

    Like `ConsumerHeartbeat` it is journaled only if it changes something: gateways ask `ShareHeartbeatQuery` first.
    """

    now_ms: int
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topics: list[str] | None
    seen_sequence: int = -1  # as in `ConsumerHeartbeat`
    principal: str = ""  # as in `JoinGroup`
    # From level SHARE_STARTS_LEVEL on, if the group begins at a time. Partitions without an offset begin at the extent
    # that has the first record. That may be too early, and is never too late.
    starts: ShareStarts | None = None


class ShareMembership(msgspec.Struct, frozen=True, array_like=True, tag=100):
    """The current membership; `assignment` is None if the member has it already."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: list[TopicPartitions] | None


class ShareRecords(msgspec.Struct, frozen=True, array_like=True, tag=101):
    """A member acknowledges and acquires records of all its partitions in one entry; the outcome is `RecordsShared`.

    In each partition the acknowledgements apply before the acquisition. At the end of a session the member's other
    records in these partitions become available in between, as with UNREAD. This concerns the acquisitions from
    `releases_from` to `releases_through`; other acquisitions belong to other sessions. Over all partitions at most
    `records_max` records are acquired.

    A retry carries the same `ticket`, and gets the acquisitions of the first attempt. The ticket is not 0, and no
    other recent command of this member has it. Only a member can acquire. Acknowledgements of a client that is not a
    member are rejected partition by partition, since it has acquired nothing.
    """

    now_ms: int
    group_id: str
    member_id: str
    partitions: list[SharePartition]
    records_max: int = 0
    releases_through: int = NO_ACQUISITION
    ticket: int = NO_TICKET
    releases_from: int = NO_ACQUISITION


class SharedPartition(msgspec.Struct, frozen=True, array_like=True):
    """The result for one partition."""

    # Of all acknowledgements of the partition: NONE, UNKNOWN_TOPIC, INVALID_RECORD_STATE, INVALID_REQUEST.
    acknowledge_rejection: Rejection
    acquired: list[AcquiredRange]  # in ascending order
    rejection: Rejection = Rejection.NONE  # why nothing can be acquired: UNKNOWN_TOPIC, OVERLOADED, UNKNOWN_MEMBER


class RecordsShared(msgspec.Struct, frozen=True, array_like=True, tag=101):
    """One result per partition of the command, in its order."""

    partitions: list[SharedPartition]
    lock_duration_ms: int  # of acquired and renewed records: Kafka's AcquisitionLockTimeoutMs
    acquisition: int = NO_ACQUISITION  # the number of this acquisition in the group; numbers increase


class ShareOffset(msgspec.Struct, frozen=True, array_like=True):
    """A partition of a share group, by its topic's name, and the new start offset of the group in it."""

    topic: str
    partition: int
    offset: int


class AlterShareOffsets(msgspec.Struct, frozen=True, array_like=True, tag=102):
    """Set the start offsets of an empty group, which is created if it does not exist. The outcome is `PerItem`."""

    now_ms: int
    group_id: str
    offsets: list[ShareOffset]
    seen_sequence: int = -1  # as in `CommitOffsets`
    principal: str = ""  # as in `JoinGroup`


class DeadRecords(msgspec.Struct, frozen=True, array_like=True):
    """Offsets from `first` to `last` that died by the journal entry `sequence`, and have pending dead letters."""

    first: int
    last: int
    sequence: int


class EndedDeadLetters(msgspec.Struct, frozen=True, array_like=True):
    """Dead letters of one partition that are written, or that cannot be written."""

    topic_id: TopicId
    partition: int
    records: list[DeadRecords]


class EndDeadLetters(msgspec.Struct, frozen=True, array_like=True, tag=106):
    """End pending dead letters of a share group (KIP-1191). The outcome is `Done`, also if they have ended before.

    A record is named with the entry by which it died. So a late copy ends no dead letter of a later death.
    """

    now_ms: int
    group_id: str
    partitions: list[EndedDeadLetters]


class DeleteShareOffsets(msgspec.Struct, frozen=True, array_like=True, tag=103):
    """Delete the offsets of an empty group in these topics. The outcome is `PerItem`."""

    now_ms: int
    group_id: str
    topics: list[str]
    seen_sequence: int = -1
