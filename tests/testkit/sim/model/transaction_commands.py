"""The commands of transactional producers, in the model."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.contracts import commands as c
from penstock.contracts.batches import NO_PRODUCER, TRANSACTIONAL, BatchMeta, BatchResult, BatchRun
from penstock.contracts.levels import SHARES_LEVEL, TRANSACTIONS_LEVEL
from penstock.contracts.rejections import Rejection
from tests.testkit.sim.model.logs import wrong_share
from tests.testkit.sim.model.transactions import (
    ABORTED,
    COMMITTED,
    EMPTY,
    NO_ONE,
    ONGOING,
    ModelTransaction,
    PendingOffset,
)

if TYPE_CHECKING:
    from tests.testkit.sim.model.cluster import Model


class TransactionCommands:
    """Applies the commands to the model's transactions, logs and groups."""

    def __init__(self, model: "Model") -> None:
        self._model = model
        self._by_producer: dict[int, ModelTransaction] = {}
        self.by_class: dict[type[Any], Callable[[Any, Any], None]] = {
            c.InitTransactionalProducer: self._init,
            c.AddPartitionsToTxn: self._add_partitions,
            c.AddOffsetsToTxn: self._add_offsets,
            c.CommitTxnOffsets: self._commit_offsets,
            c.EndTxn: self._end,
            c.Tick: self._tick,
        }

    def wrong_batch(self, run: BatchRun, meta: BatchMeta, result: BatchResult) -> str:
        """Take a batch that may belong to a transaction; why its outcome is wrong, or nothing."""
        model = self._model
        transaction = self._by_producer.get(meta.producer_id)
        if meta.producer_id == NO_PRODUCER or model.level < TRANSACTIONS_LEVEL:
            return ""
        if transaction is None:
            is_wrong = meta.attributes & TRANSACTIONAL and not result.rejection
            return "it is transactional, but its producer is not" if is_wrong else ""
        if result.rejection:
            producer = (meta.producer_id, meta.producer_epoch)
            return transaction.wrong_rejection(producer, Rejection(result.rejection))
        log = model.log(run.topic_id, run.partition)
        assert log is not None, "the caller has looked"
        if result.base_offset < log.end:
            return ""  # a duplicate, perhaps of an ended transaction
        if meta.producer_epoch != transaction.epoch:
            return f"it has epoch {meta.producer_epoch}, {transaction.name} is at {transaction.epoch}"
        if not meta.attributes & TRANSACTIONAL:
            return "its producer writes in transactions only"
        key = (run.topic_id, run.partition)
        is_added = transaction.state == ONGOING and key in transaction.partitions
        if not is_added and not meta.adds_partition:
            return f"the partition is not in the transaction of {transaction.name}"
        transaction.begin(model.clock_ms)
        transaction.partitions[key] = None
        return ""

    def _find(self, command: Any, outcome: c.Outcome) -> ModelTransaction | None:
        """The transaction of an accepted command; a rejection is checked."""
        model = self._model
        transaction = model.transactions.get(command.transactional_id)
        producer = (command.producer_id, command.producer_epoch)
        if isinstance(outcome, c.Rejected):
            if transaction is not None:
                model.wrong(command, transaction.wrong_rejection(producer, outcome.rejection))
            return None
        if transaction is None or transaction.producer != producer:
            model.wrong(command, f"{producer} is not the producer of {command.transactional_id}")
            return None
        return transaction

    def _init(self, command: c.InitTransactionalProducer, outcome: c.Outcome) -> None:
        model = self._model
        principal = command.principal if model.level >= SHARES_LEVEL else ""
        if not isinstance(outcome, c.ProducerAllocated):
            if isinstance(outcome, c.Rejected) and outcome.rejection is Rejection.OVERLOADED:
                owned = sum(each.principal == principal for each in model.transactions.values())
                model.wrong(command, wrong_share(owned, "transactional ids"))
            return
        given = (outcome.producer_id, outcome.producer_epoch)
        transaction = model.transactions.get(command.transactional_id)
        if transaction is None:
            model.new_producer_id(command, given[0])
            transaction = ModelTransaction(command.transactional_id, *given, command.timeout_ms, principal=principal)
            model.transactions[command.transactional_id] = self._by_producer[given[0]] = transaction
        elif transaction is not None and not transaction.is_repeated_init(command):
            named = (command.producer_id, command.producer_epoch)
            if named not in (NO_ONE, transaction.producer):
                model.wrong(command, f"{named} is fenced, {transaction.producer} is the producer")
            self._fence(transaction)
            transaction.state, transaction.previous, transaction.timeout_ms = EMPTY, named, command.timeout_ms
        assert transaction is not None
        transaction.active_ms = model.clock_ms
        if given != transaction.producer:
            model.wrong(command, f"it got {given} instead of {transaction.producer}")

    def _add_partitions(self, command: c.AddPartitionsToTxn, outcome: c.Outcome) -> None:
        transaction = self._find(command, outcome)
        if transaction is None or not isinstance(outcome, c.PerItem) or any(outcome.rejections):
            return
        for each in command.partitions:
            key = (each.topic_id, each.partition)
            if self._model.topic(each.topic_id) is None or self._model.log(*key) is None:
                self._model.wrong(command, "there is no such partition")
            if key not in transaction.partitions:
                transaction.begin(self._model.clock_ms)
                transaction.partitions[key] = None

    def _add_offsets(self, command: c.AddOffsetsToTxn, outcome: c.Outcome) -> None:
        transaction = self._find(command, outcome)
        if transaction is not None:
            transaction.begin(self._model.clock_ms)
            transaction.groups[command.group_id] = None

    def _commit_offsets(self, command: c.CommitTxnOffsets, outcome: c.Outcome) -> None:
        model = self._model
        transaction = self._find(command, outcome)
        if transaction is None or not isinstance(outcome, c.PerItem):
            return
        if command.group_id not in transaction.groups:
            model.wrong(command, "" if command.adds else f"{command.group_id} is not in the transaction")
            transaction.begin(model.clock_ms)
            transaction.groups[command.group_id] = None
        model.wrong(command, model.group(command.group_id).wrong_commit(command.generation, command.member_id))
        for item, rejection in zip(command.offsets, outcome.rejections, strict=True):
            topic = model.topics.get(item.topic)
            if rejection is Rejection.NONE and topic is not None:
                key = (command.group_id, topic.topic_id, item.partition)
                transaction.offsets[key] = PendingOffset(item.offset, model.sequence)
            elif rejection is Rejection.NONE:
                model.wrong(command, f"there is no topic {item.topic}")

    def _end(self, command: c.EndTxn, outcome: c.Outcome) -> None:
        model = self._model
        transaction = model.transactions.get(command.transactional_id)
        if transaction is None or isinstance(outcome, c.Rejected):
            self._find(command, outcome)
            return
        assert isinstance(outcome, c.TransactionEnded)
        named = (command.producer_id, command.producer_epoch)
        if not transaction.is_repeated_end(command):
            if self._find(command, outcome) is None:
                return
            if transaction.state != ONGOING and (command.committed or not command.bumps):
                model.wrong(command, f"{transaction.name} has no transaction, its state is {transaction.state}")
            self._finish(transaction, committed=command.committed, bumps=command.bumps)
            transaction.ended = (*named, command.committed)
            transaction.ends[transaction.ended] = None
            transaction.previous = named if command.bumps else transaction.previous
        given = (outcome.producer_id, outcome.producer_epoch)
        if given != transaction.producer:
            model.wrong(command, f"it got {given} instead of {transaction.producer}")

    def _tick(self, command: c.Tick, outcome: c.Outcome) -> None:
        """Abort transactions after their timeouts; their producers continue with the next epoch (KIP-588)."""
        clock_ms = self._model.clock_ms
        overdue = [each for each in self._model.transactions.values() if each.is_overdue(clock_ms)]
        for transaction in sorted(overdue, key=lambda each: (each.deadline_ms, each.name)):
            fenced = transaction.producer
            self._fence(transaction)
            transaction.previous, transaction.ended = fenced, (*fenced, False)
            transaction.ends[transaction.ended] = None

    def _fence(self, transaction: ModelTransaction) -> None:
        """Abort an ongoing transaction, and begin the next epoch."""
        self._finish(transaction, committed=False, bumps=True)
        transaction.ended, transaction.previous = None, NO_ONE

    def _finish(self, transaction: ModelTransaction, *, committed: bool, bumps: bool) -> None:
        model = self._model
        for topic_id, number in transaction.partitions:
            log = model.log(topic_id, number)
            if log is not None:
                model.changed(log).end_transaction(transaction.producer_id, committed=committed)
        for (group_id, topic_id, number), pending in transaction.offsets.items() if committed else ():
            deleted = model.deleted.get(topic_id)
            if model.topic(topic_id) is not None:
                group = model.group(group_id)
                group.commit((topic_id, number), pending.offset, model.sequence, pending.sequence)
            elif deleted is not None:
                deleted.lost_offsets[group_id, number] = (pending.offset, pending.sequence)
        transaction.clear(COMMITTED if committed else ABORTED)
        transaction.epoch += bumps
        transaction.active_ms = model.clock_ms
