"""Any interleaving of transactions against a naive model: each committed record is read once, and no other ever.

The model keeps each log as a plain list of records, with the transaction of each record and its result. It uses the
machine's answers, except for fenced producers and timeouts: those it computes by itself.
"""

from random import Random
from typing import Any

import msgspec
import pytest

from penstock.contracts.batches import NO_SEGMENT_ID
from penstock.contracts.commands import (
    AddPartitionsToTxn,
    CommitSegment,
    CommitTxnOffsets,
    DeleteRecords,
    DeleteTopic,
    EndTxn,
    InitTransactionalProducer,
    LogOffset,
    ProducerAllocated,
    Rejected,
    TransactionEnded,
    UndeleteTopic,
)
from penstock.contracts.queries.groups import GroupOffsetsQuery, GroupTopicPartitions
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import PRODUCER_EPOCH_MAX
from tests.unit.sequencer.core.core_transactions import Writer
from tests.unit.sequencer.core.core_world import World, batch, topic_id, transaction_world

STEPS = 250
TIMEOUT_MS = 10_000
TOPICS = {1: 2, 2: 1}  # topic's number -> partitions; the second topic is deleted and undeleted
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
TRANSACTIONAL_COMMANDS = (
    InitTransactionalProducer,
    AddPartitionsToTxn,
    CommitTxnOffsets,
    EndTxn,
    CommitSegment,
)
any_seed = pytest.mark.parametrize("seed", range(25))
Log = tuple[int, int]


class Transaction(msgspec.Struct, eq=False):
    """A transaction in the model."""

    decision: str = OPEN
    logs: dict[Log, None] = {}  # logs with its records
    added: set[Log] = set()
    offset: int | None = None  # of the group, in partition 0 of topic 1
    since_ms: int = 0


class Entry(msgspec.Struct, eq=False):
    """One offset of a log: a record, or a marker."""

    producer: int  # -1: not transactional
    transaction: Transaction | None  # None: not in a transaction
    is_marker: bool = False
    is_gone: bool = False  # a compaction has removed it


class Client(msgspec.Struct, eq=False):
    """A client that writes under a transactional id, and may be fenced without knowing."""

    writer: Writer
    bumps: bool
    current: Transaction | None = None
    is_fenced: bool = False


