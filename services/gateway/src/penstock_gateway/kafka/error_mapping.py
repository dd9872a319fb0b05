"""How our refusals and failures become Kafka's error codes; the one table that maps them."""

from penstock.contracts.rejections import Refusal
from penstock.kafkawire.error_codes import ErrorCode

REFUSALS: dict[Refusal, ErrorCode] = {
    Refusal.NONE: ErrorCode.NONE,
    Refusal.UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Refusal.TOPIC_EXISTS: ErrorCode.TOPIC_ALREADY_EXISTS,
    Refusal.INVALID_TOPIC: ErrorCode.INVALID_TOPIC_EXCEPTION,
    Refusal.INVALID_PARTITIONS: ErrorCode.INVALID_PARTITIONS,
    Refusal.INVALID_CONFIG: ErrorCode.INVALID_CONFIG,
    Refusal.OUT_OF_ORDER_SEQUENCE: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Refusal.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    Refusal.UNKNOWN_PRODUCER: ErrorCode.UNKNOWN_PRODUCER_ID,
    # Surely not stored, and worth another try: clients retry NOT_ENOUGH_REPLICAS and know that nothing was appended.
    Refusal.SEGMENT_TOO_OLD: ErrorCode.NOT_ENOUGH_REPLICAS,
    Refusal.OVERLOADED: ErrorCode.NOT_ENOUGH_REPLICAS,
    Refusal.OFFSET_OUT_OF_RANGE: ErrorCode.OFFSET_OUT_OF_RANGE,
    Refusal.UNKNOWN_GROUP: ErrorCode.GROUP_ID_NOT_FOUND,
    Refusal.GROUP_NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    Refusal.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    Refusal.MEMBER_ID_REQUIRED: ErrorCode.MEMBER_ID_REQUIRED,
    Refusal.ILLEGAL_GENERATION: ErrorCode.ILLEGAL_GENERATION,
    Refusal.REBALANCE_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS,
    Refusal.INCONSISTENT_PROTOCOL: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    Refusal.INVALID_SESSION_TIMEOUT: ErrorCode.INVALID_SESSION_TIMEOUT,
    Refusal.FENCED_INSTANCE: ErrorCode.FENCED_INSTANCE_ID,
    Refusal.GROUP_FULL: ErrorCode.GROUP_MAX_SIZE_REACHED,
    Refusal.METADATA_TOO_LARGE: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    Refusal.INVALID_GROUP: ErrorCode.INVALID_GROUP_ID,
    Refusal.DUPLICATE_TOPIC: ErrorCode.INVALID_REQUEST,
    # Retriable, and possibly stored: only an idempotent producer's retry can tell.
    Refusal.OUTCOME_UNKNOWN: ErrorCode.REQUEST_TIMED_OUT,
    # Answers to compactors, which no client causes.
    Refusal.ALREADY_CLAIMED: ErrorCode.UNKNOWN_SERVER_ERROR,
    Refusal.EXTENTS_CHANGED: ErrorCode.UNKNOWN_SERVER_ERROR,
    Refusal.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    Refusal.POLICY_VIOLATION: ErrorCode.POLICY_VIOLATION,
    Refusal.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
    Refusal.INVALID_PRODUCER_MAPPING: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    Refusal.INVALID_TRANSACTION_TIMEOUT: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    Refusal.FENCED_MEMBER_EPOCH: ErrorCode.FENCED_MEMBER_EPOCH,
    Refusal.STALE_MEMBER_EPOCH: ErrorCode.STALE_MEMBER_EPOCH,
    Refusal.UNRELEASED_INSTANCE: ErrorCode.UNRELEASED_INSTANCE_ID,
    Refusal.UNSUPPORTED_ASSIGNOR: ErrorCode.UNSUPPORTED_ASSIGNOR,
    Refusal.INVALID_PATTERN: ErrorCode.INVALID_REGULAR_EXPRESSION,
    Refusal.UNSUPPORTED_YET: ErrorCode.UNSUPPORTED_VERSION,
    Refusal.GROUP_SUBSCRIBED: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    Refusal.INVALID_RECORD_STATE: ErrorCode.INVALID_RECORD_STATE,
    # Clients ask again, of the same gateway, which has learnt by the refusal what it did not know.
    Refusal.STALE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

# What an API answers while the sequencers cannot be reached; each is a code that clients of the API retry quietly.
GROUPS_UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
ADMINISTRATION_UNAVAILABLE = ErrorCode.REQUEST_TIMED_OUT
PRODUCERS_UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE

# Where some sequencer does not know transactions yet; every client takes this code as final and says so.
TRANSACTIONS_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class CloseConnection(Exception):
    """The client sent what Kafka answers by closing the connection; the message says what it was."""


def error_of(refusal: int) -> ErrorCode:
    """Kafka's code for a refusal, also for one that a newer service made up: then `UNKNOWN_SERVER_ERROR`."""
    try:
        return REFUSALS[Refusal(refusal)]
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
