"""Connections that fetch and discard: they read batch headers only, so the client costs little."""

import asyncio
import functools
import struct
from collections.abc import Iterator
from typing import cast

import uvloop

from benches.kafka.loads.load import Start
from benches.kafka.loads.serving import Meter, serve
from penstock.kafkawire.api import decode_response, encode_request
from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.records import HEADER, LENGTH_END

FETCH, VERSION = 1, 12
# The defaults of the Java consumer.
MAX_WAIT_MS = 500
ANSWER_BYTES_MAX = 50 * 2**20
PARTITION_BYTES_MAX = 2**20
BUFFER_BYTES = ANSWER_BYTES_MAX + 2**22
RETRIABLE = {ErrorCode.NOT_LEADER_OR_FOLLOWER}  # Penstock's answer when it cannot read now
_LENGTH = struct.Struct(">i")


class Connection(asyncio.BufferedProtocol):
    """A consumer with one request in flight. At the end of a partition it starts again, or waits if it is tailing."""

    def __init__(self, start: Start, number: int, meter: Meter) -> None:
        self._topic = start.topic
        self._is_tailing = start.load.is_tailing
        own = range(number, max(start.partitions, number + 1), start.load.clients)
        self._next_offsets = dict.fromkeys([each % start.partitions for each in own], 0)
        self._meter = meter
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._filled = 0
        self._is_first = True  # the answer to the first request shows where the log ends
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another base class
        self._fetch()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < 4 or self._filled < 4 + _LENGTH.unpack_from(self._buffer)[0]:
            return
        # correlation id, and no tagged fields
        answer = decode_response(FETCH, VERSION, self._buffer[9 : self._filled])
        self._filled = 0
        self._take(answer)
        self._fetch()

    def _fetch(self) -> None:
        partitions = [
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES_MAX)
            for partition, offset in self._next_offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=0 if self._is_first else 1,
            max_bytes=ANSWER_BYTES_MAX,
            topics=[FetchTopic(topic=self._topic, partitions=partitions)],
        )
        body = struct.pack(">hhih", FETCH, VERSION, 1, -1) + b"\0" + encode_request(FETCH, VERSION, request)
        self._transport.write(_LENGTH.pack(len(body)) + body)

    def _take(self, answer: FetchResponse) -> None:
        for partition in (each for topic in answer.responses for each in topic.partitions):
            if partition.error_code in RETRIABLE:
                continue
            if partition.error_code:
                raise RuntimeError(f"fetch failed: {ErrorCode(partition.error_code).name}")
            number = partition.partition_index
            if self._is_tailing and self._is_first:
                self._next_offsets[number] = partition.high_watermark
                continue
            records = partition.records or b""
            assert not isinstance(records, list), "an answer is decoded into one buffer"
            for end_offset in end_offsets(records):
                self._next_offsets[number] = end_offset
            if not self._is_tailing and self._next_offsets[number] >= partition.high_watermark:
                self._next_offsets[number] = 0
            self._meter.add(len(records), 0)
        if self._is_tailing:
            self._meter.add(0, 0)  # a tailing consumer is ready without records
        self._is_first = False


def end_offsets(records: Buffer) -> Iterator[int]:
    """The offset after each whole batch; a server may cut the last one."""
    position = 0
    while position + HEADER.size <= len(records):
        base_offset, length, _, _, _, _, last_delta, *_ = HEADER.unpack_from(records, position)
        position += LENGTH_END + length
        if position <= len(records):
            yield base_offset + last_delta + 1


async def _fetch_all(start: Start, meter: Meter) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = start.bootstrap.rpartition(":")
    made = [
        await loop.create_connection(functools.partial(Connection, start, number, meter), host, int(port))
        for number in range(start.load.clients)
    ]
    await asyncio.gather(*[connection.ended for _, connection in made])


if __name__ == "__main__":
    serve(lambda start, meter: uvloop.run(_fetch_all(start, meter)))