class Play:
    """The machine and the model, side by side."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = transaction_world()
        self.world.topic("u", 1, number=2, **{"penstock.undelete.window.ms": "100000000"})
        self.logs: dict[Log, list[Entry]] = {
            (topic, each): [] for topic, count in TOPICS.items() for each in range(count)
        }
        self.clients: dict[str, Client] = {}
        self.fenced: list[Client] = []
        self.starts: dict[Log, int] = {}
        self.group_offset = -1
        self.is_recoverable = False
        self.done: list[Any] = []
        self.left_out = 0
        self.world.do = self.do  # type: ignore[method-assign]

    def do(self, command: Any) -> Any:
        """Send it as a gateway does, with the newest known entry; an accepted command may be journaled again later."""
        if hasattr(command, "seen_sequence"):
            command = msgspec.structs.replace(command, seen_sequence=self.world.state.sequence)
        outcome = World.do(self.world, command)
        is_transactional = isinstance(command, TRANSACTIONAL_COMMANDS)
        if is_transactional and not isinstance(outcome, Rejected) and not any(getattr(outcome, "rejections", ())):
            self.done.append(command)
        return outcome

    def repeat_late(self) -> None:
        """A copy that a replica in doubt journaled again changes nothing."""
        if self.done:
            World.do(self.world, self.random.choice(self.done[-30:]))

    def begin(self) -> None:
        name = self.random.choice("abc")
        old = self.clients.get(name)
        outcome = self.world.do(InitTransactionalProducer(self.world.now_ms, name, TIMEOUT_MS))
        if old is not None:
            self.decide(old, ABORTED)
            self.fence(old)
        writer = Writer(name, outcome.producer_id, outcome.producer_epoch)
        self.clients[name] = Client(writer, self.random.random() < 0.5)

    def fence(self, client: Client) -> None:
        client.is_fenced = True
        self.fenced.append(client)

    def decide(self, client: Client, decision: str) -> None:
        """Decide in the model: a marker in each log with records, and the group's offset if it is committed."""
        transaction, client.current = client.current, None
        if transaction is None:
            return
        transaction.decision = decision
        for log in transaction.logs:
            self.logs[log].append(Entry(client.writer.producer_id, transaction, is_marker=True))
        if decision == COMMITTED and transaction.offset is not None:
            self.group_offset = transaction.offset

    def some_client(self) -> Client | None:
        return self.random.choice(list(self.clients.values())) if self.clients else None

    def ongoing(self, client: Client) -> Transaction:
        if client.current is None:
            client.current = Transaction(since_ms=self.world.state.clock_ms)
        return client.current

    def some_log(self) -> Log:
        return self.random.choice(list(self.logs))

    def write(self) -> None:
        """A batch of a client among other clients' records; the model knows whether it is accepted."""
        client, log = self.some_client(), self.some_log()
        if client is None:
            return
        topic, partition = log
        may = not client.is_fenced and not (topic == 2 and self.is_recoverable)
        if not client.bumps and self.random.random() < 0.8:
            added = self.world.transactions.add(client.writer, partition, number=topic)
            if may:
                assert not any(added.rejections)
                self.ongoing(client).added.add(log)
        may = may and (client.bumps or (client.current is not None and log in client.current.added))
        records = self.random.randint(1, 3)
        result = self.world.transactions.write(
            client.writer, partition, records=records, number=topic, adds=client.bumps
        )
        assert (result.rejection == 0) == may, (result, log)
        if may:
            assert result.base_offset == len(self.logs[log])
            transaction = self.ongoing(client)
            transaction.logs[log] = None
            self.logs[log].extend(Entry(client.writer.producer_id, transaction) for _ in range(records))

    def write_plainly(self) -> None:
        topic, partition = log = self.some_log()
        (result,) = self.world.produce(batch(), partition=partition, number=topic)
        if not result.rejection:
            assert result.base_offset == len(self.logs[log])
            self.logs[log].append(Entry(-1, None))

    def write_fenced(self) -> None:
        """A fenced client can do nothing any more."""
        if not self.fenced:
            return
        writer, (topic, partition) = self.random.choice(self.fenced).writer, self.some_log()
        assert self.world.transactions.write(writer, partition, number=topic, adds=True).rejection
        assert isinstance(self.world.transactions.end(writer, bumps=True), Rejected)
        assert isinstance(self.world.transactions.add(writer, partition, number=topic), Rejected)

    def end(self) -> None:
        client = self.some_client()
        if client is None or client.current is None:
            return
        committed = self.random.random() < 0.6
        outcome = self.world.transactions.end(client.writer, committed=committed, bumps=client.bumps)
        again = self.world.transactions.end(client.writer, committed=committed, bumps=client.bumps)
        assert again == outcome
        self.decide(client, COMMITTED if committed else ABORTED)
        self.world.transactions.adopt(client.writer, outcome)

    def commit_offset(self) -> None:
        client = self.some_client()
        if client is None or client.is_fenced:
            return
        offset = self.random.randint(0, 1_000)
        if self.has_other_waiting(client):
            return  # the model does not know which offset counts then
        assert not any(self.world.transactions.commit_txn_offset(client.writer, offset, adds=True).rejections)
        self.ongoing(client).offset = offset

    def has_other_waiting(self, client: Client) -> bool:
        others = (each.current for each in self.clients.values() if each is not client)
        return any(each is not None and each.offset is not None for each in others)

    def pass_time(self) -> None:
        """Clients whose timeout has ended are aborted and fenced, in the order of their deadlines."""
        self.world.wait(self.random.choice([1, 1_000, 4_000, 9_000]))
        overdue = [
            (client.current.since_ms, name, client)
            for name, client in self.clients.items()
            if client.current is not None and client.current.since_ms + TIMEOUT_MS <= self.world.now_ms
        ]
        for _, name, client in sorted(overdue, key=lambda each: each[:2]):
            self.decide(client, ABORTED)
            if self.random.random() < 0.5:
                self.continue_with_next_epoch(client)
            else:
                self.fence(client)
                del self.clients[name]

    def continue_with_next_epoch(self, client: Client) -> None:
        """A client whose transaction timed out learns that, and gets the next epoch."""
        if client.bumps and self.random.random() < 0.5:
            outcome = self.world.transactions.end(client.writer, committed=False, bumps=True)
            assert isinstance(outcome, TransactionEnded)
        else:
            outcome = self.world.transactions.init_again(client.writer)
            assert isinstance(outcome, ProducerAllocated)
        self.world.transactions.adopt(client.writer, outcome)

    def exhaust(self) -> None:
        """A producer reaches its last epoch."""
        client = self.some_client()
        if client is None or client.current is not None or client.is_fenced:
            return
        if client.writer.epoch == PRODUCER_EPOCH_MAX - 1:
            return
        transaction = self.world.state.transactions[client.writer.name]
        transaction.epoch = client.writer.epoch = PRODUCER_EPOCH_MAX - 1
        transaction.ended = None
        client.writer.sequences = {}

    def make_recoverable(self) -> None:
        if self.is_recoverable:
            self.world.do(UndeleteTopic(self.world.now_ms, "u", topic_id(2)))
        else:
            self.world.do(DeleteTopic(self.world.now_ms, "u", bytes(16)))
        self.is_recoverable = not self.is_recoverable

    def trim(self) -> None:
        topic, partition = log = self.some_log()
        start = self.random.randint(self.starts.get(log, 0), len(self.logs[log]))
        if not (topic == 2 and self.is_recoverable):
            self.world.do(DeleteRecords(self.world.now_ms, [LogOffset(topic_id(topic), partition, start)]))
            self.starts[log] = start

    def merge(self) -> None:
        topic, partition = self.some_log()
        if topic == 2 and self.is_recoverable:
            return
        rows = len(self.world.partition(topic, partition).extents)
        first, end = sorted(self.random.randint(0, rows) for _ in range(2))
        if first == end:
            return
        job = self.world.job((topic, partition, first, end))
        (run,) = job.runs
        decided = run.last_offset < self.world.transactions.stable(partition, topic)
        run = msgspec.structs.replace(run, without_aborted=self.random.random() < 0.7)
        (rejection,) = self.world.do(msgspec.structs.replace(job, runs=[run])).rejections
        assert bool(rejection) == (run.without_aborted and not decided)
        if run.without_aborted and decided:
            self.leave_out(self.logs[topic, partition], run.base_offset, run.last_offset)

    def leave_out(self, log: list[Entry], first: int, last: int) -> None:
        """Remove the records that a compaction removed: those of aborted transactions."""
        for entry in log[first : last + 1]:
            if entry.transaction is not None and entry.transaction.decision == ABORTED and not entry.is_marker:
                entry.is_gone = True
                self.left_out += 1

    def check_aborted(self) -> None:
        """Known aborted transactions are counted, and each ends with an abort marker."""
        count = 0
        for (topic, partition), log in self.logs.items():
            known = (
                self.world.partition(topic, partition).transactions
                if not (topic == 2 and self.is_recoverable)
                else None
            )
            for each in known.aborted(0, len(log), 10**6)[0] if known is not None else []:
                count += 1
                end = log[each.last_offset]
                assert end.is_marker and end.transaction is not None and end.transaction.decision == ABORTED
                assert each.first_offset < each.last_offset
        assert self.is_recoverable or count == self.world.state.aborted_count

    def restart(self) -> None:
        self.world.state = decode_state(encode_state(self.world.state))

    def step(self) -> None:
        weights = {
            self.begin: 4,
            self.write: 40,
            self.write_plainly: 6,
            self.write_fenced: 3,
            self.end: 14,
            self.commit_offset: 4,
            self.pass_time: 8,
            self.exhaust: 1,
            self.make_recoverable: 2,
            self.trim: 2,
            self.merge: 5,
            self.restart: 3,
            self.repeat_late: 12,
        }
        (act,) = self.random.choices(list(weights), list(weights.values()))
        act()

    def check(self) -> None:
        for (topic, partition), log in self.logs.items():
            if not (topic == 2 and self.is_recoverable):
                start = self.starts.get((topic, partition), 0)
                assert self.read(topic, partition, start) == self.expected(log, start)
        self.check_aborted()
        query = GroupOffsetsQuery(0, "g", [GroupTopicPartitions("t", [0])])
        assert queries.group_offsets(self.world.state, query).offsets[0].offset == self.group_offset

    def expected(self, log: list[Entry], start: int) -> list[int]:
        """The offsets that a read_committed reader sees: decided, and committed or in no transaction."""
        stable = next(
            (at for at, each in enumerate(log) if each.transaction and each.transaction.decision == OPEN), len(log)
        )
        return [
            offset
            for offset in range(start, stable)
            if not log[offset].is_marker
            and (log[offset].transaction is None or log[offset].transaction.decision == COMMITTED)
        ]

    def read(self, topic: int, partition: int, start: int) -> list[int]:
        """Read as a client does: by plans of a few extents, without aborted transactions and markers.

        A client finds the producer of a record in the batch; here it is looked up in the log.
        """
        seen: list[int] = []
        offset = start
        log = self.logs[topic, partition]
        while True:
            plan = self.world.transactions.plan(
                offset, partition, topic, bytes_max=self.random.choice([1, 150, 500, 10**6])
            )
            if not plan.extents or offset >= plan.last_stable_offset:
                assert plan.high_watermark == len(log)
                return seen
            assert plan.extents[0].base_offset <= offset
            end = min(plan.extents[-1].last_offset + 1, plan.last_stable_offset)
            if plan.aborted_end_offset >= 0:
                end = min(end, plan.aborted_end_offset)
            assert end > offset, "a plan has at least one offset"
            markers = {each.offset for each in plan.markers}
            assert markers == {each.base_offset for each in plan.extents if each.segment.segment_id == NO_SEGMENT_ID}
            for at in range(offset, end):
                entry = log[at]
                assert at not in markers or entry.is_marker
                hidden = any(
                    each.producer_id == entry.producer and each.first_offset <= at <= each.last_offset
                    for each in plan.aborted
                )
                if not (hidden or entry.is_marker or entry.is_gone):
                    seen.append(at)
            offset = end


