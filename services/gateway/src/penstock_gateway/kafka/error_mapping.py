"""Maps rejections and failures to Kafka's error codes, in one table."""

from penstock.contracts.rejections import Rejection
from penstock.kafkawire.error_codes import ErrorCode

REJECTIONS: dict[Rejection, ErrorCode] = {
    Rejection.NONE: ErrorCode.NONE,
    Rejection.UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Rejection.TOPIC_EXISTS: ErrorCode.TOPIC_ALREADY_EXISTS,
    Rejection.INVALID_TOPIC: ErrorCode.INVALID_TOPIC_EXCEPTION,
    Rejection.INVALID_PARTITIONS: ErrorCode.INVALID_PARTITIONS,
    Rejection.INVALID_CONFIG: ErrorCode.INVALID_CONFIG,
    Rejection.OUT_OF_ORDER_SEQUENCE: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Rejection.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    Rejection.UNKNOWN_PRODUCER: ErrorCode.UNKNOWN_PRODUCER_ID,
    # Retriable: clients retry NOT_ENOUGH_REPLICAS. OVERLOADED is certainly not committed. Produce never sends the codes
    # of OVERLOADED, SEGMENT_TOO_OLD and OUTCOME_UNKNOWN. It closes the connection: no record overtakes (ADR 0003).
    Rejection.SEGMENT_TOO_OLD: ErrorCode.NOT_ENOUGH_REPLICAS,
    Rejection.OVERLOADED: ErrorCode.NOT_ENOUGH_REPLICAS,
    # Decided: this copy is not committed. Clients repeat the batch; later ones are out of order until then.
    Rejection.PRODUCERS_FULL: ErrorCode.NOT_ENOUGH_REPLICAS,
    Rejection.OFFSET_OUT_OF_RANGE: ErrorCode.OFFSET_OUT_OF_RANGE,
    Rejection.UNKNOWN_GROUP: ErrorCode.GROUP_ID_NOT_FOUND,
    Rejection.GROUP_NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    Rejection.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    Rejection.MEMBER_ID_REQUIRED: ErrorCode.MEMBER_ID_REQUIRED,
    Rejection.ILLEGAL_GENERATION: ErrorCode.ILLEGAL_GENERATION,
    Rejection.REBALANCE_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS,
    Rejection.INCONSISTENT_PROTOCOL: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    Rejection.INVALID_SESSION_TIMEOUT: ErrorCode.INVALID_SESSION_TIMEOUT,
    Rejection.FENCED_INSTANCE: ErrorCode.FENCED_INSTANCE_ID,
    Rejection.GROUP_FULL: ErrorCode.GROUP_MAX_SIZE_REACHED,
    Rejection.METADATA_TOO_LARGE: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    Rejection.INVALID_GROUP: ErrorCode.INVALID_GROUP_ID,
    Rejection.DUPLICATE_TOPIC: ErrorCode.INVALID_REQUEST,
    # Retriable, and possibly stored: only the retry of an idempotent producer finds out.
    Rejection.OUTCOME_UNKNOWN: ErrorCode.REQUEST_TIMED_OUT,
    # Results for compactors; no client causes them.
    Rejection.ALREADY_LEASED: ErrorCode.UNKNOWN_SERVER_ERROR,
    Rejection.EXTENTS_CHANGED: ErrorCode.UNKNOWN_SERVER_ERROR,
    Rejection.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    Rejection.POLICY_VIOLATION: ErrorCode.POLICY_VIOLATION,
    Rejection.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
    Rejection.INVALID_PRODUCER_MAPPING: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    Rejection.INVALID_TRANSACTION_TIMEOUT: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    Rejection.FENCED_MEMBER_EPOCH: ErrorCode.FENCED_MEMBER_EPOCH,
    Rejection.STALE_MEMBER_EPOCH: ErrorCode.STALE_MEMBER_EPOCH,
    Rejection.UNRELEASED_INSTANCE: ErrorCode.UNRELEASED_INSTANCE_ID,
    Rejection.UNSUPPORTED_ASSIGNOR: ErrorCode.UNSUPPORTED_ASSIGNOR,
    Rejection.INVALID_PATTERN: ErrorCode.INVALID_REGULAR_EXPRESSION,
    Rejection.UNSUPPORTED_YET: ErrorCode.UNSUPPORTED_VERSION,
    Rejection.GROUP_SUBSCRIBED: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    Rejection.DUPLICATE_RESOURCE: ErrorCode.DUPLICATE_RESOURCE,
    Rejection.RESOURCE_NOT_FOUND: ErrorCode.RESOURCE_NOT_FOUND,
    Rejection.UNACCEPTABLE_CREDENTIAL: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    Rejection.TOKEN_NOT_FOUND: ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    Rejection.TOKEN_EXPIRED: ErrorCode.DELEGATION_TOKEN_EXPIRED,
    Rejection.TOKEN_OWNER_MISMATCH: ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    Rejection.INVALID_TOPOLOGY: ErrorCode.STREAMS_INVALID_TOPOLOGY,
    Rejection.INVALID_RECORD_STATE: ErrorCode.INVALID_RECORD_STATE,
    # Clients retry at the same gateway, which got the newer journal sequence with the rejection.
    Rejection.STALE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

# The answers while the sequencers cannot be reached; clients of each API retry its code without an error.
GROUPS_UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
# Clients repeat the commit at the same gateway. After COORDINATOR_NOT_AVAILABLE they also stop their heartbeats.
COMMITS_UNAVAILABLE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
ADMINISTRATION_UNAVAILABLE = ErrorCode.REQUEST_TIMED_OUT
PRODUCERS_UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE

# While some sequencer does not know transactions yet; every client takes this code as final and reports it.
TRANSACTIONS_REJECTED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class CloseConnection(Exception):
    """The client sent a request that Kafka answers by closing the connection; the message has the reason."""


def error_of(rejection: int) -> ErrorCode:
    """Kafka's code for a rejection; `UNKNOWN_SERVER_ERROR` for one that only a newer release knows."""
    return REJECTIONS.get(Rejection(rejection), ErrorCode.UNKNOWN_SERVER_ERROR)
