"""Consumers that read partitions from the beginning through any gateway, and check all answers."""

import asyncio

from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.kafkawire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.kafka import (
    FETCH,
    LIST_OFFSETS,
    REQUEST_TIMEOUT_S,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)

WAIT_MS = 500
ASK_END_SHARE = 0.1  # of fetches before which a reader asks for the ends; it always asks on a new connection
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
MOVE_SHARE = 0.05  # of fetches after which a reader goes to another gateway
RETRIABLE = frozenset(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
)


class Reading:
    """The positions of a consumer in some partitions, with fetches from there."""

    isolation_level = READ_UNCOMMITTED
    partition_bytes_max: tuple[int, ...] = (1, 300, 2_000, 1_000_000)  # one of these for each fetch
    bytes_max: tuple[int, ...] = (1, 5_000, 10_000_000)

    def __init__(self, client: KafkaClient, oracle: Oracle, topic: str) -> None:
        self.positions: dict[int, int] = {}
        self.is_out_of_range = False  # the start of a log is after the position
        self._client = client
        self._oracle = oracle
        self._topic = topic
        self._version = client.stream.choice((4, 7, 11, 12))

    async def fetch(self, connection: Connection, wait_ms: int = WAIT_MS) -> bool:
        """Fetch once and advance; whether records came. `Disconnected` if the client must try again."""
        stream = self._client.stream
        bytes_max = stream.choice(self.partition_bytes_max)
        asked = [
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
            for partition, offset in self.positions.items()
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=stream.choice((1, 1, 1, 500)),
            max_bytes=stream.choice(self.bytes_max),
            isolation_level=self.isolation_level,
            topics=[FetchTopic(self._topic, partitions=asked)],
        )
        timeout_s = REQUEST_TIMEOUT_S + wait_ms / 1000
        return self._take(await connection.ask(FETCH, self._version, request, timeout_s))

    def taken(self, partition: PartitionData, offset: int) -> None:
        """Take the records of a partition, fetched from an offset on."""

    def _take(self, response: FetchResponse) -> bool:
        found = False
        retry = ErrorCode.NONE
        if response.error_code:
            self._oracle.rejected(self._client.name, "a fetch", ErrorCode(response.error_code).name)
        for topic in response.responses:
            for each in topic.partitions:
                if each.error_code in RETRIABLE:
                    retry = ErrorCode(each.error_code)
                    continue
                offset = self.positions[each.partition_index]
                start = self._oracle.log(self._topic, each.partition_index).start
                if each.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < start:
                    self.is_out_of_range = True
                    continue
                if each.error_code:
                    what = f"a fetch of {self._topic}-{each.partition_index} from {offset} on"
                    self._oracle.rejected(self._client.name, what, ErrorCode(each.error_code).name)
                    continue
                records = b"" if each.records is None else bytes(each.records)
                self.positions[each.partition_index] = self._oracle.fetched(
                    self._client.name, self._topic, each.partition_index, offset, records, each.high_watermark
                )
                found = found or bool(records)
                self.taken(each, offset)
        if retry:
            raise Disconnected(f"retry: {retry.name}")
        return found


class Reader:
    """Reads all partitions of a topic, and tails them for ever."""

    def __init__(
        self, client: KafkaClient, oracle: Oracle, topic: str, partitions: int, reading: Reading | None = None
    ) -> None:
        self.name = client.name
        self.reading = reading or Reading(client, oracle, topic)
        self.reading.positions = dict.fromkeys(range(partitions), 0)
        self._client = client
        self._oracle = oracle
        self._topic = topic

    @property
    def is_at_end(self) -> bool:
        """Whether all committed records were read."""
        return all(
            self._oracle.log(self._topic, partition).end == offset
            for partition, offset in self.reading.positions.items()
        )

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            connection = await self._client.connect()
            try:
                await self._ask_ends(connection)
                while self._client.stream.random() >= MOVE_SHARE:
                    if self._client.stream.random() < ASK_END_SHARE:
                        await self._ask_ends(connection)
                    await self.reading.fetch(connection)
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()
            await asyncio.sleep(0)

    async def _ask_ends(self, connection: Connection) -> None:
        """Ask for the ends: none may be before the read position, or after the committed end."""
        floors = dict(self.reading.positions)
        asked = [ListOffsetsPartition(partition_index=partition, timestamp=LATEST) for partition in floors]
        isolation_level = self.reading.isolation_level
        topics = [ListOffsetsTopic(self._topic, asked)]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
        answer = await connection.ask(LIST_OFFSETS, 5, request)
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code in RETRIABLE:
                    raise Disconnected("retry")
                log = self._oracle.log(self._topic, each.partition_index)
                floor, end = (
                    floors[each.partition_index],
                    log.end if isolation_level == READ_UNCOMMITTED else log.stable,
                )
                if each.error_code or not floor <= each.offset <= end:
                    what = f"the end of {self._topic}-{each.partition_index}"
                    why = f"{ErrorCode(each.error_code).name}: {each.offset}, read {floor}, committed {end}"
                    self._oracle.rejected(self.name, what, why)
