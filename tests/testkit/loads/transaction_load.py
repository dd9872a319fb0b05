"""A load of transactions by stock clients during failures, and the check of all their results.

Each writer has one transactional id, and several sessions under it. A writer writes, consumes its own partition,
commits and aborts. It also dies, or continues after a successor has fenced it. Two readers are read_committed, and
one is read_uncommitted.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.levels import TRANSACTIONS_LEVEL
from tests.testkit.clusters.cluster import Cluster, wait_for_level, wait_until
from tests.testkit.loads.ledger import POLL_S, QUIET
from tests.testkit.loads.retries import CALL_TIMEOUT_S, RETRY_TIMEOUT_S, RetriesExhausted, until_done
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
TRANSACTION_TIMEOUTS_MS = (10_000, 60_000)
REST_S_MAX = 0.05  # between two transactions of a writer

# Without this setting, librdkafka 2.16 removes all brokers from its memory if all are gone for a moment. A request to
# a group's coordinator then waits for a removed broker for ever.
CLIENT = {**QUIET, "metadata.recovery.strategy": "none"}


class Writer(threading.Thread):
    """A client with several sessions under one transactional id, one after the other."""

    def __init__(self, bootstrap: str, history: History, number: int, seed: int, rest_s_max: float) -> None:
        super().__init__(name=f"writer-{number}")
        self.failure: BaseException | None = None
        self.group_place: GroupPlace = (GROUP, (SOURCE, number))
        self._servers = bootstrap
        self._history = history
        self._dice = random.Random(f"{seed}/{number}")
        self._rest_s_max = rest_s_max
        self._stopping = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **CLIENT})
        self._consumed = 0
        self._written = 0
        self._producer: Producer
        self._life: Life

    def stop(self) -> None:
        """Start no further transaction."""
        self._stopping.set()

    def run(self) -> None:
        """Run transactions until `stop`; the last one is ended."""
        try:
            self._begin_life()
            while not self._stopping.is_set():
                try:
                    self._transact()
                except KafkaException as error:
                    if error.args[0].retriable() and not error.args[0].txn_requires_abort():
                        raise RetriesExhausted(str(error)) from error
                    self._begin_life()  # fenced, or the transaction took too long
                self._stopping.wait(self._dice.uniform(0, self._rest_s_max))
        except BaseException as error:  # noqa: BLE001  checked by the thread that waits for this one
            self.failure = error
        finally:
            self._consumer.close()

    def _begin_life(self) -> None:
        timeout_ms = self._dice.choice(TRANSACTION_TIMEOUTS_MS)
        settings = {"transactional.id": self.name, "transaction.timeout.ms": timeout_ms, **CLIENT}
        self._producer = Producer({"bootstrap.servers": self._servers, **settings})
        until_done(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))
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

        def record(error: KafkaError | None, message: Message) -> None:
            sent.offset = message.offset() if error is None else None

        self._producer.produce(TOPIC, sent.value, partition=sent.place[1], on_delivery=record)
        self._producer.poll(0)

    def _send_offset(self, offset: int) -> None:
        topic, partition = self.group_place[1]
        offsets = [TopicPartition(topic, partition, offset)]
        metadata = self._consumer.consumer_group_metadata()
        until_done(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, CALL_TIMEOUT_S))

    def _be_fenced(self, transaction: Transaction) -> None:
        """Start a successor while the transaction is open, and then try to commit the transaction."""
        former = self._producer
        former.flush(self._dice.uniform(0, 0.2))
        self._begin_life()
        try:
            self._end(transaction, former, is_commit=True)
        except KafkaException:
            return  # as expected; the checker finds a commit that happened nevertheless

    def _end(self, transaction: Transaction, producer: Producer, *, is_commit: bool) -> None:
        if not is_commit:
            until_done(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
            return
        self._history.ask(transaction)
        try:
            until_done(lambda: producer.commit_transaction(CALL_TIMEOUT_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            until_done(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
        else:
            self._history.committed(transaction)


class Tail(threading.Thread):
    """A reader that starts at the beginning and then tails."""

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
        """Read to the end, and stop: no more records are written."""
        self._is_ending.set()

    def give_up(self) -> None:
        """Stop at once."""
        self._is_given_up.set()

    def run(self) -> None:
        """Read until `end`, and then to the end."""
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
                elif ends:  # an old end: read this place again, as the client reports each end only once
                    self._consumer.seek(TopicPartition(TOPIC, message.partition(), message.offset()))
            self._reading.is_complete = not missing
        except BaseException as error:  # noqa: BLE001  checked by the thread that waits for this one
            self.failure = error
        finally:
            self._consumer.close()

    def _ends(self) -> dict[int, int]:
        """The end offsets of the partitions; seeks, so that the client reports an end that it reported before."""
        ends = {}
        for partition in range(PARTITIONS):
            place = TopicPartition(TOPIC, partition)
            ends[partition] = until_done(lambda place=place: self._consumer.get_watermark_offsets(place, timeout=10))[1]
            (position,) = self._consumer.position([place])
            if position.offset >= 0:
                self._consumer.seek(TopicPartition(TOPIC, partition, position.offset))
        return ends


def wait_for_transactions(cluster: Cluster) -> None:
    """Wait until the cluster's level allows transactions."""
    wait_for_level(cluster, TRANSACTIONS_LEVEL)


