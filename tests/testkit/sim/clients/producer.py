"""Producers like librdkafka and the Java client: several batches in flight, repeated unchanged until the answer."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.kafka import (
    INIT_PRODUCER_ID,
    PRODUCE,
    REQUEST_TIMEOUT_S,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)

IN_FLIGHT_MAX = 5
RECORDS_MAX = 4
PARTS_MAX = 3
RESTART_SHARE = 0.01  # of requests before which an idempotent producer dies and restarts with another id
UNANSWERED = 0  # acks
PADDING_BYTES = 12_000  # of each record of some producers
RETRIABLE = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)


class Died(Exception):
    """The producer's process has ended; its unacknowledged requests are lost."""


@dataclass(eq=False)
class Sending:
    """One Produce request, with those batches by partition that are not acknowledged yet."""

    number: int
    parts: dict[int, bytes]
    batches: dict[int, bytes] = field(default_factory=dict)  # all batches by partition
    was_split: bool = False  # only some batches were acknowledged; the others were sent again
    is_abandoned: bool = False  # its producer died before it was acknowledged
    sent_s: float = 0.0
    attempts: int = 0
    offsets: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.batches = dict(self.parts)


class Producer:
    """One producer, which sends `count` requests; `ledger` keeps all of them for the final checks."""

    def __init__(
        self,
        client: KafkaClient,
        oracle: Oracle,
        topic: str,
        partitions: int,
        *,
        is_idempotent: bool,
        retries: bool,
        count: int,
        interval_s: float,
        now_ms: int,
    ) -> None:
        self.name = client.name
        self.is_idempotent = is_idempotent
        self.is_done = False
        self.acknowledged = 0
        self.ledger: list[Sending] = []
        self._client = client
        self._stream = client.stream
        self._oracle = oracle
        self._topic = topic
        self._partitions = partitions
        self._count = count
        self._interval_s = interval_s
        self._now_ms = now_ms
        self._acks = -1 if is_idempotent else self._stream.choice((-1, 1, UNANSWERED))
        self.retries = retries and self._acks != UNANSWERED
        # Gateways split large requests into several messages if the bus has a small limit.
        self._padding = self._stream.choice((b"", b"", b"." * PADDING_BYTES))
        self._version = self._stream.choice((3, 7, 8, 9))
        self._pending: deque[Sending] = deque()  # in order
        self._producer_id = -1
        self._sequences: dict[int, int] = {}
        self._next_s = 0.0

    def finish_soon(self, interval_s: float) -> None:
        """Shorten the interval between the remaining requests."""
        self._interval_s = min(self._interval_s, interval_s)

    def skip_remaining(self) -> None:
        """Make at most one more request."""
        self._count = min(self._count, len(self.ledger) + 1)

    async def run(self) -> None:
        """Send all requests, over as many connections as they need."""
        while not self.is_done:
            connection = await self._client.connect()
            try:
                if self.is_idempotent and self._producer_id < 0:
                    await self._init(connection)
                await self._send_over(connection)
            except Disconnected:
                if not self.retries:
                    self._pending.clear()
            except Died:
                self._abandon()
            finally:
                connection.close()
            if not self.is_done:
                await self._client.back_off()

    async def _init(self, connection: Connection) -> None:
        answer = await connection.ask(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
        if answer.error_code:
            raise Disconnected(f"no producer id: {answer.error_code}")
        self._producer_id = answer.producer_id

    def _abandon(self) -> None:
        """Start again with another producer id; requests in flight may be stored or not, but never twice."""
        self._oracle.observed(self.name, f"died with {len(self._pending)} requests")
        for sending in self._pending:
            sending.is_abandoned = True
        self._pending.clear()
        self._sequences.clear()
        self._producer_id = -1

    async def _send_over(self, connection: Connection) -> None:
        """Send over one connection until all requests are done or it ends."""
        loop = asyncio.get_running_loop()
        unsent = deque(self._pending)
        in_flight: deque[tuple[Sending, asyncio.Future[ProduceResponse]]] = deque()
        while True:
            while unsent and len(in_flight) < IN_FLIGHT_MAX:
                sending = unsent.popleft()
                in_flight.append((sending, self._send(connection, sending)))
            may_make = len(in_flight) < IN_FLIGHT_MAX and len(self.ledger) < self._count
            if may_make and loop.time() >= self._next_s:
                if self.is_idempotent and self._stream.random() < RESTART_SHARE:
                    raise Died
                unsent.append(self._make())
                continue
            if not in_flight:
                if len(self.ledger) >= self._count:
                    self.is_done = True
                    return
                await asyncio.sleep(max(self._next_s - loop.time(), 0))
                continue
            sending, answer = in_flight[0]
            expires_s = sending.sent_s + REQUEST_TIMEOUT_S
            wake_s = min(expires_s, self._next_s) if may_make else expires_s
            await asyncio.wait((answer,), timeout=max(wake_s - loop.time(), 0))
            if answer.done():
                in_flight.popleft()
                self._settle(sending, answer.result())
            elif loop.time() >= expires_s:
                raise Disconnected("no answer in time")

    def _send(self, connection: Connection, sending: Sending) -> "asyncio.Future[ProduceResponse]":
        data = [PartitionProduceData(partition, batch) for partition, batch in sending.parts.items()]
        topic = TopicProduceData(self._topic, partition_data=data)
        request = ProduceRequest(None, self._acks, int(REQUEST_TIMEOUT_S * 1000), [topic])
        sending.sent_s = asyncio.get_running_loop().time()
        sending.attempts += 1
        return connection.send(PRODUCE, self._version, request, answered=self._acks != UNANSWERED)

    def _make(self) -> Sending:
        loop = asyncio.get_running_loop()
        self._next_s = loop.time() + self._stream.expovariate(1 / self._interval_s)
        number = len(self.ledger)
        chosen = self._stream.sample(range(self._partitions), self._stream.randint(1, min(PARTS_MAX, self._partitions)))
        parts = {partition: self._batch(number, partition) for partition in chosen}
        sending = Sending(number, parts)
        self.ledger.append(sending)
        self._pending.append(sending)
        return sending

    def _batch(self, number: int, partition: int) -> bytes:
        count = self._stream.randint(1, RECORDS_MAX)
        records = [
            Record(
                index, self._now_ms + number, None, f"{self.name}/{number}/{partition}/{index}".encode() + self._padding
            )
            for index in range(count)
        ]
        if not self.is_idempotent:
            return build_batch(records)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + count
        return build_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)

    def _settle(self, sending: Sending, response: ProduceResponse) -> None:
        """Take an answer; `Disconnected` if a batch must be sent again."""
        if self._acks == UNANSWERED:
            self._pending.remove(sending)
            return
        answers = {each.index: each for topic in response.responses for each in topic.partition_responses}
        retry = ErrorCode.NONE
        for partition, batch in list(sending.parts.items()):
            answer = answers[partition]
            error = ErrorCode(answer.error_code)
            if error in RETRIABLE:
                retry = error
                continue
            if error:
                self._oracle.rejected(self.name, f"request {sending.number} to {partition}", error.name)
            else:
                self.acknowledged += 1
                sending.offsets[partition] = answer.base_offset
                self._oracle.acknowledged(self.name, self._topic, partition, answer.base_offset, batch)
            del sending.parts[partition]
        if retry:
            sending.was_split = sending.was_split or len(sending.parts) < len(sending.batches)
            raise Disconnected(f"retry: {retry.name}")
        self._pending.remove(sending)
