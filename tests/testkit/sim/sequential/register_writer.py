"""A producer without idempotence that has one request in flight, as a writer of one register for each partition.

It writes the next value when the one before is acknowledged. It sends a value again when its time is over or its
connection ends. So the log may hold a value twice, but never an older value behind a newer one (see `late_copies`).
"""

import asyncio
import struct
from collections import defaultdict

from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.kafka import (
    CREATE_TOPICS,
    PRODUCE,
    REQUEST_TIMEOUT_S,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)
from tests.testkit.sim.clients.producer import RETRIABLE
from tests.testkit.sim.sequential.late_copies import Attempt, LateCopies

PRODUCE_VERSION = 9
_VALUE = struct.Struct(">q")


class RegisterWriter:
    """Writes `count` values, one after the other, to a topic of its own with one partition."""

    def __init__(
        self,
        client: KafkaClient,
        oracle: Oracle,
        late_copies: LateCopies,
        topic: str,
        count: int,
        pause_s: float,
        now_ms: int,
    ) -> None:
        self.topic = topic
        self.is_done = False
        self.written = 0
        self._client = client
        self._oracle = oracle
        self._late_copies = late_copies
        self._attempts: dict[int, list[Attempt]] = defaultdict(list)  # by value
        self._count = count
        self._pause_s = pause_s
        self._now_ms = now_ms

    def finish_soon(self) -> None:
        """Write at most one more value."""
        self._count = min(self._count, self.written + 1)

    async def run(self) -> None:
        """Create the topic, and write all values, over as many connections as they need."""
        has_topic = False
        while not self.is_done:
            connection = await self._client.connect()
            try:
                if not has_topic:
                    await self._make_topic(connection)
                    has_topic = True
                while self.written < self._count:
                    await self._write(connection, self.written)
                    self.written += 1
                    await asyncio.sleep(self._client.stream.expovariate(1 / self._pause_s))
                self.is_done = True
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()

    async def _make_topic(self, connection: Connection) -> None:
        request = CreateTopicsRequest([CreatableTopic(self.topic, 1, 1)])
        answer = await connection.ask(CREATE_TOPICS, 5, request, 10.0)
        error = ErrorCode(answer.topics[0].error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Disconnected(error.name)

    async def _write(self, connection: Connection, value: int) -> None:
        batch = build_batch([Record(0, self._now_ms + value, None, _VALUE.pack(value))])
        data = TopicProduceData(self.topic, partition_data=[PartitionProduceData(0, batch)])
        request = ProduceRequest(None, -1, int(REQUEST_TIMEOUT_S * 1000), [data])
        self._attempts[value].append(Attempt(connection.address, self._late_copies.now_s()))
        answer = await connection.ask(PRODUCE, PRODUCE_VERSION, request)
        result = answer.responses[0].partition_responses[0]
        error = ErrorCode(result.error_code)
        if error in RETRIABLE:
            raise Disconnected(error.name)
        if error:
            self._oracle.rejected(self._client.name, f"value {value}", error.name)
            raise Disconnected(error.name)
        self._oracle.acknowledged(self._client.name, self.topic, 0, result.base_offset, batch)

    def check(self) -> None:
        """Fail the run if an older value is behind a newer one, unless ADR 0024 allows this copy."""
        newest, newest_at = -1, -1
        topic_id = self._oracle.state.topics[self.topic].topic_id
        for batch in self._oracle.log(self.topic, 0).batches:
            (value,) = _VALUE.unpack(batch.data[-1 - _VALUE.size : -1])  # a record ends with its number of headers
            if value < newest and not self._late_copies.allows(topic_id, batch.base_offset, self._attempts[value]):
                where = f"{self.topic} at {batch.base_offset}"
                self._oracle.rejected(self._client.name, where, f"value {value} is behind {newest} at {newest_at}")
            newest, newest_at = max(newest, value), batch.base_offset
