"""Sends any bytes as a record batch, which no client library does."""

import socket
import struct

from penstock.kafkawire.api import decode_response, encode_request
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode

PRODUCE, VERSION = 0, 9
TIMEOUT_S = 60.0


def produce_raw(address: str, topic: str, batch: bytes, partition: int = 0) -> ErrorCode:
    """The error of a Produce request with this batch."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    body = struct.pack(">hhih", PRODUCE, VERSION, 1, -1) + b"\0" + encode_request(PRODUCE, VERSION, request)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (length,) = struct.unpack(">i", answers.read(4))
        response = decode_response(PRODUCE, VERSION, answers.read(length)[5:])
    (answer,) = response.responses[0].partition_responses
    return ErrorCode(answer.error_code)
