"""A topic that is created, written, read and deleted again and again under one name."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.api.delete_topics import DeleteTopicsRequest
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataRequestTopic
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.consumer import Reading
from tests.testkit.sim.clients.kafka import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    PRODUCE,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)
from tests.testkit.sim.clients.producer import RETRIABLE

BATCHES_MAX = 3  # in each incarnation of the topic
REST_S = (0.1, 1.5)
TIMEOUT_MS = 4_000
METADATA_TIMEOUT_S = 12.0  # longer than a gateway asks the sequencers

Step = Callable[[Connection], Awaitable[None]]


class RecreatedTopic:
    """One incarnation of the topic after the other, until `finish`."""

    def __init__(self, client: KafkaClient, oracle: Oracle, topic: str, now_ms: int) -> None:
        self.is_done = False
        self.incarnations = 0
        self._is_ending = False
        self._client = client
        self._oracle = oracle
        self._topic = topic
        self._now_ms = now_ms
        self._end = 0  # after the last offset that was acknowledged in this incarnation
        self._is_in_doubt = False  # a step was sent again: its first copy may still take effect, late

    def finish(self) -> None:
        """Create the topic no more."""
        self._is_ending = True

    async def run(self) -> None:
        """Create and delete the topic until `finish`."""
        stream = self._client.stream
        while not self._is_ending:
            self.incarnations += 1
            self._end, self._is_in_doubt = 0, False
            await self._until_done(self._make)
            await self._until_done(self._look_up)
            for number in range(stream.randint(1, BATCHES_MAX)):
                batch = build_batch([Record(0, self._now_ms, None, f"{self.incarnations}/{number}".encode())])
                await self._until_done(lambda connection, batch=batch: self._write(connection, batch))
            reading = Reading(self._client, self._oracle, self._topic)
            reading.positions = {0: 0}
            await self._until_done(lambda connection, reading=reading: self._read(connection, reading))
            await self._until_done(self._delete)
            await self._write_to_nothing()
            await asyncio.sleep(stream.uniform(*REST_S))
        self.is_done = True

    async def _until_done(self, step: Step) -> None:
        while True:
            connection = await self._client.connect()
            try:
                return await step(connection)
            except Disconnected:
                self._is_in_doubt = True
                await self._client.back_off()
            finally:
                connection.close()

    async def _make(self, connection: Connection) -> None:
        request = CreateTopicsRequest([CreatableTopic(self._topic, 1, 1)], TIMEOUT_MS)
        answer = await connection.ask(CREATE_TOPICS, 5, request)
        error = ErrorCode(answer.topics[0].error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Disconnected(error.name)

    async def _look_up(self, connection: Connection) -> None:
        """A created topic exists on every gateway, with a leader."""
        asked = MetadataRequest([MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        (topic,) = (await connection.ask(METADATA, 12, asked, METADATA_TIMEOUT_S)).topics
        errors = [topic.error_code, *(each.error_code for each in topic.partitions)]
        if any(errors) or len(topic.partitions) != 1:
            self._oracle.rejected(self._client.name, f"metadata of {self._topic}", ErrorCode(max(errors)).name)

    async def _write(self, connection: Connection, batch: bytes) -> None:
        data = TopicProduceData(self._topic, partition_data=[PartitionProduceData(0, batch)])
        answer = await connection.ask(PRODUCE, 9, ProduceRequest(None, -1, TIMEOUT_MS, [data]))
        result = answer.responses[0].partition_responses[0]
        error = ErrorCode(result.error_code)
        if error in RETRIABLE:
            raise Disconnected(error.name)
        if error:
            self._oracle.rejected(self._client.name, f"a batch for {self._topic}", error.name)
        else:
            self._oracle.acknowledged(self._client.name, self._topic, 0, result.base_offset, batch)
            self._end = max(self._end, result.base_offset + 1)

    async def _read(self, connection: Connection, reading: Reading) -> None:
        """Read all records of this incarnation, from offset 0 on; the oracle fails on those of earlier ones."""
        while reading.positions[0] < self._end:
            await reading.fetch(connection)

    async def _delete(self, connection: Connection) -> None:
        was_in_doubt = self._is_in_doubt
        answer = await connection.ask(DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=[self._topic]))
        error = ErrorCode(answer.responses[0].error_code)
        if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if not was_in_doubt:
                self._oracle.rejected(self._client.name, f"the deletion of {self._topic}", error.name)
        elif error:
            raise Disconnected(error.name)
        elif not was_in_doubt and self._topic in self._oracle.state.topics:
            self._oracle.rejected(self._client.name, f"the deletion of {self._topic}", "it still exists")

    async def _write_to_nothing(self) -> None:
        """The oracle reports a failure if this is acknowledged, as there is no topic."""
        connection = await self._client.connect()
        try:
            await self._write(connection, build_batch([Record(0, self._now_ms, None, b"not stored")]))
        except Disconnected:
            pass
        finally:
            connection.close()
