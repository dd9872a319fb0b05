"""Members that consume, transform and produce, with records and offsets in one transaction."""

import asyncio
import contextlib
from collections import deque

from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.fakes.answers import within
from tests.testkit.loads.transaction_history import History, Life, Sent, Transaction
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.consumer import Reading
from tests.testkit.sim.clients.kafka import REQUEST_TIMEOUT_S, Disconnected, KafkaClient, KafkaConnection as Connection
from tests.testkit.sim.clients.member import LOST, RETRIABLE, GroupLedger, Member, Rejoin
from tests.testkit.sim.clients.settings import ClientSettings
from tests.testkit.sim.clients.transaction_client import (
    NEW,
    OLD,
    Fenced,
    Member as Committer,
    Rejected,
    TransactionClient,
)

TIMEOUTS_MS = (10_000, 20_000)
# Shares of transactions with these events between sending and committing offsets.
STALL_SHARE = 0.05
LEAVE_SHARE = 0.2
# The group's answers to offsets of a member that it has removed.
NO_MEMBER = LOST | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID}


class TransformingMember(Member):
    """One member with its own transactional id; the group lets no two members consume the same records (KIP-447)."""

    requires_stable = True
    retriable = RETRIABLE | {ErrorCode.UNSTABLE_OFFSET_COMMIT}

    def __init__(
        self,
        client: KafkaClient,
        oracle: Oracle,
        ledger: GroupLedger,
        source: tuple[str, int],
        target: tuple[str, int],
        history: History,
        now_ms: int,
        settings: ClientSettings,
    ) -> None:
        super().__init__(client, oracle, ledger, *source, settings)
        self._times = settings.transforming_member
        is_new = self._stream.random() < self._times.new_protocol_share
        protocol = NEW if is_new else self._stream.choice(OLD[1:])
        timeout_ms = self._stream.choice(TIMEOUTS_MS)
        request_timeouts_s = settings.transactions.request_timeouts_s
        self._transactions = TransactionClient(client, oracle, client.name, protocol, timeout_ms, request_timeouts_s)
        self._transactions.returned_errors = NO_MEMBER
        self._target, self._target_partitions = target
        self._history = history
        self._now_ms = now_ms
        self._life: Life | None = None
        self._sequences: dict[int, int] = {}
        self._written = 0
        self._is_finishing = False
        self._begins_no_more = False

    def finish_soon(self) -> None:
        """Have no more accidents."""
        self._is_finishing = True

    def begin_no_more(self) -> None:
        """Begin no more transactions, also if an abandoned record of a producer arrives late."""
        self._begins_no_more = True

    async def start_offsets(self, connection: Connection, partitions: list[int]) -> dict[int, int]:
        asked_at = self._history.moment()
        offsets = await super().start_offsets(connection, partitions)
        for partition, offset in offsets.items():
            self._history.observe((self._ledger.group_id, (self._topic, partition)), offset, asked_at)
        return offsets

    async def _commit(self, connection: Connection, reading: Reading) -> None:
        due = {each: offset for each, offset in reading.positions.items() if offset > self._committed.get(each, 0)}
        if not due or self._begins_no_more:
            return
        try:
            await self._transact(connection, due)
        except Fenced as error:  # the transaction timed out; the group's offsets show its outcome
            self._oracle.observed(self.name, f"{error} in a transaction")
            self._life = None
            raise Rejoin from error

    async def _transact(self, connection: Connection, due: dict[int, int]) -> None:
        """Write a record for each partition with progress, and commit it with the new offset."""
        if self._life is None:
            self._transactions.producer_id = self._transactions.epoch = -1
            await self._transactions.init()
            self._sequences.clear()
            self._life = self._history.begin_life(self.name, (self._transactions.producer_id, self._transactions.epoch))
        transaction = self._history.begin(self._life)
        group_id = self._ledger.group_id
        for partition, offset in due.items():
            transaction.consumed[group_id, (self._topic, partition)] = (self._committed.get(partition, 0), offset)
        await self._write(transaction, len(due))
        committer = Committer(self.generation, self._member_id, self._instance_id)
        try:
            await self._transactions.commit_offsets(group_id, self._topic, due, committer)
        except Rejected as rejected:
            await self._end(committed=False)
            self.check_error("a transaction's offsets", rejected.error)
            raise Rejoin from rejected
        has_left = await self._delay_commit(connection)
        self._history.ask(transaction)
        await self._end(committed=True)
        self._history.committed(transaction)
        for partition, offset in due.items():
            self._committed[partition] = offset
            self._ledger.acknowledge(partition, offset)
        if has_left:
            raise Rejoin

    async def _delay_commit(self, connection: Connection) -> bool:
        """Perhaps wait until other members get this member's partitions; whether it left the group."""
        dice = 1.0 if self._is_finishing else self._stream.random()
        if dice < STALL_SHARE:
            await asyncio.sleep(self._stream.uniform(*self._times.stall_s))
        elif dice < STALL_SHARE + LEAVE_SHARE:
            with contextlib.suppress(Rejoin, Disconnected):
                await self._leave(connection)
            await asyncio.sleep(self._stream.uniform(*self._times.left_s))
            return True
        return False

    async def _end(self, *, committed: bool) -> None:
        if await self._transactions.end(committed=committed):
            self._sequences.clear()

    async def _write(self, transaction: Transaction, count: int) -> None:
        pending: deque[tuple[int, Sent, bytes]] = deque()
        for _ in range(count):
            self._written += 1
            partition = self._stream.randrange(self._target_partitions)
            value = f"{self.name}/{self._written}".encode()
            sent = Sent((self._target, partition), value)
            transaction.sent.append(sent)
            pending.append((partition, sent, self._batch(partition, value)))
        await self._transactions.add_partitions(self._target, sorted({partition for partition, _, _ in pending}))
        while pending:
            connection = await self._transactions.connected()
            partition, sent, batch = pending[0]
            try:
                answer = await within(
                    REQUEST_TIMEOUT_S, self._transactions.send(connection, self._target, {partition: batch})
                )
            except (Disconnected, TimeoutError):
                await self._transactions.disconnect()
                continue
            result = answer.responses[0].partition_responses[0]
            if self._transactions.has_to_retry(f"a batch for {partition}", [result.error_code]):
                await self._transactions.disconnect()
                continue
            sent.offset = result.base_offset
            pending.popleft()

    def _batch(self, partition: int, value: bytes) -> bytes:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        return build_batch(
            [Record(0, self._now_ms, None, value)],
            producer_id=self._transactions.producer_id,
            producer_epoch=self._transactions.epoch,
            base_sequence=sequence,
            transactional=True,
        )
