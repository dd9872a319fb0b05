"""A load of transactions by stock clients that runs while things break, and the judgement of all that they were told.

Each writer has a transactional id, and leads lives under it: it writes, consumes a partition that only it consumes,
commits and aborts, dies, and goes on beside a successor that has fenced it. Readers read what is committed, and one
everything.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.levels import TRANSACTIONS_LEVEL
from tests.testkit.clusters.cluster import Cluster, wait_for_level, wait_until
from tests.testkit.loads.ledger import POLL_S, QUIET
from tests.testkit.loads.transaction_checker import check
from tests.testkit.loads.transaction_history import (
    GroupPlace,
    History,
    Isolation,
    Life,
    Outcome,
    Reading,
    Sent,
    Transaction,
)

TOPIC, SOURCE, GROUP = "accounts", "orders", "clerks"
PARTITIONS = 3
RECORDS = (1, 12)  # of a transaction
CONSUMED_MAX = 9
CONSUMER_SHARE = 0.6
COMMIT_SHARE = 0.75
DIE_SHARE = 0.05
SUCCESSOR_SHARE = 0.05
CALL_TIMEOUT_S = 10.0  # of a call, which is made again
PATIENCE_S = 180.0
TRANSACTION_TIMEOUTS_MS = (10_000, 60_000)
REST_S = (0.0, 0.05)

# Where all brokers are gone for a moment, librdkafka 2.16 otherwise forgets them, and a request to a group's
# coordinator waits for one of the forgotten for ever.
CLIENT = {**QUIET, "metadata.recovery.strategy": "none"}

# What passes when a gateway has come back. librdkafka calls it retriable where it is about transactions, but not where
# a group's offset or the end of a partition is asked for.
PASSING = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)

Answer = TypeVar("Answer")


class Impatient(Exception):
    """A call was made again and again for too long."""


class Writer(threading.Thread):
    """All lives under one transactional id."""

    def __init__(self, bootstrap: str, history: History, number: int, seed: int) -> None:
        super().__init__(name=f"writer-{number}")
        self.failure: BaseException | None = None
        self.group_place: GroupPlace = (GROUP, (SOURCE, number))
        self._servers = bootstrap
        self._history = history
        self._dice = random.Random(f"{seed}/{number}")
        self._stopping = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **CLIENT})
        self._consumed = 0
        self._written = 0
        self._producer: Producer
        self._life: Life

    def stop(self) -> None:
        """Make no further transaction."""
        self._stopping.set()

    def run(self) -> None:
        """Lead lives until told to stop; the last one leaves nothing open."""
        try:
            self._begin_life()
            while not self._stopping.is_set():
                try:
                    self._transact()
                except KafkaException as error:
                    if error.args[0].retriable():
                        raise Impatient(str(error)) from error
                    self._begin_life()  # fenced, or the transaction took too long
                self._stopping.wait(self._dice.uniform(*REST_S))
        except BaseException as error:  # noqa: BLE001  judged by whoever waits for this thread
            self.failure = error
        finally:
            self._consumer.close()

    def _begin_life(self) -> None:
        timeout_ms = self._dice.choice(TRANSACTION_TIMEOUTS_MS)
        settings = {"transactional.id": self.name, "transaction.timeout.ms": timeout_ms, **CLIENT}
        self._producer = Producer({"bootstrap.servers": self._servers, **settings})
        _until_done(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))
        self._life = self._history.begin_life(self.name)
        self._consumed = committed_offset(self._consumer, self._history, self.group_place)

    def _transact(self) -> None:
        dice = self._dice
        transaction = self._history.begin(self._life)
        self._producer.begin_transaction()
        for _ in range(dice.randint(*RECORDS)):
            self._write(transaction)
        consumed = self._consumed + dice.randint(1, CONSUMED_MAX)
        is_consumer = dice.random() < CONSUMER_SHARE
        if is_consumer:
            transaction.consumed[self.group_place] = (self._consumed, consumed)
            self._send_offset(consumed)
        if dice.random() < DIE_SHARE:
            self._producer.flush(dice.uniform(0, 0.1))
            self._begin_life()
            return
        if dice.random() < SUCCESSOR_SHARE:
            self._be_fenced(transaction)
            return
        self._end(transaction, self._producer, is_commit=dice.random() < COMMIT_SHARE)
        if is_consumer and transaction.outcome is Outcome.COMMITTED:
            self._consumed = consumed

    def _write(self, transaction: Transaction) -> None:
        self._written += 1
        sent = Sent((TOPIC, self._dice.randrange(PARTITIONS)), f"{self.name}/{self._written}".encode())
        transaction.sent.append(sent)

        def note(error: KafkaError | None, message: Message) -> None:
            sent.offset = message.offset() if error is None else None

        self._producer.produce(TOPIC, sent.value, partition=sent.place[1], on_delivery=note)
        self._producer.poll(0)

    def _send_offset(self, offset: int) -> None:
        topic, partition = self.group_place[1]
        offsets = [TopicPartition(topic, partition, offset)]
        metadata = self._consumer.consumer_group_metadata()
        _until_done(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, CALL_TIMEOUT_S))

    def _be_fenced(self, transaction: Transaction) -> None:
        """A successor begins while the transaction is open, and then its commit is tried."""
        former = self._producer
        former.flush(self._dice.uniform(0, 0.2))
        self._begin_life()
        try:
            self._end(transaction, former, is_commit=True)
        except KafkaException:
            return  # as it should be; what it could do all the same is the judge's to see

    def _end(self, transaction: Transaction, producer: Producer, *, is_commit: bool) -> None:
        if not is_commit:
            _until_done(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
            return
        self._history.ask(transaction)
        try:
            _until_done(lambda: producer.commit_transaction(CALL_TIMEOUT_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _until_done(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
        else:
            self._history.committed(transaction)


class Tail(threading.Thread):
    """A reader from the beginning to the end, and beyond while that moves."""

    def __init__(self, bootstrap: str, history: History, name: str, isolation: Isolation) -> None:
        super().__init__(name=name)
        self.failure: BaseException | None = None
        self._history = history
        self._reading: Reading = history.read(name, isolation, [(TOPIC, each) for each in range(PARTITIONS)])
        self._is_ending = threading.Event()
        self._is_given_up = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "isolation.level": isolation.value,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "check.crcs": True,
                **CLIENT,
            }
        )

    def end(self) -> None:
        """Nothing is written any more: read what there is, and stop."""
        self._is_ending.set()

    def give_up(self) -> None:
        """Stop where it is."""
        self._is_given_up.set()

    def run(self) -> None:
        """Read until told to end, and then to the end."""
        try:
            self._consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
            missing = dict.fromkeys(range(PARTITIONS))
            ends: dict[int, int] = {}
            while missing and not self._is_given_up.is_set():
                if self._is_ending.is_set() and not ends:
                    ends = self._ends()
                message = self._consumer.poll(POLL_S)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    place = (TOPIC, message.partition())
                    self._history.see(self._reading, place, message.offset(), message.value() or b"")
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif ends and message.offset() >= ends[message.partition()]:
                    missing.pop(message.partition(), None)
                elif ends:  # it was told before all was written; where nothing comes any more, it is not told again
                    self._consumer.seek(TopicPartition(TOPIC, message.partition(), message.offset()))
            self._reading.is_complete = not missing
        except BaseException as error:  # noqa: BLE001  judged by whoever waits for this thread
            self.failure = error
        finally:
            self._consumer.close()

    def _ends(self) -> dict[int, int]:
        """Where the partitions end; who has read so far already is told so once more."""
        ends = {}
        for partition in range(PARTITIONS):
            place = TopicPartition(TOPIC, partition)
            ends[partition] = _until_done(lambda place=place: self._consumer.get_watermark_offsets(place, timeout=10))[
                1
            ]
            (position,) = self._consumer.position([place])
            if position.offset >= 0:
                self._consumer.seek(TopicPartition(TOPIC, partition, position.offset))
        return ends


def wait_for_transactions(cluster: Cluster) -> None:
    """Until the cluster's level allows them."""
    wait_for_level(cluster, TRANSACTIONS_LEVEL)


