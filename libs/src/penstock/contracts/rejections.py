"""Reasons for which the state machine rejects a command; the gateway maps each to a Kafka error."""

import enum

from penstock.contracts.errors import Unavailable


class Rejection(enum.IntEnum):
    """A value, never an exception. The numbers are stored with results in snapshots, and are never reused."""

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
    OUTCOME_UNKNOWN = 25  # from services, never from the state machine: a time-out, the command may have an effect
    INVALID_REQUEST = 26
    STALE = 27  # a newer change was committed that the sender did not know; it refreshes and can retry
    ALREADY_LEASED = 28  # another holder has an active lease on the compaction job or one of its segments
    EXTENTS_CHANGED = 29  # since the compaction job was planned
    POLICY_VIOLATION = 30  # DeleteRecords does not apply to a topic that is only compacted
    INVALID_TXN_STATE = 31  # there is no transaction that this could be part of, or that could end in this way
    INVALID_PRODUCER_MAPPING = 32  # the transactional id is unknown, or has another producer id
    INVALID_TRANSACTION_TIMEOUT = 33
    FENCED_MEMBER_EPOCH = 60  # the member was removed, or has another epoch than it sent: it must join again
    STALE_MEMBER_EPOCH = 61  # the member's epoch has changed: it retries with the epoch of its next heartbeat
    UNRELEASED_INSTANCE = 62  # another member has the instance id and did not leave
    UNSUPPORTED_ASSIGNOR = 63
    INVALID_PATTERN = 64
    UNSUPPORTED_YET = 65  # not all replicas know this command
    GROUP_SUBSCRIBED = 70  # the offsets are of a topic to which the group is subscribed
    PRODUCERS_FULL = 80  # too many idempotent producers, or some were just evicted: send the batch again
    DUPLICATE_RESOURCE = 90  # the request changes the same thing twice
    RESOURCE_NOT_FOUND = 91
    UNACCEPTABLE_CREDENTIAL = 92  # an empty or long user name, or a verifier out of its limits
    TOKEN_NOT_FOUND = 93
    TOKEN_EXPIRED = 94
    TOKEN_OWNER_MISMATCH = 95  # the user is neither the token's owner nor one of its renewers
    INVALID_TOPOLOGY = 140  # of an application of Kafka Streams
    INVALID_RECORD_STATE = 100  # the member has not acquired the records, or has lost them

    @classmethod
    def _missing_(cls, value: object) -> "Rejection | None":
        """A rejection that only a newer release knows. It keeps its number, and is equal to no other."""
        if not isinstance(value, int):
            return None
        rejection = int.__new__(cls, value)
        rejection._name_, rejection._value_ = f"REJECTION_{value}", value
        return rejection


_KNOWN = frozenset(Rejection)


def rejection_text(rejection: int) -> str:
    """The name of a rejection in lower case; for one that only a newer release knows, its number."""
    return Rejection(rejection).name.lower()


def check_known(rejection: Rejection) -> None:
    """`Unavailable` if only a newer release knows the rejection, so that the rest of an answer is not understood."""
    if rejection not in _KNOWN:
        raise Unavailable(f"a sequencer answered {rejection_text(rejection)} of a newer release: upgrade this process")
