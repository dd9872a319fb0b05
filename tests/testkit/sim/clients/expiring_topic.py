"""A topic whose records are deleted: by retention, by DeleteRecords, or with the topic, which may be undeleted.

One client writes, reads and deletes. The deletion checker decides whether records may be deleted at that moment.
"""

import asyncio

from penstock.contracts.commands import TopicCreated, UndeleteTopic
from penstock.contracts.errors import PenstockError
from penstock.contracts.ids import TopicId
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.kafkawire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.kafkawire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.kafkawire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from penstock.runtime.bus.sequencer_client import SequencerClient
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.consumer import Reading
from tests.testkit.sim.clients.kafka import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    LIST_OFFSETS,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)
from tests.testkit.sim.clients.producer import RETRIABLE
from tests.testkit.sim.clients.recreated_topic import TIMEOUT_MS, RecreatedTopic

STEPS = (3, 12)  # in each incarnation of the topic
STEP_REST_S = (0.05, 0.7)
LEVEL_LOOK_S = 0.3
DELETE_SHARE = 0.5  # of incarnations
EARLIEST = -2
COMMAND_DEADLINE_S = 6.0


class ExpiringTopic(RecreatedTopic):
    """One incarnation of the topic after the other, until `finish`; the last one may leave the topic there."""

    def __init__(
        self, client: KafkaClient, oracle: Oracle, topic: str, now_ms: int, sequencer: SequencerClient
    ) -> None:
        super().__init__(client, oracle, topic, now_ms)
        self._sequencer = sequencer
        self._configs: dict[str, str] = {}
        self._written = 0
        self._skips_remaining = False

    def skip_remaining(self) -> None:
        """Take no further step in the last incarnation, and leave the topic as it is."""
        self._skips_remaining = True

    async def run(self) -> None:
        """Create, use and delete the topic until `finish`."""
        stream = self._client.stream
        while self._oracle.state.level < JANITOR_LEVEL:
            await asyncio.sleep(LEVEL_LOOK_S)
        while not self._is_ending:
            self.incarnations += 1
            self._end, self._is_in_doubt = 0, False
            self._configs = {
                "retention.ms": stream.choice(("300", "1500", "600000")),
                "retention.bytes": stream.choice(("-1", "0", "250", "1200")),
                "penstock.undelete.window.ms": stream.choice(("0", "0", "3000")),
            }
            await self._until_done(self._make)
            await self._run_steps()
            if not self._skips_remaining and stream.random() < DELETE_SHARE and await self._delete_and_undelete():
                await self._run_steps()
        self.is_done = True

    async def _run_steps(self) -> None:
        """Some steps of one incarnation."""
        stream = self._client.stream
        reading = Reading(self._client, self._oracle, self._topic)
        reading.positions = {0: 0}
        for _ in range(stream.randint(*STEPS)):
            what = stream.choice(("write", "write", "write", "read", "read", "delete"))
            if what == "write":
                batch = self._batch()
                await self._until_done(lambda connection, batch=batch: self._write(connection, batch))
            elif what == "read":
                await self._until_done(lambda connection: self._look(connection, reading))
            else:
                offset = stream.randint(0, self._end)
                await self._until_done(lambda connection, offset=offset: self._delete_records(connection, offset))
            if (
                self._skips_remaining or self._topic not in self._oracle.state.topics
            ):  # a deletion of an earlier incarnation came late
                return
            await asyncio.sleep(stream.uniform(*STEP_REST_S))

    def _batch(self) -> bytes:
        self._written += 1
        now_ms = self._now_ms + int(asyncio.get_running_loop().time() * 1000)
        count = self._client.stream.randint(1, 3)
        return build_batch([Record(each, now_ms, None, f"{self._written}/{each}".encode()) for each in range(count)])

    async def _make(self, connection: Connection) -> None:
        configs = [CreatableTopicConfig(name, value) for name, value in self._configs.items()]
        request = CreateTopicsRequest([CreatableTopic(self._topic, 1, 1, configs=configs)], TIMEOUT_MS)
        answer = await connection.ask(CREATE_TOPICS, 5, request)
        error = ErrorCode(answer.topics[0].error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Disconnected(error.name)

    async def _look(self, connection: Connection, reading: Reading) -> None:
        """Fetch from the position, or from the log's start if that is higher by now."""
        if not reading.is_out_of_range:
            await reading.fetch(connection, 100)
            return
        asked = ListOffsetsTopic(self._topic, [ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)])
        answer = await connection.ask(LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-1, topics=[asked]))
        result = answer.topics[0].partitions[0]
        if result.error_code in RETRIABLE:
            raise Disconnected(ErrorCode(result.error_code).name)
        start = self._oracle.log(self._topic, 0).start
        if result.error_code or result.offset > start:
            why = f"{ErrorCode(result.error_code).name}: {result.offset} instead of {start}"
            self._oracle.rejected(self._client.name, f"the start of {self._topic}", why)
        reading.positions[0] = max(reading.positions[0], result.offset)
        reading.is_out_of_range = False

    async def _delete_records(self, connection: Connection, offset: int) -> None:
        partition = DeleteRecordsPartition(0, offset)
        request = DeleteRecordsRequest([DeleteRecordsTopic(self._topic, [partition])], TIMEOUT_MS)
        answer = await connection.ask(DELETE_RECORDS, 2, request)
        result = answer.topics[0].partitions[0]
        if result.error_code in RETRIABLE:
            raise Disconnected(ErrorCode(result.error_code).name)
        start = self._oracle.log(self._topic, 0).start
        if result.error_code or not offset <= result.low_watermark <= start:
            why = f"{ErrorCode(result.error_code).name}: {result.low_watermark}, its start is {start}"
            self._oracle.rejected(self._client.name, f"the deletion of {self._topic} up to {offset}", why)

    async def _delete_and_undelete(self) -> bool:
        """Delete the topic and perhaps undelete it; whether it exists afterwards."""
        topic = self._oracle.state.topics.get(self._topic)
        await self._until_done(self._delete)
        if topic is None or self._configs["penstock.undelete.window.ms"] == "0":
            await self._write_to_nothing()
            return False
        await asyncio.sleep(self._client.stream.uniform(0, 4.0))
        return await self._undelete(topic.topic_id)

    async def _undelete(self, topic_id: TopicId) -> bool:
        command = UndeleteTopic(self._sequencer.seen_clock_ms, self._topic, topic_id)
        try:
            (outcome,) = await self._sequencer.command([command], deadline_s=COMMAND_DEADLINE_S)
        except PenstockError:
            return self._topic in self._oracle.state.topics
        return isinstance(outcome, TopicCreated) and self._topic in self._oracle.state.topics