class TransactionLoad:
    """Writers and readers, until they are told to stop."""

    def __init__(self, bootstrap: str, seed: int, writers: int = 3) -> None:
        self.history = History()
        self._bootstrap = bootstrap
        self._writers = [Writer(bootstrap, self.history, number, seed) for number in range(writers)]
        isolations = (Isolation.COMMITTED, Isolation.COMMITTED, Isolation.UNCOMMITTED)
        self._tails = [self._tail(f"tail-{number}", each) for number, each in enumerate(isolations)]

    def _tail(self, name: str, isolation: Isolation) -> Tail:
        return Tail(self._bootstrap, self.history, f"{name} {isolation.value}", isolation)

    @property
    def counts(self) -> dict[str, int]:
        """How many transactions have which outcome."""
        outcomes = [each.outcome for each in self.history.transactions]
        return {each.value: outcomes.count(each) for each in Outcome}

    def start(self) -> None:
        """Make the topics, and begin."""
        topics = {TOPIC: PARTITIONS, SOURCE: len(self._writers)}
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **CLIENT})
        for made in admin.create_topics([NewTopic(*each) for each in topics.items()], operation_timeout=30).values():
            made.result(60)
        for thread in (*self._writers, *self._tails):
            thread.start()

    def wait_for_more(self, count: int) -> None:
        """Until so many more transactions are committed."""
        enough = self.counts[Outcome.COMMITTED.value] + count
        wait_until(lambda: self._has_failed() or self.counts["committed"] >= enough, PATIENCE_S, f"{enough} commits")
        self._check_threads()

    def settle(self) -> None:
        """Let everything come to its end, and judge it."""
        for writer in self._writers:
            writer.stop()
        _join(self._writers)
        for isolation in Isolation:
            self._tails.append(self._tail("auditor", isolation))
            self._tails[-1].start()
        for tail in self._tails:
            tail.end()
        _join(self._tails)
        self._check_threads()
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": GROUP, **CLIENT})
        for writer in self._writers:
            committed_offset(consumer, self.history, writer.group_place, is_last=True)
        consumer.close()
        violations = check(self.history)
        assert not violations, "\n".join(violations[:20])

    def give_up(self) -> None:
        """Leave no thread behind."""
        for writer in self._writers:
            writer.stop()
        for tail in self._tails:
            tail.give_up()
        for thread in (*self._writers, *self._tails):
            if thread.ident is not None:
                thread.join(PATIENCE_S)

    def _has_failed(self) -> bool:
        return any(each.failure is not None for each in (*self._writers, *self._tails))

    def _check_threads(self) -> None:
        for thread in (*self._writers, *self._tails):
            assert thread.failure is None, f"{thread.name}: {thread.failure!r}"


@contextmanager
def transaction_load(bootstrap: str, seed: int, writers: int = 3) -> Iterator[TransactionLoad]:
    """A load that has begun, and that leaves nothing behind."""
    load = TransactionLoad(bootstrap, seed, writers)
    load.start()
    try:
        yield load
    finally:
        load.give_up()


def committed_offset(consumer: Consumer, history: History, group_place: GroupPlace, *, is_last: bool = False) -> int:
    """The group's offset, 0 if it has none."""
    place = TopicPartition(*group_place[1])
    asked_at = history.moment()
    (told,) = _until_done(lambda: consumer.committed([place], timeout=CALL_TIMEOUT_S))
    offset = 0 if told.offset == OFFSET_INVALID else told.offset
    history.observe(group_place, offset, asked_at, is_last=is_last)
    return int(offset)


def _until_done(call: Callable[[], Answer]) -> Answer:
    """Call again while that can help."""
    for _ in range(int(PATIENCE_S / CALL_TIMEOUT_S)):
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in PASSING:
                raise
            last = error
    raise Impatient(str(last))


def _join(threads: "list[Writer] | list[Tail]") -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} does not come to its end"
