"""Transactional producers: they write, consume, commit, abort, stall, die, and continue as zombies."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from penstock.kafkawire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.fakes.answers import within
from tests.testkit.loads.transaction_history import GroupPlace, History, Life, Sent, Transaction
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.kafka import OFFSET_FETCH, REQUEST_TIMEOUT_S, Disconnected, KafkaClient
from tests.testkit.sim.clients.settings import TransactionSettings
from tests.testkit.sim.clients.transaction_client import NEW, OLD, Fenced, Rejected, TransactionClient

RECORDS_MAX = 3
REQUESTS_MAX = 3  # of a transaction
CONSUMED_MAX = 9
COMMIT_SHARE = 0.75
CONSUMER_SHARE = 0.6  # of transactions
ABANDON_SHARE = 0.1  # are aborted without waiting for answers
PURGE_SHARE = 0.7  # of these, in the old protocol: as librdkafka does it after a broken connection
NOTHING_SHARE = 0.03  # end without a begin, which only the new protocol allows
# Shares of steps of a transaction with these events before them.
FREEZE_SHARE = 0.02
STALL_SHARE = 0.04
DIE_ENDING_SHARE = 0.05  # of transactions, with the commit in flight
ZOMBIES_MAX = 3

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Died(Exception):
    """The producer process has died."""


@dataclass
class Sending:
    """One Produce request, until all its batches are acknowledged."""

    parts: dict[int, bytes]
    sent: dict[int, list[Sent]] = field(default_factory=dict)


class TransactionalProducer:
    """All producers under one transactional id, one after the other; done after `count` transactions."""

    def __init__(
        self,
        client: KafkaClient,
        oracle: Oracle,
        history: History,
        topic: str,
        partitions: int,
        group_place: GroupPlace,
        *,
        count: int,
        spawn: Spawn,
        now_ms: int,
        settings: TransactionSettings,
    ) -> None:
        stream = client.stream
        self.name = client.name
        self.client = client
        self.oracle = oracle
        self.history = history
        self.topic = topic
        self.partitions = partitions
        self.group_place = group_place
        self.settings = settings
        self.protocol = NEW if stream.random() < settings.new_protocol_share else stream.choice(OLD)
        self.timeout_ms = stream.choice(settings.timeouts_ms)
        self.left = count
        self.zombies = 0
        self.fenced = 0
        self.now_ms = now_ms
        self.is_finishing = False
        self._spawn = spawn
        self._active = 1

    @property
    def is_done(self) -> bool:
        """Whether all transactions were made, and no producer is left."""
        return not self._active

    def finish_soon(self) -> None:
        """Have no more pauses and accidents."""
        self.is_finishing = True

    async def run(self) -> None:
        """Run one process after the other."""
        while True:
            process = ProducerProcess(self)
            ended_well = await process.run()
            if process.is_zombie or (ended_well and not self.left):
                break
            await self.client.back_off()
        self._active -= 1

    def start_successor(self) -> None:
        """Start a second process that takes the id, while the first one stalls."""
        self.zombies += 1
        self._active += 1
        self._spawn(self.run())


class ProducerProcess:
    """One producer process under the transactional id."""

    def __init__(self, owner: TransactionalProducer) -> None:
        self.is_zombie = False
        self._owner = owner
        self._stream = owner.client.stream
        request_timeouts_s = owner.settings.request_timeouts_s
        self._client = TransactionClient(
            owner.client, owner.oracle, owner.name, owner.protocol, owner.timeout_ms, request_timeouts_s
        )
        self._sequences: dict[int, int] = {}
        self._history = owner.history
        self._consumed = 0  # the group's offset
        self._life: Life

    async def run(self) -> bool:
        """Make transactions until all are made; False if the process died or was fenced."""
        owner = self._owner
        try:
            await self._client.init()
            self._life = self._history.begin_life(owner.name, (self._client.producer_id, self._client.epoch))
            self._consumed = await self._committed_offset()
            while owner.left and not self.is_zombie:
                if not owner.is_finishing:
                    await asyncio.sleep(self._stream.uniform(*owner.settings.rest_s))
                await self._transact()
            return True
        except Died:
            owner.oracle.observed(owner.name, "died")
        except Fenced as error:
            owner.fenced += 1
            owner.oracle.observed(owner.name, f"{error} as a {'zombie' if self.is_zombie else 'producer'}")
        except Rejected as error:
            owner.oracle.observed(owner.name, f"ended by {error}")
        finally:
            self._client.close()
        return False

    async def _transact(self) -> None:
        stream = self._stream
        self._owner.left -= 1
        if self._owner.protocol.is_implicit and stream.random() < NOTHING_SHARE:
            await self._end(committed=False)
        transaction = self._history.begin(self._life)
        sequences = dict(self._sequences)
        sendings = [self._make(transaction) for _ in range(stream.randint(1, REQUESTS_MAX))]
        if stream.random() < ABANDON_SHARE:
            await self._abandon(sendings, sequences)
            return
        consumes_first = stream.random() < 0.5
        is_consumer = stream.random() < CONSUMER_SHARE
        consumed = self._consumed + stream.randint(1, CONSUMED_MAX)
        if is_consumer:
            transaction.consumed[self._owner.group_place] = (self._consumed, consumed)
        if is_consumer and consumes_first:
            await self._commit_offset(consumed)
        while sendings:
            await self._accident()
            at_once = stream.randint(1, len(sendings))
            await self._deliver(deque(sendings[:at_once]))
            del sendings[:at_once]
        if is_consumer and not consumes_first:
            await self._commit_offset(consumed)
        await self._accident()
        is_commit = stream.random() < COMMIT_SHARE
        if is_commit:
            self._history.ask(transaction)
            if stream.random() < DIE_ENDING_SHARE and not self._owner.is_finishing:
                await self._client.send_commit()
                raise Died
        await self._end(committed=is_commit)
        if is_commit:
            self._history.committed(transaction)
            self._consumed = consumed if is_consumer else self._consumed

    async def _accident(self) -> None:
        """Perhaps die, stall, or stall while a successor starts."""
        if self._owner.is_finishing:
            return
        settings, dice = self._owner.settings, self._stream.random()
        if dice < settings.die_share:
            raise Died
        if dice < settings.die_share + FREEZE_SHARE and not self.is_zombie and self._owner.zombies < ZOMBIES_MAX:
            self.is_zombie = True
            self._owner.start_successor()
            await asyncio.sleep(self._stream.uniform(*settings.stall_s))
        elif dice < settings.die_share + FREEZE_SHARE + STALL_SHARE:
            await asyncio.sleep(self._stream.uniform(*settings.stall_s))

    def _make(self, transaction: Transaction) -> Sending:
        """Make a request with batches for some partitions."""
        owner, stream = self._owner, self._stream
        chosen = stream.sample(range(owner.partitions), stream.randint(1, owner.partitions))
        sending = Sending({})
        for partition in chosen:
            records, sent = [], []
            for index in range(stream.randint(1, RECORDS_MAX)):
                value = f"{owner.name}/{self._client.producer_id}.{self._client.epoch}/{len(transaction.sent)}"
                value += f"/{transaction.number}"
                records.append(Record(index, owner.now_ms, None, value.encode()))
                sent.append(Sent((owner.topic, partition), value.encode()))
                transaction.sent.append(sent[-1])
            sending.sent[partition] = sent
            sending.parts[partition] = self._batch(partition, records)
        return sending

    def _batch(self, partition: int, records: list[Record]) -> bytes:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(records)
        return build_batch(
            records,
            producer_id=self._client.producer_id,
            producer_epoch=self._client.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    async def _deliver(self, pending: deque[Sending]) -> None:
        """Send all requests at once, and repeat those without an acknowledgement, in order."""
        partitions = sorted({partition for sending in pending for partition in sending.parts})
        await self._client.add_partitions(self._owner.topic, partitions)
        while pending:
            connection = await self._client.connected()
            answers = [self._client.send(connection, self._owner.topic, sending.parts) for sending in pending]
            try:
                for answer in answers:
                    self._settle(pending[0], await within(REQUEST_TIMEOUT_S, answer))
                    pending.popleft()
            except (Disconnected, TimeoutError):
                await self._client.disconnect()

    def _settle(self, sending: Sending, response: Any) -> None:
        """Take an answer; `Disconnected` if a batch must be sent again."""
        owner, has_to_retry = self._owner, False
        for topic in response.responses:
            for each in topic.partition_responses:
                if self._client.has_to_retry(f"a batch for {each.index}", [each.error_code]):
                    has_to_retry = True
                    continue
                owner.oracle.acknowledged(
                    owner.name, owner.topic, each.index, each.base_offset, sending.parts.pop(each.index)
                )
                for delta, sent in enumerate(sending.sent[each.index]):
                    sent.offset = each.base_offset + delta
        if has_to_retry:
            raise Disconnected("retry")

    async def _abandon(self, sendings: list[Sending], sequences: dict[int, int]) -> None:
        """Send without waiting, and abort: requests in flight may be stored before or after that.

        The Java client continues with another epoch. librdkafka keeps the epoch, and uses the sequence numbers again
        for other records. It expects that the records without an answer were never stored.
        """
        partitions = sorted({partition for sending in sendings for partition in sending.parts})
        await self._client.add_partitions(self._owner.topic, partitions)
        connection = await self._client.connected()
        for sending in sendings:
            self._client.send(connection, self._owner.topic, sending.parts)
        if self._owner.protocol.is_implicit:
            await self._end(committed=False)
        elif self._stream.random() < PURGE_SHARE:
            await self._client.disconnect()
            self._sequences = sequences
            self._client.returned_errors |= {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
            await self._end(committed=False)
        else:
            await self._client.init()  # KIP-360
            self._sequences.clear()

    async def _end(self, *, committed: bool) -> None:
        if await self._client.end(committed=committed):
            self._sequences.clear()

    async def _commit_offset(self, offset: int) -> None:
        await self._accident()
        group_id, (topic, partition) = self._owner.group_place
        await self._client.commit_offsets(group_id, topic, {partition: offset})

    async def _committed_offset(self) -> int:
        """The group's offset, after the end of all transactions of earlier processes."""
        return await committed_offset(self._client, self._history, self._owner.group_place)


async def committed_offset(
    client: TransactionClient, history: History, group_place: GroupPlace, *, is_last: bool = False
) -> int:
    """The group's offset, when no open transaction may change it any more."""
    group_id, (topic, partition) = group_place
    request = OffsetFetchRequest(group_id, [OffsetFetchRequestTopic(topic, [partition])], require_stable=True)

    def errors(answer: Any) -> list[int]:
        return [answer.error_code] + [each.error_code for one in answer.topics for each in one.partitions]

    asked_at = history.moment()
    answer = await client.ask(OFFSET_FETCH, 7, request, errors)
    offset = max(answer.topics[0].partitions[0].committed_offset, 0)
    history.observe(group_place, offset, asked_at, is_last=is_last)
    return offset
