"""A transactional client that writes, consumes its own partition, commits and aborts, as a process that reports all.

It also dies without an end of its transaction, or continues after a successor has fenced it.
"""

import argparse
import os
import random
import sys
import threading

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.testkit.loads.ledger import QUIET
from tests.testkit.loads.retries import CALL_TIMEOUT_S, RetriesExhausted, until_done
from tests.testkit.loads.transaction_history import GroupPlace
from tests.testkit.loads.transaction_reports import Reporter, moment

TOPIC, SOURCE, GROUP = "accounts", "orders", "clerks"
PARTITIONS = 3
RECORDS = (1, 12)  # of a transaction
CONSUMED_MAX = 9
CONSUMER_SHARE = 0.6
COMMIT_SHARE = 0.75
DIE_SHARE = 0.05
SUCCESSOR_SHARE = 0.05
TRANSACTION_TIMEOUTS_MS = (10_000, 60_000)

# Without this setting, librdkafka 2.16 removes all brokers from its memory if all are gone for a moment. A request to
# a group's coordinator then waits for a removed broker for ever.
CLIENT = {**QUIET, "metadata.recovery.strategy": "none"}


def group_place(number: int) -> GroupPlace:
    """The partition that this writer consumes alone."""
    return GROUP, (SOURCE, number)


def committed_offset(consumer: Consumer, place: GroupPlace) -> int:
    """The group's offset, 0 if it has none."""
    (answer,) = until_done(lambda: consumer.committed([TopicPartition(*place[1])], timeout=CALL_TIMEOUT_S))
    return 0 if answer.offset == OFFSET_INVALID else int(answer.offset)


class Writer:
    """A client with several sessions under one transactional id, one after the other."""

    def __init__(self, options: argparse.Namespace, reporter: Reporter, stopping: threading.Event) -> None:
        self._servers: str = options.bootstrap
        self._name = f"writer-{options.number}"
        # A value has the number of deaths, so that no two processes write the same.
        self._prefix = f"{self._name}/{options.deaths}"
        self._group_place = group_place(options.number)
        self._reporter = reporter
        self._dice = random.Random(f"{options.seed}/{options.number}/{options.deaths}")
        self._rest_s_max: float = options.rest_s_max
        self._stopping = stopping
        self._consumer = Consumer({"bootstrap.servers": self._servers, "group.id": GROUP, **CLIENT})
        self._consumed = 0
        self._written = 0
        self._producer: Producer

    def run(self) -> None:
        """Run transactions until `stopping`; the last one is ended."""
        self._begin_life()
        while not self._stopping.is_set():
            try:
                self._transact()
            except KafkaException as error:
                if error.args[0].retriable() and not error.args[0].txn_requires_abort():
                    raise RetriesExhausted(str(error)) from error
                self._begin_life()  # fenced, or the transaction took too long
            self._stopping.wait(self._dice.uniform(0, self._rest_s_max))
        self._consumer.close()

    def _begin_life(self) -> None:
        timeout_ms = self._dice.choice(TRANSACTION_TIMEOUTS_MS)
        settings = {"transactional.id": self._name, "transaction.timeout.ms": timeout_ms, **CLIENT}
        self._producer = Producer({"bootstrap.servers": self._servers, **settings})
        until_done(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))
        self._reporter.begin_life()
        asked_at = moment()
        self._consumed = committed_offset(self._consumer, self._group_place)
        self._reporter.observe(self._group_place, self._consumed, asked_at)

    def _transact(self) -> None:
        dice = self._dice
        transaction = self._reporter.begin()
        self._producer.begin_transaction()
        for _ in range(dice.randint(*RECORDS)):
            self._write(transaction)
        consumed = self._consumed + dice.randint(1, CONSUMED_MAX)
        is_consumer = dice.random() < CONSUMER_SHARE
        if is_consumer:
            self._reporter.consume(transaction, self._group_place, self._consumed, consumed)
            self._send_offset(consumed)
        if dice.random() < DIE_SHARE:
            self._producer.flush(dice.uniform(0, 0.1))
            self._begin_life()
            return
        if dice.random() < SUCCESSOR_SHARE:
            self._be_fenced(transaction)
            return
        is_committed = self._end(transaction, self._producer, is_commit=dice.random() < COMMIT_SHARE)
        if is_consumer and is_committed:
            self._consumed = consumed

    def _write(self, transaction: int) -> None:
        self._written += 1
        partition, value = self._dice.randrange(PARTITIONS), f"{self._prefix}/{self._written}"
        self._reporter.send(transaction, (TOPIC, partition), value)

        def record(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._reporter.acknowledged(value, message.offset())

        self._producer.produce(TOPIC, value.encode(), partition=partition, on_delivery=record)
        self._producer.poll(0)

    def _send_offset(self, offset: int) -> None:
        topic, partition = self._group_place[1]
        offsets = [TopicPartition(topic, partition, offset)]
        metadata = self._consumer.consumer_group_metadata()
        until_done(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, CALL_TIMEOUT_S))

    def _be_fenced(self, transaction: int) -> None:
        """Start a successor while the transaction is open, and then try to commit the transaction."""
        former = self._producer
        former.flush(self._dice.uniform(0, 0.2))
        self._begin_life()
        try:
            self._end(transaction, former, is_commit=True)
        except KafkaException:
            return  # as expected; the checker finds a commit that happened nevertheless

    def _end(self, transaction: int, producer: Producer, *, is_commit: bool) -> bool:
        """Commit or abort; whether the transaction is committed."""
        if not is_commit:
            until_done(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
            return False
        self._reporter.ask(transaction)
        try:
            until_done(lambda: producer.commit_transaction(CALL_TIMEOUT_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            until_done(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
            return False
        self._reporter.committed(transaction)
        return True


def main() -> int:
    """Write until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--rest-s-max", type=float, required=True)
    parser.add_argument("deaths", type=int)
    options = parser.parse_args()
    stopping = threading.Event()

    def await_stop() -> None:
        os.read(sys.stdin.fileno(), 1)  # nothing comes before the end
        stopping.set()

    threading.Thread(target=await_stop, name="stop", daemon=True).start()
    reporter = Reporter(sys.stdout.fileno())
    try:
        Writer(options, reporter, stopping).run()
    except Exception as error:
        reporter.fail(repr(error))
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
