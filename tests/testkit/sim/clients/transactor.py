"""Transactional producers in all their lives: they write, consume, commit, abort, stall, die, and haunt successors."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from penstock.kafkawire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.fakes.answers import within
from tests.testkit.loads.transaction_history import GroupPlace, History, Life as HistoryLife, Sent, Transaction
from tests.testkit.sim.clients.kafka import OFFSET_FETCH, REQUEST_TIMEOUT_S, Disconnected, KafkaClient
from tests.testkit.sim.clients.settings import TransactionSettings
from tests.testkit.sim.clients.transaction_wire import NEW, OLD, Fenced, TransactionWire
from tests.testkit.sim.judges.oracle import Oracle

RECORDS_MAX = 3
REQUESTS_MAX = 3  # of a transaction
CONSUMED_MAX = 9
COMMIT_SHARE = 0.75
CONSUMER_SHARE = 0.6  # of transactions
ABANDON_SHARE = 0.05  # are given up without waiting for answers
NOTHING_SHARE = 0.03  # end without having begun, which only the new protocol allows
# What may happen before each step of a transaction.
FREEZE_SHARE = 0.02
STALL_SHARE = 0.04
DIE_ENDING_SHARE = 0.05  # with the commit on its way
ZOMBIES_MAX = 3

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Died(Exception):
    """The producer's process is gone, in the middle of something."""


@dataclass
class Sending:
    """One Produce request, until all of it is acknowledged."""

    parts: dict[int, bytes]
    sent: dict[int, list[Sent]] = field(default_factory=dict)


class Transactor:
    """All who ever have one transactional id; `count` transactions, and then it is done."""

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
        self.is_hurried = False
        self._spawn = spawn
        self._active = 1

    @property
    def is_done(self) -> bool:
        """Whether all transactions were made, and nobody is left of those who made them."""
        return not self._active

    def hurry(self) -> None:
        """No rest and no accidents from now on."""
        self.is_hurried = True

    async def run(self) -> None:
        """One life after the other."""
        while True:
            life = Life(self)
            ended_well = await life.lead()
            if life.is_zombie or (ended_well and not self.left):
                break
            await self.client.back_off()
        self._active -= 1

    def succeed(self) -> None:
        """Another takes the id, while the one who has it stands still."""
        self.zombies += 1
        self._active += 1
        self._spawn(self.run())


