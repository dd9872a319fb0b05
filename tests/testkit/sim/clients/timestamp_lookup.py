"""A client that looks up the first offset at or after a time, through any gateway."""

import asyncio

from penstock.kafkawire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.consumer import RETRIABLE
from tests.testkit.sim.clients.kafka import LIST_OFFSETS, Disconnected, KafkaClient, KafkaConnection as Connection

PAUSE_S = (0.2, 1.5)


class TimestampLookups:
    """Looks up times in all partitions of a topic; the records have times from `first_ms` to `last_ms`."""

    def __init__(
        self, client: KafkaClient, oracle: Oracle, topic: str, partitions: int, first_ms: int, last_ms: int
    ) -> None:
        self._client = client
        self._oracle = oracle
        self._topic = topic
        self._partitions = partitions
        self._span_ms = (first_ms - 1, last_ms + 1)

    async def run(self) -> None:
        """Look up times until cancelled."""
        while True:
            connection = await self._client.connect()
            try:
                while True:
                    await self._ask(connection, self._client.stream.randint(*self._span_ms))
                    await asyncio.sleep(self._client.stream.uniform(*PAUSE_S))
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()

    async def _ask(self, connection: Connection, time_ms: int) -> None:
        """Look up one time. The answer must be correct at the request, or at the answer."""
        before = [self._oracle.first_at(self._topic, each, time_ms) for each in range(self._partitions)]
        asked = [ListOffsetsPartition(partition_index=each, timestamp=time_ms) for each in range(self._partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(self._topic, asked)])
        answer = await connection.ask(LIST_OFFSETS, 5, request)
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code in RETRIABLE:
                    raise Disconnected("retry")
                partition = each.partition_index
                now = self._oracle.first_at(self._topic, partition, time_ms)
                if each.error_code or each.offset not in (before[partition], now):
                    what = f"the first offset of {self._topic}-{partition} from {time_ms} ms on"
                    why = f"{ErrorCode(each.error_code).name}: {each.offset}, was {before[partition]}, is {now}"
                    self._oracle.rejected(self._client.name, what, why)
