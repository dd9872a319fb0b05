"""A share group of stock clients under load while faults happen, and the check of all its answers.

A producer writes numbered records all the time. Members accept most of them, and release or reject some. Other members
are killed while they hold records. The delivery count orders the observations of different members. So a record with a
confirmed acceptance must never come with a higher count.
"""

import random
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from penstock.contracts.levels import SHARE_GROUPS_LEVEL
from tests.testkit.clusters.cluster import Cluster, wait_for_level, wait_until
from tests.testkit.loads.transaction_writer import CLIENT

TOPIC, GROUP = "work", "workers"
PARTITIONS = 2
MEMBERS = 3
DELIVERY_LIMIT = 10
CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "3000",
    "share.session.timeout.ms": "6000",
    "share.heartbeat.interval.ms": "1000",
    "share.delivery.count.limit": str(DELIVERY_LIMIT),
}
ACKNOWLEDGE_TYPES = (AcknowledgeType.ACCEPT,) * 17 + (AcknowledgeType.RELEASE,) * 2 + (AcknowledgeType.REJECT,)
RECORD_PAUSE_S = 0.005
HOARDER_PAUSE_S = (1.0, 8.0)
POLL_S = 0.2
COMMIT_TIMEOUT_S = 10.0
TIMEOUT_S = 180.0
# A member that acquires records and never acknowledges them, until it is killed.
HOARDER = """
import sys
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]])
while not consumer.poll(1.0):
    pass
print("holds records", flush=True)
sys.stdin.read()
"""


class Ledger:
    """The records that members got, and the answers to their acknowledgements."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.written: dict[bytes, None] = {}  # acknowledged to the producer
        self.counts: dict[bytes, int] = {}  # the highest delivery count of each record
        self.closed: dict[bytes, list[int]] = defaultdict(list)  # delivery counts with a confirmed accept or reject
        self.unsure: dict[bytes, None] = {}

    def unsettled(self) -> list[bytes]:
        """Written records that are not accepted, not rejected, and below the delivery limit."""
        with self.lock:
            settled = (self.closed, self.unsure)
            return [
                value
                for value in self.written
                if not any(value in each for each in settled) and self.counts.get(value, 0) < DELIVERY_LIMIT
            ]

    def violations(self) -> list[str]:
        """One text for each broken promise."""
        found = [f"{value!r} was closed {len(counts)} times" for value, counts in self.closed.items() if counts[1:]]
        found += [
            f"{value!r} came with delivery count {self.counts[value]}, but was closed with {counts[0]}"
            for value, counts in self.closed.items()
            if self.counts[value] > counts[0]
        ]
        often = [value for value, count in self.counts.items() if count > DELIVERY_LIMIT]
        return found + [f"{value!r} came with delivery count {self.counts[value]}" for value in often]


class Member(threading.Thread):
    """A share consumer that acknowledges all records that it gets."""

    def __init__(self, bootstrap: str, ledger: Ledger, number: int, seed: int) -> None:
        super().__init__(name=f"member-{number}")
        self.failure: BaseException | None = None
        self._ledger = ledger
        self._dice = random.Random(f"{seed}/{number}")
        self._consumer = ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit", **CLIENT}
        )
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Fetch no more records."""
        self._stopping.set()

    def run(self) -> None:
        """Fetch and acknowledge until `stop`."""
        try:
            self._consumer.subscribe([TOPIC])
            while not self._stopping.is_set():
                self._work()
            self._consumer.close()
        except BaseException as error:  # noqa: BLE001  `ShareLoad` checks the failure
            self.failure = error

    def _work(self) -> None:
        done: dict[int, dict[bytes, int]] = defaultdict(dict)  # by partition: values and delivery counts
        for message in self._consumer.poll(POLL_S):
            if message.error() is not None:
                continue  # the client retries
            value, count = message.value(), message.delivery_count()
            with self._ledger.lock:
                self._ledger.counts[value] = max(self._ledger.counts.get(value, 0), count)
            acknowledge_type = self._dice.choice(ACKNOWLEDGE_TYPES)
            self._consumer.acknowledge(message, acknowledge_type)
            if acknowledge_type != AcknowledgeType.RELEASE:
                done[message.partition()][value] = count
        self._record(done, self._commit())

    def _commit(self) -> dict[int, bool] | None:
        """By partition, whether the acknowledgements were accepted; None if that is unknown."""
        try:
            results = self._consumer.commit_sync(COMMIT_TIMEOUT_S)
        except KafkaException:
            return None
        return {each.partition: error is None for each, error in results.items()}

    def _record(self, done: dict[int, dict[bytes, int]], confirmed: dict[int, bool] | None) -> None:
        with self._ledger.lock:
            for partition, values in done.items():
                if confirmed is not None and confirmed.get(partition):
                    for value, count in values.items():
                        self._ledger.closed[value].append(count)
                else:
                    self._ledger.unsure.update(dict.fromkeys(values))


