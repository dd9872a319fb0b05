"""A load of transactions by stock clients during failures, and the check of all their results.

Each writer has one transactional id, and several sessions under it. It runs in a process of its own, as librdkafka may
crash when hundreds of producers begin and end. Two readers are read_committed, and one is read_uncommitted.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.contracts.levels import TRANSACTIONS_LEVEL
from tests.testkit.clusters.cluster import Cluster, wait_for_level, wait_until
from tests.testkit.loads import transaction_writer
from tests.testkit.loads.ledger import POLL_S
from tests.testkit.loads.retries import RETRY_TIMEOUT_S, until_done
from tests.testkit.loads.transaction_checker import check
from tests.testkit.loads.transaction_history import History, Isolation, Outcome, Reading
from tests.testkit.loads.transaction_reports import WriterProcess, moment
from tests.testkit.loads.transaction_writer import (
    CLIENT,
    GROUP,
    PARTITIONS,
    SOURCE,
    TOPIC,
    committed_offset,
    group_place,
)

REST_S_MAX = 0.05  # between two transactions of a writer


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
        self.history = History(moment)
        self._bootstrap = bootstrap
        self._seed = seed
        self._rest_s_max = rest_s_max
        self._writers = [self._writer(number) for number in range(writers)]
        isolations = (Isolation.COMMITTED, Isolation.COMMITTED, Isolation.UNCOMMITTED)
        self._tails = [self._tail(f"tail-{number}", each) for number, each in enumerate(isolations)]

    def _writer(self, number: int) -> WriterProcess:
        settings = {"bootstrap": self._bootstrap, "seed": self._seed, "rest-s-max": self._rest_s_max, "number": number}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return WriterProcess(
            f"writer-{number}", [sys.executable, "-m", transaction_writer.__name__, *options], self.history
        )

    def _tail(self, name: str, isolation: Isolation) -> Tail:
        return Tail(self._bootstrap, self.history, f"{name} {isolation.value}", isolation)

    @property
    def counts(self) -> dict[str, int]:
        """The number of transactions by outcome."""
        outcomes = [each.outcome for each in self.history.transactions]
        return {each.value: outcomes.count(each) for each in Outcome}

    @property
    def deaths(self) -> dict[str, int]:
        """The number of crashes of writers by signal."""
        return dict(sum((each.deaths for each in self._writers), Counter[str]()))

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
        for number in range(len(self._writers)):
            asked_at, place = self.history.moment(), group_place(number)
            self.history.observe(place, committed_offset(consumer, place), asked_at, is_last=True)
        consumer.close()
        violations = check(self.history)
        assert not violations, "\n".join(violations[:20])

    def give_up(self) -> None:
        """End all threads and processes without a check."""
        for writer in self._writers:
            writer.give_up()
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


def _join(threads: "list[WriterProcess] | list[Tail]") -> None:
    for thread in threads:
        thread.join(RETRY_TIMEOUT_S)
        assert not thread.is_alive(), f"{thread.name} does not end"
