"""Members of a group who consume, transform and produce: what they write and their offsets are one transaction."""

import asyncio
import contextlib
from collections import deque

from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.fakes.answers import within
from tests.testkit.loads.transaction_history import History, Life, Sent, Transaction
from tests.testkit.sim.clients.consumer import Reading
from tests.testkit.sim.clients.kafka import REQUEST_TIMEOUT_S, Disconnected, KafkaClient, KafkaConnection as Connection
from tests.testkit.sim.clients.member import LOST, RETRIABLE, GroupLedger, Member, Rejoin
from tests.testkit.sim.clients.settings import ClientSettings
from tests.testkit.sim.clients.transaction_wire import NEW, OLD, Fenced, Member as Committer, Rejected, TransactionWire
from tests.testkit.sim.judges.oracle import Oracle

TIMEOUTS_MS = (10_000, 20_000)
# Of transactions, with offsets that are sent and not committed.
STALL_SHARE = 0.05
LEAVE_SHARE = 0.2
# What the group may say to offsets of a member that it has not any more.
NO_MEMBER = LOST | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID}


class Clerk(Member):
    """One of them, with a transactional id of its own: the group keeps others from consuming the same (KIP-447)."""

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
        self._wire = TransactionWire(client, oracle, client.name, protocol, timeout_ms, request_timeouts_s)
        self._wire.judged = NO_MEMBER
        self._target, self._target_partitions = target
        self._history = history
        self._now_ms = now_ms
        self._life: Life | None = None
        self._sequences: dict[int, int] = {}
        self._written = 0
        self._is_hurried = False
        self._is_resting = False

    def hurry(self) -> None:
        """Stand still no more."""
        self._is_hurried = True

    def rest(self) -> None:
        """Begin no transaction any more, though a record may still come that its producer has given up."""
        self._is_resting = True

    async def start_offsets(self, connection: Connection, partitions: list[int]) -> dict[int, int]:
        asked_at = self._history.moment()
        told = await super().start_offsets(connection, partitions)
        for partition, offset in told.items():
            self._history.observe((self._ledger.group_id, (self._topic, partition)), offset, asked_at)
        return told

    async def _commit(self, connection: Connection, reading: Reading) -> None:
        due = {each: offset for each, offset in reading.positions.items() if offset > self._committed.get(each, 0)}
        if not due or self._is_resting:
            return
        try:
            await self._transact(connection, due)
        except Fenced as error:  # it took too long; what came of it is to be asked for
            self._oracle.heard(self.name, f"{error} in a transaction")
            self._life = None
            raise Rejoin from error

    async def _transact(self, connection: Connection, due: dict[int, int]) -> None:
        """Write something for each partition that was read of, and commit that with its offset."""
        if self._life is None:
            self._wire.producer_id = self._wire.epoch = -1
            await self._wire.init()
            self._sequences.clear()
            self._life = self._history.begin_life(self.name, (self._wire.producer_id, self._wire.epoch))
        transaction = self._history.begin(self._life)
        group_id = self._ledger.group_id
        for partition, offset in due.items():
            transaction.consumed[group_id, (self._topic, partition)] = (self._committed.get(partition, 0), offset)
        await self._write(transaction, len(due))
        committer = Committer(self.generation, self._member_id, self._instance_id)
        try:
            await self._wire.commit_offsets(group_id, self._topic, due, committer)
        except Rejected as rejected:
            await self._end(committed=False)
            self.check_error("a transaction's offsets", rejected.error)
            raise Rejoin from rejected
        has_left = await self._dawdle(connection)
        self._history.ask(transaction)
        await self._end(committed=True)
        self._history.committed(transaction)
        for partition, offset in due.items():
            self._committed[partition] = offset
            self._ledger.acknowledge(partition, offset)
        if has_left:
            raise Rejoin

    async def _dawdle(self, connection: Connection) -> bool:
        """Take so long to commit that others have our partitions meanwhile; whether we have left the group."""
        dice = 1.0 if self._is_hurried else self._stream.random()
        if dice < STALL_SHARE:
            await asyncio.sleep(self._stream.uniform(*self._times.stall_s))
        elif dice < STALL_SHARE + LEAVE_SHARE:
            with contextlib.suppress(Rejoin, Disconnected):
                await self._leave(connection)
            await asyncio.sleep(self._stream.uniform(*self._times.left_s))
            return True
        return False

    async def _end(self, *, committed: bool) -> None:
        if await self._wire.end(committed=committed):
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
        await self._wire.add_partitions(self._target, sorted({partition for partition, _, _ in pending}))
        while pending:
            connection = await self._wire.connected()
            partition, sent, batch = pending[0]
            try:
                answer = await within(REQUEST_TIMEOUT_S, self._wire.send(connection, self._target, {partition: batch}))
            except (Disconnected, TimeoutError):
                await self._wire.part()
                continue
            told = answer.responses[0].partition_responses[0]
            if self._wire.has_to_retry(f"a batch for {partition}", [told.error_code]):
                await self._wire.part()
                continue
            sent.offset = told.base_offset
            pending.popleft()

    def _batch(self, partition: int, value: bytes) -> bytes:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        return build_batch(
            [Record(0, self._now_ms, None, value)],
            producer_id=self._wire.producer_id,
            producer_epoch=self._wire.epoch,
            base_sequence=sequence,
            transactional=True,
        )