class Hoarders(threading.Thread):
    """Starts one member after the other, and kills it while it holds records."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(name="hoarders")
        self.killed = 0
        self._servers = bootstrap
        self._dice = random.Random(f"{seed}/hoarders")
        self._stopping = threading.Event()
        self._now: subprocess.Popen[str] | None = None

    def stop(self) -> None:
        """Start no more members, and kill the present one."""
        self._stopping.set()
        if self._now is not None:
            self._now.kill()

    def run(self) -> None:
        """Start and kill members until `stop`."""
        command = [sys.executable, "-c", HOARDER, self._servers, GROUP, TOPIC]
        while not self._stopping.wait(self._dice.uniform(*HOARDER_PAUSE_S)):
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as self._now:
                assert self._now.stdout is not None
                if self._now.stdout.readline():
                    self.killed += 1
                self._now.kill()


class ShareLoad:
    """A producer and a share group that run until `settle` or `give_up`."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.ledger = Ledger()
        self._bootstrap = bootstrap
        self._members = [Member(bootstrap, self.ledger, number, seed) for number in range(MEMBERS)]
        self._hoarders = Hoarders(bootstrap, seed)
        self._writer = threading.Thread(target=self._write, name="writer")
        self._stopping = threading.Event()

    @property
    def counts(self) -> dict[str, int]:
        """A summary to print."""
        ledger = self.ledger
        again = sum(count > 1 for count in ledger.counts.values())
        facts = {"written": len(ledger.written), "closed": len(ledger.closed), "unsure": len(ledger.unsure)}
        return facts | {"delivered again": again, "members killed": self._hoarders.killed}

    def start(self) -> None:
        """Create the topic and the group's configurations, and start all threads."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **CLIENT})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)], operation_timeout=30)[TOPIC].result(60)
        entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in CONFIGS.items()]
        resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(30)
        for thread in (self._writer, *self._members, self._hoarders):
            thread.start()

    def wait_for_more(self, count: int) -> None:
        """Return when `count` more records are accepted or rejected."""
        enough = len(self.ledger.closed) + count
        wait_until(lambda: len(self.ledger.closed) >= enough or self._failures(), TIMEOUT_S, f"{enough} records")
        assert not self._failures(), self._failures()

    def settle(self) -> None:
        """Stop the writer, wait until members have processed all records, and check everything."""
        self._stopping.set()
        self._hoarders.stop()
        self._writer.join(TIMEOUT_S)
        assert not self._writer.is_alive(), "the writer does not end"
        try:
            wait_until(
                lambda: self._failures() or not self.ledger.unsettled(),
                TIMEOUT_S,
                "all records to be accepted or rejected",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.ledger.unsettled()[:20]}") from error
        self.give_up()
        assert not self._failures(), self._failures()
        violations = self.ledger.violations()
        assert not violations, "\n".join(violations[:20])

    def give_up(self) -> None:
        """Stop all threads and processes."""
        self._stopping.set()
        self._hoarders.stop()
        for member in self._members:
            member.stop()
        for thread in (self._writer, *self._members, self._hoarders):
            if thread.ident is not None:
                thread.join(TIMEOUT_S)

    def _failures(self) -> list[str]:
        return [f"{each.name}: {each.failure!r}" for each in self._members if each.failure is not None]

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, **CLIENT})

        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                with self.ledger.lock:
                    self.ledger.written[message.value() or b""] = None

        number = 0
        while not self._stopping.wait(RECORD_PAUSE_S):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=note)
            producer.poll(0)
            number += 1
        producer.flush(TIMEOUT_S)


def wait_for_share_groups(cluster: Cluster) -> None:
    """Return when the cluster's level allows share groups."""
    wait_for_level(cluster, SHARE_GROUPS_LEVEL)


@contextmanager
def share_load(bootstrap: str, seed: int) -> Iterator[ShareLoad]:
    """A running load; all its threads and processes end with the block."""
    load = ShareLoad(bootstrap, seed)
    try:
        load.start()
        yield load
    finally:
        load.give_up()
