"""Repeat a client's call while its error is one that ends."""

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

CALL_TIMEOUT_S = 10.0  # of a call, which is made again
RETRY_TIMEOUT_S = 180.0
PAUSE_S = 0.1

# Errors that end when a gateway is back. librdkafka calls them retriable in transactional requests. It does not in
# requests for a group's offset or for the end of a partition. A request of the latter ends with _DESTROY_BROKER when a
# gateway that was away leaves the list of brokers meanwhile. It may end with _UNKNOWN_PARTITION when one comes back.
TRANSIENT = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._WAIT_COORD,
    KafkaError._DESTROY_BROKER,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)

Answer = TypeVar("Answer")


class RetriesExhausted(Exception):
    """The retries of a call took too long."""


def until_done(call: Callable[[], Answer], timeout_s: float = RETRY_TIMEOUT_S) -> Answer:
    """Repeat a call while its error is retriable; a transaction that must be aborted ends it at once.

    Some errors come at once, and last until a gateway is known again. So the time counts, not the number of calls.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            is_transient = reason.retriable() or reason.code() in TRANSIENT
            if reason.txn_requires_abort() or not is_transient:
                raise
            if time.monotonic() > end_s:
                raise RetriesExhausted(str(error)) from error
        time.sleep(PAUSE_S)
