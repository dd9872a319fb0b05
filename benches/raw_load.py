"""Raw Produce requests in their own process, with hardly any client CPU: `python -m benches.raw_load ...` prints JSON.

Each connection is one idempotent producer, unless `--plain`. It keeps `--depth` requests in flight. With `--rate` it
sends at a steady rate, with at most so many in flight. Then the times count from the moment when a request was due.
"""

import argparse
import asyncio
import json
import statistics
import struct
import sys
import time
from collections import deque
from functools import partial

import crc32c
import msgspec

from penstock.kafkawire.api import decode_response, encode_request
from penstock.kafkawire.api.init_producer_id import API as INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.kafkawire.api.produce import API as PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.records import CRC_START, Record, build_batch

PRODUCE_VERSION, INIT_VERSION = 9, 4  # the first with compact lengths
CRC_POSITION, SEQUENCE_POSITION = 17, 53  # in a record batch
CORRELATION_AND_TAGS = 5
LENGTH_BYTES = 4


class _Template:
    """One Produce request whose batches get new sequences before each use."""

    def __init__(self, topic: str, partitions: range, value: bytes, records: int, producer: tuple[int, int]) -> None:
        batch = build_batch(
            [Record(number, 0, None, value, ()) for number in range(records)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0 if producer[0] >= 0 else -1,
        )
        data = [PartitionProduceData(index=partition, records=batch) for partition in partitions]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(topic, partition_data=data)])
        self.frame = bytearray(_frame(PRODUCE.key, PRODUCE_VERSION, request))
        self._is_numbered = producer[0] >= 0
        self._records = records
        self._positions: list[int] = []
        position = 0
        while (position := self.frame.find(batch, position)) >= 0:
            self._positions.append(position)
            position += len(batch)
        assert len(self._positions) == len(partitions), "each batch stands once in the frame"
        self._batch_bytes = len(batch)
        self._sequence = 0

    def next(self) -> bytes:
        """The next request of this kind."""
        if self._is_numbered:
            frame = memoryview(self.frame)
            sequence = struct.pack(">i", self._sequence)
            first = self._positions[0]
            frame[first + SEQUENCE_POSITION : first + SEQUENCE_POSITION + 4] = sequence
            crc = crc32c.crc32c(frame[first + CRC_START : first + self._batch_bytes]).to_bytes(4, "big")
            for position in self._positions:  # the batches are equal
                frame[position + SEQUENCE_POSITION : position + SEQUENCE_POSITION + 4] = sequence
                frame[position + CRC_POSITION : position + CRC_POSITION + 4] = crc
            self._sequence += self._records
        return bytes(self.frame)


class _Connection(asyncio.Protocol):
    """Keeps requests in flight until `stop`; records the time of each. `period_s` is 0 without a steady rate."""

    def __init__(self, templates: list[_Template], depth: int, period_s: float) -> None:
        self._templates = deque(templates)
        self._depth = depth
        self._period_s = period_s
        self._due: deque[float] = deque()  # requests that wait for an answer to an earlier one
        self._sent: deque[float] = deque()
        self._received = bytearray()
        self._is_stopping = False
        self.times_s: list[float] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._period_s:
            self._tick(time.perf_counter())
            return
        for _ in range(self._depth):
            self._send(time.perf_counter())

    def _tick(self, due_s: float) -> None:
        if self._is_stopping:
            return
        self._due.append(due_s)
        self._send_due()
        due_s += self._period_s
        asyncio.get_running_loop().call_later(max(0.0, due_s - time.perf_counter()), self._tick, due_s)

    def _send_due(self) -> None:
        while self._due and len(self._sent) < self._depth:
            self._send(self._due.popleft())

    def _send(self, due_s: float) -> None:
        frame = self._templates[0].next()
        self._templates.rotate(-1)
        self._sent.append(due_s)
        self._transport.write(frame)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._received[:LENGTH_BYTES], "big")
            if len(self._received) < end:
                return
            answer = bytes(self._received[LENGTH_BYTES + CORRELATION_AND_TAGS : end])
            del self._received[:end]
            self._take(answer)

    def _take(self, answer: bytes) -> None:
        self.times_s.append(time.perf_counter() - self._sent.popleft())
        if len(self.times_s) % 64 == 1:
            for topic in decode_response(PRODUCE.key, PRODUCE_VERSION, answer).responses:
                errors = {each.error_code for each in topic.partition_responses}
                assert errors == {0}, f"produce failed with errors {errors}"
        if self._period_s:
            self._send_due()
        elif not self._is_stopping:
            self._send(time.perf_counter())
        self._end_if_done()

    def stop(self) -> None:
        self._is_stopping = True
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._is_stopping and not self._sent and not self.ended.done():
            self.ended.set_result(None)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the gateway closed the connection"))


