"""An ordinary client beside the hostile ones: it produces, fetches and asks for metadata at a steady rate.

It checks every answer, and measures how long each takes. `python -m tests.testkit.fuzz.canary HOST:PORT TOPIC` runs
until SIGTERM, and prints its result as JSON. It also measures how late its own timers are: that is the part of a
latency which the busy machine causes, and no gateway.
"""

import asyncio
import json
import signal
import struct
import sys
from typing import Any

import msgspec

from penstock.kafkawire.api import decode_response, encode_request, is_flexible
from penstock.kafkawire.api.fetch import API as FETCH, FetchPartition, FetchRequest, FetchTopic
from penstock.kafkawire.api.metadata import API as METADATA, MetadataRequest, MetadataRequestTopic
from penstock.kafkawire.api.produce import API as PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.api_description import Api
from penstock.kafkawire.records import Record, build_batch, decode_records
from tests.testkit.fuzz.frames import request_head, with_length

CLIENT_ID = "canary"
INTERVAL_S = 0.05
ANSWER_TIMEOUT_S = 60.0
RECONNECT_S = 0.5
VERSIONS = {PRODUCE.key: 9, FETCH.key: 12, METADATA.key: 9}


class Result(msgspec.Struct):
    """The answers to the canary."""

    rounds: int = 0
    failures: list[str] = []
    undecided: list[str] = []  # rounds whose Produce had no answer before the gateway closed the connection
    latencies_ms: dict[str, list[float]] = {}
    timer_lags_ms: list[float] = []


class Undecided(Exception):
    """The gateway closed the connection instead of an answer to Produce (ADR 0003)."""


class Canary:
    """One connection, on which a round of requests begins every 50 ms."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._host, _, self._port = bootstrap.rpartition(":")
        self._topic = topic
        self.result = Result()
        self._correlation_id = 0
        self._stored: int | None = 0  # the next record's offset, unless a failure made it unknown
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def run(self, ended: asyncio.Event) -> None:
        """Rounds until `ended`, on one connection; after a failure on a new one."""
        while not ended.is_set():
            try:
                await self._rounds(ended)
            except Undecided:
                self.result.undecided.append(f"round {self.result.rounds}: Produce was not decided")
                self._stored = None
                await asyncio.sleep(RECONNECT_S)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, AssertionError) as error:
                self.result.failures.append(f"round {self.result.rounds}: {type(error).__name__} {error}")
                self._stored = None
                await asyncio.sleep(RECONNECT_S)

    async def _rounds(self, ended: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port))
        next_s = loop.time()
        try:
            while not ended.is_set():
                await self._round()
                next_s = max(next_s + INTERVAL_S, loop.time())
                await asyncio.sleep(next_s - loop.time())
                self.result.timer_lags_ms.append((loop.time() - next_s) * 1000)
        finally:
            self._writer.close()

    async def _round(self) -> None:
        value = b"%d" % self.result.rounds
        data = [PartitionProduceData(0, build_batch([Record(value=value)]))]
        request = ProduceRequest(None, -1, 30_000, [TopicProduceData(self._topic, partition_data=data)])
        try:
            produced = await self._ask(PRODUCE, request)
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            raise Undecided from error
        (stored,) = produced.responses[0].partition_responses
        assert stored.error_code == 0, f"produced: {stored}"
        assert self._stored in (None, stored.base_offset), f"produced at {self._stored}: {stored}"
        self._stored = stored.base_offset + 1
        wanted = FetchPartition(0, fetch_offset=stored.base_offset, partition_max_bytes=1_000_000)
        topics = [FetchTopic(self._topic, partitions=[wanted])]
        fetched = await self._ask(
            FETCH, FetchRequest(max_wait_ms=30_000, min_bytes=1, max_bytes=1_000_000, topics=topics)
        )
        (read,) = fetched.responses[0].partitions
        assert read.error_code == 0, f"fetched: {read}"
        assert [record.value for record in decode_records(bytes(read.records))] == [value], "fetched other records"
        found = await self._ask(METADATA, MetadataRequest([MetadataRequestTopic(name=self._topic)]))
        (topic,) = found.topics
        assert (topic.error_code, len(topic.partitions)) == (0, 1), f"metadata: {topic}"
        self.result.rounds += 1

    async def _ask(self, api: Api, request: msgspec.Struct) -> Any:
        version = VERSIONS[api.key]
        loop = asyncio.get_running_loop()
        self._correlation_id += 1
        began_s = loop.time()
        head = request_head(api.key, version, self._correlation_id, CLIENT_ID)
        self._writer.write(with_length(head + encode_request(api.key, version, request)))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            length, correlation_id = struct.unpack(">ii", await self._reader.readexactly(8))
            body = await self._reader.readexactly(length - 4)
        self.result.latencies_ms.setdefault(api.name, []).append((loop.time() - began_s) * 1000)
        assert correlation_id == self._correlation_id, "the answer to another request"
        return decode_response(api.key, version, body[is_flexible(api, version) :])


async def main(bootstrap: str, topic: str) -> Result:
    """Run until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    canary = Canary(bootstrap, topic)
    await canary.run(ended)
    return canary.result


if __name__ == "__main__":
    print(json.dumps(msgspec.to_builtins(asyncio.run(main(*sys.argv[1:])))))
