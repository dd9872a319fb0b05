"""What a transactional producer says and is told: its requests in either protocol, until they are answered."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from penstock.kafkawire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.kafkawire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.kafkawire.api.end_txn import EndTxnRequest
from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.sim.clients.kafka import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    REQUEST_TIMEOUT_S,
    TXN_OFFSET_COMMIT,
    Disconnected,
    KafkaClient,
    KafkaConnection,
)
from tests.testkit.sim.clients.producer import RETRIABLE as RETRIABLE_PRODUCE
from tests.testkit.sim.clients.settings import Span
from tests.testkit.sim.judges.oracle import Oracle

RETRIABLE = RETRIABLE_PRODUCE | {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,  # a gateway that has not heard yet that the cluster's level rose
}
UNHEARD_S_MAX = 0.05  # from the last request of a dying producer to its death
FENCED = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))


class Fenced(Exception):
    """Somebody else has the transactional id now, or the transaction took too long."""


class Rejected(Exception):
    """What was asked for is not done, for a reason that the life has to judge."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class Member(msgspec.Struct, frozen=True):
    """Who commits a group's offsets (KIP-447); by itself nobody."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Protocol(msgspec.Struct, frozen=True):
    """Versions of requests that belong together."""

    init: int
    produce: int
    offsets: int
    end: int
    is_implicit: bool  # transaction version 2 (KIP-890): nothing is added before, and each end gives a new epoch


OLD = (Protocol(3, 3, 0, 1, False), Protocol(4, 8, 3, 3, False), Protocol(4, 11, 3, 4, False))
NEW = Protocol(5, 12, 5, 5, True)


class TransactionWire:
    """One life's way to the gateways, under the producer id and epoch that it has."""

    def __init__(
        self,
        client: KafkaClient,
        oracle: Oracle,
        transactional_id: str,
        protocol: Protocol,
        timeout_ms: int,
        request_timeouts_s: Span,
    ) -> None:
        self.producer_id = -1
        self.epoch = -1
        self._client = client
        self._oracle = oracle
        self._id = transactional_id
        self._protocol = protocol
        self._timeout_ms = timeout_ms
        self._request_timeout_s = client.stream.choice(request_timeouts_s)
        self._connection: KafkaConnection | None = None
        self.judged: frozenset[ErrorCode] = frozenset()  # errors that are told as `Rejected`

    async def init(self) -> None:
        """Take the transactional id over, or go on with another epoch."""
        request = InitProducerIdRequest(self._id, self._timeout_ms, self.producer_id, self.epoch)
        answer = await self.told(INIT_PRODUCER_ID, self._protocol.init, request, lambda told: [told.error_code])
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add_partitions(self, topic: str, partitions: Iterable[int]) -> None:
        """Say where records are going to be written to, where that has to be said."""
        if self._protocol.is_implicit:
            return
        topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
        request = AddPartitionsToTxnRequest([], self._id, self.producer_id, self.epoch, topics)

        def errors(told: Any) -> list[int]:
            return [
                each.partition_error_code
                for one in told.results_by_topic_v3_and_below
                for each in one.results_by_partition
            ]

        await self.told(ADD_PARTITIONS_TO_TXN, min(self._protocol.end, 3), request, errors)

    async def commit_offsets(
        self, group_id: str, topic: str, offsets: Mapping[int, int], member: Member | None = None
    ) -> None:
        """Commit a group's offsets of a topic with the transaction."""
        version = self._protocol.offsets
        if not self._protocol.is_implicit:
            adding = AddOffsetsToTxnRequest(self._id, self.producer_id, self.epoch, group_id)
            await self.told(ADD_OFFSETS_TO_TXN, version, adding, lambda told: [told.error_code])
        by = member or Member()
        partitions = [TxnOffsetCommitRequestPartition(*each) for each in offsets.items()]
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=by.generation,
            member_id=by.member_id,
            group_instance_id=by.instance_id,
            topics=[TxnOffsetCommitRequestTopic(topic, partitions)],
        )
        await self.told(
            TXN_OFFSET_COMMIT,
            version,
            request,
            lambda told: [each.error_code for one in told.topics for each in one.partitions],
        )

    async def end(self, *, committed: bool) -> bool:
        """Commit or abort; whether the epoch is another one now."""

        def errors(told: Any) -> list[int]:
            # Who commits what was aborted because it took too long hears that it has ended otherwise.
            is_over = told.error_code == ErrorCode.INVALID_TXN_STATE and committed and self._protocol.is_implicit
            return [ErrorCode.PRODUCER_FENCED if is_over else told.error_code]

        answer = await self.told(END_TXN, self._protocol.end, self._ending(committed=committed), errors)
        if not self._protocol.is_implicit:
            return False
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return True

    async def send_end(self) -> None:
        """Ask for the commit, and never hear what came of it."""
        connection = await self.connected()
        connection.send(END_TXN, self._protocol.end, self._ending(committed=True))
        await asyncio.sleep(self._client.stream.uniform(0, UNHEARD_S_MAX))

    def _ending(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(self._id, self.producer_id, self.epoch, committed)

    def send(self, connection: KafkaConnection, topic: str, parts: Mapping[int, bytes]) -> "asyncio.Future[Any]":
        """Send a Produce request."""
        data = [PartitionProduceData(partition, batch) for partition, batch in parts.items()]
        request = ProduceRequest(
            self._id, -1, int(REQUEST_TIMEOUT_S * 1000), [TopicProduceData(topic, partition_data=data)]
        )
        return connection.send(PRODUCE, self._protocol.produce, request)

    async def connected(self) -> KafkaConnection:
        """The connection, or another one."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._client.connect()
        return self._connection

    async def part(self) -> None:
        """Go elsewhere after a while."""
        self.close()
        await self._client.back_off()

    def close(self) -> None:
        """Leave."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def told(
        self, api_key: int, version: int, request: msgspec.Struct, errors_of: Callable[[Any], Iterable[int]]
    ) -> Any:
        """The answer without an error, however often it has to be asked for; `Fenced` if there will be none."""
        while True:
            connection = await self.connected()
            try:
                answer = await connection.ask(api_key, version, request, self._request_timeout_s)
            except Disconnected:
                await self.part()
                continue
            if not self.has_to_retry(type(request).__name__, errors_of(answer)):
                return answer
            await self.part()

    def has_to_retry(self, what: str, codes: Iterable[int]) -> bool:
        """Whether these errors pass; `Fenced` if they do not, and a failure where nobody should hear them."""
        errors = dict.fromkeys(ErrorCode(code) for code in codes if code)
        for error in errors:
            if error in FENCED:
                raise Fenced(error.name)
            if error in self.judged:
                raise Rejected(error)
            if error not in RETRIABLE:
                self._oracle.rejected(self._client.name, f"{what} of {self._id}", error.name)
                raise Fenced(error.name)
        return bool(errors)
