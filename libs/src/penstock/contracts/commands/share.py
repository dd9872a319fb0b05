"""Commands of share groups (KIP-932), and their outcomes."""

import enum

import msgspec

from penstock.contracts.commands.consumer_groups import TopicPartitions
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection

SHARE_RANGES_MAX = 20_000  # over all partitions of one command, and of its outcome
SHARE_PARTITIONS_PER_COMMAND_MAX = 10_000
NO_TICKET = 0
NO_OFFSET = -1
NO_ACQUISITION = 0


class AcknowledgeType(enum.IntEnum):
    """What a member did with acquired records; up to RENEW these are Kafka's numbers."""

    GAP = 0  # there is no record: of a batch cut by compaction, a marker, of an aborted transaction
    ACCEPT = 1
    RELEASE = 2  # comes again, to anybody, unless it has come as often as it may
    REJECT = 3  # never comes again
    RENEW = 4  # its lock begins anew (KIP-1222)
    UNREAD = 5  # of gateways only: it was never sent to the member, and so does not count as a delivery


class OffsetRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets from `first` to `last`, both included."""

    first: int
    last: int


class AcquiredRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets that the member has now; `delivery_count` is 1 where they come for the first time."""

    first: int
    last: int
    delivery_count: int


class AcknowledgedRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets from `first` to `last`: one acknowledge type for all of them, or one per offset.

    Kafka's AcknowledgementBatch; all of a partition's are taken, or none is.
    """

    first: int
    last: int
    acknowledge_types: bytes


class SharePartition(msgspec.Struct, frozen=True, array_like=True):
    """What a member has to say of one partition, and what it wants of it: `first` -1 for nothing.

    Of the offsets from `first` to `last` (`last` -1: as far as there are) it gets those that are available, beginning
    with the lowest. `gaps` holds offsets in which the gateway knows that there are no records: those that nobody has
    acquired are done with, and not given out; ascending.
    """

    topic_id: TopicId
    partition: int
    acknowledged: list[AcknowledgedRange] = []  # ascending
    first: int = NO_OFFSET
    last: int = NO_OFFSET
    records_max: int = 0
    gaps: list[OffsetRange] = []


class ShareHeartbeat(msgspec.Struct, frozen=True, array_like=True, tag=100):
    """A member joins (epoch 0), stays, or leaves (-1); None is "as before". `ShareMembership`.

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


class ShareMembership(msgspec.Struct, frozen=True, array_like=True, tag=100):
    """The member as it is now; `assignment` None where it knows that already."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: list[TopicPartitions] | None


class ShareRecords(msgspec.Struct, frozen=True, array_like=True, tag=101):
    """A member acknowledges and acquires records, in one entry however many partitions; `RecordsShared`.

    Per partition, acknowledgements come before acquisitions. When a session ends, all else that the member got of
    these partitions by acquisitions from `releases_from` to `releases_through` goes back before anything is acquired,
    as with UNREAD: what it got before or since, or has of other partitions, is another session's. Over all
    partitions `records_max` are acquired at most.

    Sent again with the same `ticket` (any number but 0 that its sender gave no command of this member lately) it is
    answered with what the member got the first time. To acquire, one has to be a member; acknowledgements of another
    member are refused range by range, since it has no records.
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
    """What came of one partition."""

    # Of all acknowledgements of the partition: NONE, UNKNOWN_TOPIC, INVALID_RECORD_STATE, INVALID_REQUEST.
    acknowledge_rejection: Rejection
    acquired: list[AcquiredRange]  # ascending
    rejection: Rejection = Rejection.NONE  # why nothing can be acquired: UNKNOWN_TOPIC, OVERLOADED, UNKNOWN_MEMBER


class RecordsShared(msgspec.Struct, frozen=True, array_like=True, tag=101):
    """One per partition of the command, in its order."""

    partitions: list[SharedPartition]
    lock_duration_ms: int  # of what was acquired or renewed: for Kafka's AcquisitionLockTimeoutMs
    acquisition: int = NO_ACQUISITION  # the number of this one in the group: later ones have greater numbers


class ShareOffset(msgspec.Struct, frozen=True, array_like=True):
    """A partition of a share group, by its topic's name, and the offset at which it is to go on."""

    topic: str
    partition: int
    offset: int


class AlterShareOffsets(msgspec.Struct, frozen=True, array_like=True, tag=102):
    """An empty group goes on from these offsets; it is made if there is none. `PerItem`."""

    now_ms: int
    group_id: str
    offsets: list[ShareOffset]
    seen_sequence: int = -1  # as in `CommitOffsets`


class DeleteShareOffsets(msgspec.Struct, frozen=True, array_like=True, tag=103):
    """An empty group forgets where it is in these topics; `PerItem`."""

    now_ms: int
    group_id: str
    topics: list[str]
    seen_sequence: int = -1
