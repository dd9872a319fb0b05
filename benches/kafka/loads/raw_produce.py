"""Connections that send the same Produce requests again and again, made once: the client does no work for a CRC."""

import asyncio
import functools
import struct
import time
from itertools import cycle
from typing import cast

import uvloop

from benches.kafka.loads.load import Load, Start
from benches.kafka.loads.serving import Meter, serve
from penstock.kafkawire.api import encode_request
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch

PRODUCE, VERSION = 0, 9
RECORD_OVERHEAD = 16  # bytes that a record needs beside its value, at most
_LENGTH = struct.Struct(">i")
_ERROR = struct.Struct(">h")


def request(topic: str, partition: int, batch: bytes) -> bytes:
    """The frame of a Produce request with one batch."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    body = encode_request(PRODUCE, VERSION, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]))
    head = struct.pack(">hhih", PRODUCE, VERSION, 1, -1) + b"\0"
    return _LENGTH.pack(len(head) + len(body)) + head + body


def error_position(topic: str) -> int:
    """Where the error stands in an answer: after correlation id, tags, and the topic's and the partition's heads."""
    return 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def batch_of(load: Load) -> tuple[bytes, int]:
    """A batch of at most `batch_bytes`, and its number of records."""
    count = max(1, load.batch_bytes // (load.record_bytes + RECORD_OVERHEAD))
    now_ms, value = int(time.time() * 1000), bytes(load.record_bytes)  # retention would delete records of 1970
    return build_batch([Record(each, now_ms, value=value) for each in range(count)]), count


class Connection(asyncio.Protocol):
    """One connection that keeps its number of requests in flight, within its rate."""

    def __init__(self, start: Start, number: int, meter: Meter) -> None:
        load = start.load
        batch, self._records = batch_of(load)
        self._batch_bytes = len(batch)
        own = range(number, max(start.partitions, number + 1), load.clients)
        self._frames = cycle([request(start.topic, each % start.partitions, batch) for each in own])
        self._error_at = error_position(start.topic)
        self._interval_s = load.mib_per_second and len(batch) * load.clients / (load.mib_per_second * 2**20)
        self._free = load.in_flight
        self._meter = meter
        self._received = bytearray()
        self._due_s = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another base class
        self._due_s = asyncio.get_running_loop().time()
        self._is_waiting = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        position = 0
        while len(received) >= position + 4:
            end = position + 4 + _LENGTH.unpack_from(received, position)[0]
            if len(received) < end:
                break
            error = _ERROR.unpack_from(received, position + 4 + self._error_at)[0]
            if error:
                raise RuntimeError(f"produce failed: {ErrorCode(error).name}")  # the loop ends the connection with it
            self._free += 1
            self._meter.add(self._batch_bytes, self._records)
            position = end
        del received[:position]
        self._send()

    def _send(self) -> None:
        while self._free and not self._is_waiting:
            if self._interval_s:
                loop = asyncio.get_running_loop()
                if loop.time() < self._due_s:
                    self._is_waiting = True
                    loop.call_at(self._due_s, self._resume)
                    return
                self._due_s += self._interval_s
            self._free -= 1
            self._transport.write(next(self._frames))

    def _resume(self) -> None:
        self._is_waiting = False
        self._send()


async def _produce(start: Start, meter: Meter) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = start.bootstrap.rpartition(":")
    made = [
        await loop.create_connection(functools.partial(Connection, start, number, meter), host, int(port))
        for number in range(start.load.clients)
    ]
    await asyncio.gather(*[connection.ended for _, connection in made])


if __name__ == "__main__":
    serve(lambda start, meter: uvloop.run(_produce(start, meter)))
