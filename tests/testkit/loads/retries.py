"""Repeat a client's call while its error is one that ends."""

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

CALL_TIMEOUT_S = 10.0  # of a call, which is made again
RETRY_TIMEOUT_S = 180.0

# Errors that end when a gateway is back. librdkafka calls them retriable in transactional requests. It does not in
# requests for a group's offset or for the end of a partition. A request of the latter ends with _DESTROY_BROKER when a
# gateway that was away leaves the list of brokers meanwhile.
TRANSIENT = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._WAIT_COORD,
    KafkaError._DESTROY_BROKER,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)

Answer = TypeVar("Answer")


class RetriesExhausted(Exception):
    """The retries of a call took too long."""


def until_done(call: Callable[[], Answer]) -> Answer:
    """Repeat a call while its error is retriable; a transaction that must be aborted ends it at once."""
    for _ in range(int(RETRY_TIMEOUT_S / CALL_TIMEOUT_S)):
        try:
            return call()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            is_transient = reason.retriable() or reason.code() in TRANSIENT
            if reason.txn_requires_abort() or not is_transient:
                raise
            last = error
    raise RetriesExhausted(str(last))
