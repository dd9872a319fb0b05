"""The requests of a transactional producer in either protocol, each repeated until it is answered."""

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
from tests.testkit.sim.checkers.oracle import Oracle
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

RETRIABLE = RETRIABLE_PRODUCE | {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,  # the gateway does not know yet that the cluster's level rose
}
DEATH_S_MAX = 0.05  # from the last request of a producer to its death
FENCED = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))


class Fenced(Exception):
    """Another producer has taken the transactional id, or the transaction timed out."""


class Rejected(Exception):
    """The request had no effect; its sender handles the error."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class Member(msgspec.Struct, frozen=True):
    """The member that commits a group's offsets (KIP-447); without fields no member."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Protocol(msgspec.Struct, frozen=True):
    """The request versions of one protocol."""

    init: int
    produce: int
    offsets: int
    end: int
    is_implicit: bool  # transaction version 2 (KIP-890): no requests to add partitions; each end gives a new epoch


OLD = (Protocol(3, 3, 0, 1, False), Protocol(4, 8, 3, 3, False), Protocol(4, 11, 3, 4, False))
NEW = Protocol(5, 12, 5, 5, True)


class TransactionClient:
    """The requests of one producer, under its producer id and epoch."""

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
        self.returned_errors: frozenset[ErrorCode] = frozenset()  # these raise `Rejected`

    async def init(self) -> None:
        """Take the transactional id over, or continue with another epoch."""
        request = InitProducerIdRequest(self._id, self._timeout_ms, self.producer_id, self.epoch)
        answer = await self.ask(INIT_PRODUCER_ID, self._protocol.init, request, lambda answer: [answer.error_code])
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add_partitions(self, topic: str, partitions: Iterable[int]) -> None:
        """Add partitions to the transaction, if the protocol needs that."""
        if self._protocol.is_implicit:
            return
        topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
        request = AddPartitionsToTxnRequest([], self._id, self.producer_id, self.epoch, topics)

        def errors(answer: Any) -> list[int]:
            return [
                each.partition_error_code
                for one in answer.results_by_topic_v3_and_below
                for each in one.results_by_partition
            ]

        await self.ask(ADD_PARTITIONS_TO_TXN, min(self._protocol.end, 3), request, errors)

    async def commit_offsets(
        self, group_id: str, topic: str, offsets: Mapping[int, int], member: Member | None = None
    ) -> None:
        """Commit a group's offsets of a topic with the transaction."""
        version = self._protocol.offsets
        if not self._protocol.is_implicit:
            adding = AddOffsetsToTxnRequest(self._id, self.producer_id, self.epoch, group_id)
            await self.ask(ADD_OFFSETS_TO_TXN, version, adding, lambda answer: [answer.error_code])
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
            topics=[TxnOffsetCommitRequestTopic(topic, partitions=partitions)],
        )
        await self.ask(
            TXN_OFFSET_COMMIT,
            version,
            request,
            lambda answer: [each.error_code for one in answer.topics for each in one.partitions],
        )

    async def end(self, *, committed: bool) -> bool:
        """Commit or abort; whether the epoch has changed."""

        def errors(answer: Any) -> list[int]:
            # This is the coordinator's answer if it has aborted the transaction after its timeout.
            is_over = answer.error_code == ErrorCode.INVALID_TXN_STATE and committed and self._protocol.is_implicit
            return [ErrorCode.PRODUCER_FENCED if is_over else answer.error_code]

        answer = await self.ask(END_TXN, self._protocol.end, self._end_request(committed=committed), errors)
        if not self._protocol.is_implicit:
            return False
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return True

    async def send_commit(self) -> None:
        """Send the commit, and do not wait for the answer."""
        connection = await self.connected()
        connection.send(END_TXN, self._protocol.end, self._end_request(committed=True))
        await asyncio.sleep(self._client.stream.uniform(0, DEATH_S_MAX))

    def _end_request(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(self._id, self.producer_id, self.epoch, committed)

    def send(self, connection: KafkaConnection, topic: str, parts: Mapping[int, bytes]) -> "asyncio.Future[Any]":
        """Send a Produce request."""
        data = [PartitionProduceData(partition, batch) for partition, batch in parts.items()]
        request = ProduceRequest(
            self._id, -1, int(REQUEST_TIMEOUT_S * 1000), [TopicProduceData(topic, partition_data=data)]
        )
        return connection.send(PRODUCE, self._protocol.produce, request)

    async def connected(self) -> KafkaConnection:
        """The connection, or a new one."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._client.connect()
        return self._connection

    async def disconnect(self) -> None:
        """Close the connection; the next one comes after a while, and may be to another gateway."""
        self.close()
        await self._client.back_off()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def ask(
        self, api_key: int, version: int, request: msgspec.Struct, errors_of: Callable[[Any], Iterable[int]]
    ) -> Any:
        """The first answer without an error; the request is repeated until then. `Fenced` if there will be none."""
        while True:
            connection = await self.connected()
            try:
                answer = await connection.ask(api_key, version, request, self._request_timeout_s)
            except Disconnected:
                await self.disconnect()
                continue
            if not self.has_to_retry(type(request).__name__, errors_of(answer)):
                return answer
            await self.disconnect()

    def has_to_retry(self, what: str, codes: Iterable[int]) -> bool:
        """Whether these errors are temporary; `Fenced` if not, and a failure if no client may get them."""
        errors = dict.fromkeys(ErrorCode(code) for code in codes if code)
        for error in errors:
            if error in FENCED:
                raise Fenced(error.name)
            if error in self.returned_errors:
                raise Rejected(error)
            if error not in RETRIABLE:
                self._oracle.rejected(self._client.name, f"{what} of {self._id}", error.name)
                raise Fenced(error.name)
        return bool(errors)
