"""A client without a group membership that commits ever higher offsets, one at a time (as Spark and Flink do)."""

import asyncio

from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.kafka import OFFSET_COMMIT, Disconnected, KafkaClient, KafkaConnection as Connection
from tests.testkit.sim.clients.member import RETRIABLE

COMMIT_VERSION = 8


class SequentialCommitter:
    """Commits the next offset after each answer, and also when no answer came; the oracle sees if one goes back."""

    def __init__(self, client: KafkaClient, oracle: Oracle, group_id: str, topic: str, pause_s: float) -> None:
        self._client = client
        self._oracle = oracle
        self._group_id = group_id
        self._topic = topic
        self._pause_s = pause_s
        self._offset = 0

    async def run(self) -> None:
        """Commit until cancelled, over as many connections as that needs."""
        while True:
            connection = await self._client.connect()
            try:
                while True:
                    self._offset += 1
                    await self._commit(connection, self._offset)
                    await asyncio.sleep(self._client.stream.expovariate(1 / self._pause_s))
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()

    async def _commit(self, connection: Connection, offset: int) -> None:
        partition = OffsetCommitRequestPartition(0, offset, committed_metadata="")
        topics = [OffsetCommitRequestTopic(self._topic, partitions=[partition])]
        request = OffsetCommitRequest(self._group_id, -1, "", None, topics=topics)
        answer = await connection.ask(OFFSET_COMMIT, COMMIT_VERSION, request)
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        if error and error not in RETRIABLE:
            self._oracle.rejected(self._client.name, f"a commit of {offset}", error.name)
        if error:
            raise Disconnected(error.name)
