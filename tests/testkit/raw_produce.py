"""Sends any bytes as a record batch, which no client library does."""

from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.raw_requests import ask

PRODUCE, VERSION = 0, 9


def produce_raw(address: str, topic: str, batch: bytes, partition: int = 0) -> ErrorCode:
    """The error of a Produce request with this batch."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    response = ask(address, PRODUCE, VERSION, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]))
    (answer,) = response.responses[0].partition_responses
    return ErrorCode(answer.error_code)
