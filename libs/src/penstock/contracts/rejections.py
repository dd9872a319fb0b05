"""Why the state machine refuses a command; the gateway turns each into the Kafka error of its name."""

import enum


class Rejection(enum.IntEnum):
    """A refusal is a value, never an exception; the numbers are stored in the journal's outcomes and never reused."""

    NONE = 0
    UNKNOWN_TOPIC = 1
    TOPIC_EXISTS = 2
    INVALID_TOPIC = 3
    INVALID_PARTITIONS = 4
    INVALID_CONFIG = 5
    OUT_OF_ORDER_SEQUENCE = 6
    PRODUCER_FENCED = 7
    UNKNOWN_PRODUCER = 8
    SEGMENT_TOO_OLD = 9
    OFFSET_OUT_OF_RANGE = 10
    UNKNOWN_GROUP = 11
    GROUP_NOT_EMPTY = 12
    UNKNOWN_MEMBER = 13
    MEMBER_ID_REQUIRED = 14
    ILLEGAL_GENERATION = 15
    REBALANCE_IN_PROGRESS = 16
    INCONSISTENT_PROTOCOL = 17
    INVALID_SESSION_TIMEOUT = 18
    FENCED_INSTANCE = 19
    GROUP_FULL = 20
    METADATA_TOO_LARGE = 21
    OVERLOADED = 22
    INVALID_GROUP = 23
    DUPLICATE_TOPIC = 24
    OUTCOME_UNKNOWN = 25  # given by services, never by the machine: a time-out, the effect may or may not be there
    INVALID_REQUEST = 26
    STALE = 27  # something newer was committed that its sender did not know of; asked again it knows
    ALREADY_LEASED = 28  # a compaction job, or one of its segments, by somebody whose lease is not over
    EXTENTS_CHANGED = 29  # since a compaction job was planned
    POLICY_VIOLATION = 30  # records of a topic that is only compacted are not deleted
    INVALID_TXN_STATE = 31  # no transaction that this could be part of, or that could end so
    INVALID_PRODUCER_MAPPING = 32  # the transactional id is unknown, or has another producer id
    INVALID_TRANSACTION_TIMEOUT = 33
    FENCED_MEMBER_EPOCH = 60  # the member was taken for gone, or is elsewhere than it believes: it joins again
    STALE_MEMBER_EPOCH = 61  # the member's epoch has changed: it asks again with the one that it learns
    UNRELEASED_INSTANCE = 62  # another member has the instance id, and did not leave
    UNSUPPORTED_ASSIGNOR = 63
    INVALID_PATTERN = 64
    UNSUPPORTED_YET = 65  # not all replicas know what is asked for
    GROUP_SUBSCRIBED = 70  # offsets of a topic that members of the group read now
    INVALID_RECORD_STATE = 100  # records that the member has not acquired, or not any more