class Life:
    """One process under the transactional id."""

    def __init__(self, owner: Transactor) -> None:
        self.is_zombie = False
        self._owner = owner
        self._stream = owner.client.stream
        request_timeouts_s = owner.settings.request_timeouts_s
        self._wire = TransactionWire(
            owner.client, owner.oracle, owner.name, owner.protocol, owner.timeout_ms, request_timeouts_s
        )
        self._sequences: dict[int, int] = {}
        self._history = owner.history
        self._consumed = 0  # the group's offset
        self._noted: HistoryLife

    async def lead(self) -> bool:
        """Make transactions until there is none left to make; whether it came to that."""
        owner = self._owner
        try:
            await self._wire.init()
            self._noted = self._history.begin_life(owner.name, (self._wire.producer_id, self._wire.epoch))
            self._consumed = await self._committed_offset()
            while owner.left and not self.is_zombie:
                if not owner.is_hurried:
                    await asyncio.sleep(self._stream.uniform(*owner.settings.rest_s))
                await self._transact()
            return True
        except Died:
            owner.oracle.heard(owner.name, "that it died")
        except Fenced as error:
            owner.fenced += 1
            owner.oracle.heard(owner.name, f"{error} as a {'zombie' if self.is_zombie else 'producer'}")
        finally:
            self._wire.close()
        return False

    async def _transact(self) -> None:
        stream = self._stream
        self._owner.left -= 1
        if self._owner.protocol.is_implicit and stream.random() < NOTHING_SHARE:
            await self._end(committed=False)
        transaction = self._history.begin(self._noted)
        sendings = [self._make(transaction) for _ in range(stream.randint(1, REQUESTS_MAX))]
        if stream.random() < ABANDON_SHARE:
            await self._abandon(sendings)
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
            if stream.random() < DIE_ENDING_SHARE and not self._owner.is_hurried:
                await self._wire.send_end()
                raise Died
        await self._end(committed=is_commit)
        if is_commit:
            self._history.committed(transaction)
            self._consumed = consumed if is_consumer else self._consumed

    async def _accident(self) -> None:
        """Die, stand still, or stand still while another takes over."""
        if self._owner.is_hurried:
            return
        settings, dice = self._owner.settings, self._stream.random()
        if dice < settings.die_share:
            raise Died
        if dice < settings.die_share + FREEZE_SHARE and not self.is_zombie and self._owner.zombies < ZOMBIES_MAX:
            self.is_zombie = True
            self._owner.succeed()
            await asyncio.sleep(self._stream.uniform(*settings.stall_s))
        elif dice < settings.die_share + FREEZE_SHARE + STALL_SHARE:
            await asyncio.sleep(self._stream.uniform(*settings.stall_s))

    def _make(self, transaction: Transaction) -> Sending:
        """A request of batches for some partitions."""
        owner, stream = self._owner, self._stream
        chosen = stream.sample(range(owner.partitions), stream.randint(1, owner.partitions))
        sending = Sending({})
        for partition in chosen:
            records, sent = [], []
            for index in range(stream.randint(1, RECORDS_MAX)):
                value = f"{owner.name}/{self._wire.producer_id}.{self._wire.epoch}/{len(transaction.sent)}"
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
            producer_id=self._wire.producer_id,
            producer_epoch=self._wire.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    async def _deliver(self, pending: deque[Sending]) -> None:
        """Send all at once, and again what is not acknowledged, in order."""
        partitions = sorted({partition for sending in pending for partition in sending.parts})
        await self._wire.add_partitions(self._owner.topic, partitions)
        while pending:
            connection = await self._wire.connected()
            answers = [self._wire.send(connection, self._owner.topic, sending.parts) for sending in pending]
            try:
                for answer in answers:
                    self._settle(pending[0], await within(REQUEST_TIMEOUT_S, answer))
                    pending.popleft()
            except (Disconnected, TimeoutError):
                await self._wire.part()

    def _settle(self, sending: Sending, response: Any) -> None:
        """Take an answer; `Disconnected` where something has to be sent again."""
        owner, has_to_retry = self._owner, False
        for topic in response.responses:
            for each in topic.partition_responses:
                if self._wire.has_to_retry(f"a batch for {each.index}", [each.error_code]):
                    has_to_retry = True
                    continue
                owner.oracle.acknowledged(
                    owner.name, owner.topic, each.index, each.base_offset, sending.parts.pop(each.index)
                )
                for delta, sent in enumerate(sending.sent[each.index]):
                    sent.offset = each.base_offset + delta
        if has_to_retry:
            raise Disconnected("to be sent again")

    async def _abandon(self, sendings: list[Sending]) -> None:
        """Send, do not wait, and go on with another epoch: what is on its way may be stored, and is aborted."""
        partitions = sorted({partition for sending in sendings for partition in sending.parts})
        await self._wire.add_partitions(self._owner.topic, partitions)
        connection = await self._wire.connected()
        for sending in sendings:
            self._wire.send(connection, self._owner.topic, sending.parts)
        if self._owner.protocol.is_implicit:
            await self._end(committed=False)
        else:
            await self._wire.init()  # KIP-360
            self._sequences.clear()

    async def _end(self, *, committed: bool) -> None:
        if await self._wire.end(committed=committed):
            self._sequences.clear()

    async def _commit_offset(self, offset: int) -> None:
        await self._accident()
        group_id, (topic, partition) = self._owner.group_place
        await self._wire.commit_offsets(group_id, topic, {partition: offset})

    async def _committed_offset(self) -> int:
        """What our predecessors have consumed; nothing of theirs is undecided any more."""
        return await committed_offset(self._wire, self._history, self._owner.group_place)


async def committed_offset(
    wire: TransactionWire, history: History, group_place: GroupPlace, *, is_last: bool = False
) -> int:
    """The group's offset, once no transaction is open that may change it."""
    group_id, (topic, partition) = group_place
    request = OffsetFetchRequest(group_id, [OffsetFetchRequestTopic(topic, [partition])], require_stable=True)

    def errors(told: Any) -> list[int]:
        return [told.error_code] + [each.error_code for one in told.topics for each in one.partitions]

    asked_at = history.moment()
    answer = await wire.told(OFFSET_FETCH, 7, request, errors)
    offset = max(answer.topics[0].partitions[0].committed_offset, 0)
    history.observe(group_place, offset, asked_at, is_last=is_last)
    return offset