@any_seed
def test_a_read_committed_reader_sees_each_committed_record_once_and_no_other(seed: int) -> None:
    play = Play(seed)
    for _ in range(STEPS):
        play.step()
        play.check()
    if play.is_recoverable:
        play.make_recoverable()
    for client in play.clients.values():
        play.decide(client, ABORTED)
    play.world.wait(TIMEOUT_MS)
    play.clients = {}
    play.check()
    for (topic, partition), log in play.logs.items():
        assert play.world.transactions.stable(partition, topic) == len(log), "everything is decided"


@any_seed
def test_the_same_commands_give_the_same_bytes_whatever_snapshots_lie_between(seed: int) -> None:
    play = Play(seed)
    entries = []
    entry = play.world.entry

    def record(*requests: Any) -> Any:
        entries.append([list(each) for each in requests])
        return entry(*requests)

    first = play.world.state.sequence
    before = encode_state(play.world.state)
    play.world.entry = record  # type: ignore[method-assign]
    play.exhaust = play.restart  # type: ignore[method-assign]  # exhaust changes the state without the journal
    for _ in range(STEPS):
        play.step()
    state = decode_state(before)
    for sequence, requests in enumerate(entries, first + 1):
        apply_entry(state, sequence, requests)
    assert state.sequence == play.world.state.sequence
    assert encode_state(state) == encode_state(play.world.state)


def test_plays_commit_abort_fence_and_trim() -> None:
    """Otherwise these tests would prove little."""
    decisions = {COMMITTED: 0, ABORTED: 0}
    fenced = trimmed = merged = left_out = 0
    for seed in range(10):
        play = Play(seed)
        for _ in range(STEPS):
            play.step()
        for log in play.logs.values():
            for entry in log:
                if entry.is_marker and entry.transaction is not None:
                    decisions[entry.transaction.decision] += 1
        fenced += len(play.fenced)
        trimmed += len(play.starts)
        left_out += play.left_out
        merged += sum(level > 0 for level in play.world.state.segments.levels)
    assert min(*decisions.values(), fenced, merged, left_out) > 50
    assert trimmed > 10