def _frame(key: int, version: int, request: msgspec.Struct) -> bytes:
    body = struct.pack(">hhih", key, version, 1, -1) + b"\0" + encode_request(key, version, request)
    return struct.pack(">i", len(body)) + body


def _same(connection: _Connection) -> _Connection:
    return connection


async def _new_producer(host: str, port: int) -> tuple[int, int]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(_frame(INIT_PRODUCER_ID.key, INIT_VERSION, InitProducerIdRequest(None, 60_000)))
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big"))
    writer.close()
    response = decode_response(INIT_PRODUCER_ID.key, INIT_VERSION, answer[CORRELATION_AND_TAGS:])
    return response.producer_id, response.producer_epoch


async def _run(arguments: argparse.Namespace) -> dict[str, float]:
    host, _, port = arguments.bootstrap.rpartition(":")
    loop = asyncio.get_running_loop()
    value = bytes(arguments.record_bytes)
    connections = []
    period_s = arguments.connections / arguments.rate if arguments.rate else 0.0
    for _ in range(arguments.connections):
        producer = (-1, -1) if arguments.plain else await _new_producer(host, int(port))
        step = arguments.batches
        templates = [
            _Template(arguments.topic, range(first, first + step), value, arguments.records, producer)
            for first in range(0, arguments.partitions - step + 1, step)
        ]
        connection = _Connection(templates, arguments.depth, period_s)
        await loop.create_connection(partial(_same, connection), host, int(port))
        connections.append(connection)
    started_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.wait([each.ended for each in connections], timeout=arguments.seconds)
    for connection in connections:
        connection.stop()
    await asyncio.gather(*(connection.ended for connection in connections))
    seconds = time.perf_counter() - started_s
    times_ms = sorted(each * 1000 for connection in connections for each in connection.times_s)
    records = len(times_ms) * arguments.batches * arguments.records
    return {
        "seconds": seconds,
        "requests": len(times_ms),
        "batches": len(times_ms) * arguments.batches,
        "records": records,
        "mib": records * arguments.record_bytes / 2**20,
        "request_p50_ms": statistics.median(times_ms),
        "request_p99_ms": times_ms[int(len(times_ms) * 0.99)],
        "client_cpu_s": time.process_time() - cpu_s,
    }


def main() -> None:
    """Run one load and print its figures."""
    parser = argparse.ArgumentParser(prog="benches.raw_load")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--depth", type=int, default=5, help="requests in flight per connection")
    parser.add_argument("--partitions", type=int, default=1, help="of the topic; requests go around them")
    parser.add_argument("--batches", type=int, default=1, help="of one request, each for another partition")
    parser.add_argument("--records", type=int, default=1, help="of one batch")
    parser.add_argument("--record-bytes", type=int, default=16_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=0, help="requests per second of all connections; 0: no limit")
    parser.add_argument("--plain", action="store_true", help="without producer ids")
    arguments = parser.parse_args()
    json.dump(asyncio.run(_run(arguments)), sys.stdout)


if __name__ == "__main__":
    main()