class TransactionLoad:
    """Writers and readers of one run."""

    def __init__(self, bootstrap: str, seed: int, writers: int = 3, rest_s_max: float = REST_S_MAX) -> None:
        self.history = History()
        self._bootstrap = bootstrap
        self._writers = [Writer(bootstrap, self.history, number, seed, rest_s_max) for number in range(writers)]
        isolations = (Isolation.COMMITTED, Isolation.COMMITTED, Isolation.UNCOMMITTED)
        self._tails = [self._tail(f"tail-{number}", each) for number, each in enumerate(isolations)]

    def _tail(self, name: str, isolation: Isolation) -> Tail:
        return Tail(self._bootstrap, self.history, f"{name} {isolation.value}", isolation)

    @property
    def counts(self) -> dict[str, int]:
        """The number of transactions by outcome."""
        outcomes = [each.outcome for each in self.history.transactions]
        return {each.value: outcomes.count(each) for each in Outcome}

    def start(self) -> None:
        """Create the topics, and start all threads."""
        topics = {TOPIC: PARTITIONS, SOURCE: len(self._writers)}
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **CLIENT})
        for made in admin.create_topics([NewTopic(*each) for each in topics.items()], operation_timeout=30).values():
            made.result(60)
        for thread in (*self._writers, *self._tails):
            thread.start()

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more transactions are committed."""
        enough = self.counts[Outcome.COMMITTED.value] + count
        wait_until(
            lambda: self._has_failed() or self.counts["committed"] >= enough, RETRY_TIMEOUT_S, f"{enough} commits"
        )
        self._check_threads()

    def settle(self) -> None:
        """End all clients, and check their results."""
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
        """End all threads without a check."""
        for writer in self._writers:
            writer.stop()
        for tail in self._tails:
            tail.give_up()
        for thread in (*self._writers, *self._tails):
            if thread.ident is not None:
                thread.join(RETRY_TIMEOUT_S)

    def _has_failed(self) -> bool:
        return any(each.failure is not None for each in (*self._writers, *self._tails))

    def _check_threads(self) -> None:
        for thread in (*self._writers, *self._tails):
            assert thread.failure is None, f"{thread.name}: {thread.failure!r}"


@contextmanager
def transaction_load(
    bootstrap: str, seed: int, writers: int = 3, rest_s_max: float = REST_S_MAX
) -> Iterator[TransactionLoad]:
    """A running load, whose threads are ended at the end."""
    load = TransactionLoad(bootstrap, seed, writers, rest_s_max)
    load.start()
    try:
        yield load
    finally:
        load.give_up()


def committed_offset(consumer: Consumer, history: History, group_place: GroupPlace, *, is_last: bool = False) -> int:
    """The group's offset, 0 if it has none."""
    place = TopicPartition(*group_place[1])
    asked_at = history.moment()
    (answer,) = until_done(lambda: consumer.committed([place], timeout=CALL_TIMEOUT_S))
    offset = 0 if answer.offset == OFFSET_INVALID else answer.offset
    history.observe(group_place, offset, asked_at, is_last=is_last)
    return int(offset)


def _join(threads: "list[Writer] | list[Tail]") -> None:
    for thread in threads:
        thread.join(RETRY_TIMEOUT_S)
        assert not thread.is_alive(), f"{thread.name} does not end"
