"""A load repeats a call only while that can help."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.testkit.loads.retries import RetriesExhausted, until_done


def failing(error: KafkaError, calls: list[KafkaError]) -> None:
    calls.append(error)
    raise KafkaException(error)


def test_a_transaction_that_must_be_aborted_is_not_committed_again() -> None:
    """As after messages that timed out, because a gateway was away for too long."""
    error = KafkaError(KafkaError._TIMED_OUT, "2 message(s) timed out", False, False, True)
    calls: list[KafkaError] = []
    with pytest.raises(KafkaException):
        until_done(lambda: failing(error, calls))
    assert calls == [error]


def test_a_call_that_times_out_is_repeated_and_its_retries_end() -> None:
    calls: list[KafkaError] = []
    with pytest.raises(RetriesExhausted):
        until_done(lambda: failing(KafkaError(KafkaError._TIMED_OUT), calls), timeout_s=0.3)
    assert len(calls) > 1


def test_a_request_to_a_broker_that_left_the_list_is_repeated() -> None:
    errors = [KafkaException(KafkaError(KafkaError._DESTROY_BROKER))]

    def watermark() -> int:
        if errors:
            raise errors.pop()
        return 7

    assert until_done(watermark) == 7


def test_an_error_that_stays_is_not_repeated() -> None:
    calls: list[KafkaError] = []
    with pytest.raises(KafkaException):
        until_done(lambda: failing(KafkaError(KafkaError._FENCED), calls))
    assert len(calls) == 1
