"""Readers at the log start while retention moves it: their records are correct, and none is missing too early."""

import contextlib
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.janitors import make_eager
from tests.testkit.loads.ledger import QUIET, idempotent_producer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TOPIC = "edge"
RETENTION_MS = 2_500
PARTITIONS = 2
RECORD_BYTES = 1_000
RECORD_PAUSE_S = 0.004
READ_LATE_MS = 200  # a reader asks for more so long after the expiry of a record
START_EARLY_MS = 250  # a reader starts at a record so long before its expiry
RECORDS_PER_LOOK = 60
LOOK_S = 5.0
LOOKS = 8
OVERTAKEN = 20
DELETED = 20
EDGE_S = 600.0
# Small fetches without pauses, so that a reader stays close to the log start.
CLOSELY = {"max.partition.fetch.bytes": 20_000, "queued.min.messages": 1, "fetch.queue.backoff.ms": 1}


class Written:
    """A thread that writes, and the acknowledged records: value and creation time, by partition and offset."""

    def __init__(self, bootstrap: str) -> None:
        self.records: list[list[tuple[bytes, int]]] = [[] for _ in range(PARTITIONS)]
        self.failures: list[str] = []
        self._producer = idempotent_producer(bootstrap, **{"linger.ms": 5})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Written":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def edge(self, partition: int) -> int:
        """The first offset that does not expire within `START_EARLY_MS`."""
        goes_soon_ms = now_ms() + START_EARLY_MS - RETENTION_MS
        return bisect_left(self.records[partition], goes_soon_ms, key=lambda record: record[1])

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d %s" % (number, bytes(RECORD_BYTES))
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._note)
            self._producer.poll(RECORD_PAUSE_S)
            number += 1

    def _note(self, error: KafkaError | None, message: Message) -> None:
        records = self.records[message.partition()]
        if error is not None:
            self.failures.append(str(error))
        elif message.offset() != len(records):
            self.failures.append(f"offset {message.offset()} was acknowledged instead of {len(records)}")
        else:
            records.append((message.value(), message.timestamp()[1]))


class Reader:
    """A thread that starts at the log start, or at records that expire soon. It reads at the speed of their expiry.

    It takes a new consumer each time. With a second `assign`, librdkafka (2.16) may get the answer to its earlier
    offset query. It then repeats the query half a second later, and goes to that offset (`outdated offset response:
    (re)starting offset query timer`). So it would repeat or leave out records.
    """

    def __init__(self, bootstrap: str, written: Written, partition: int, reset: str) -> None:
        self.partition = partition
        self.looks = self.overtaken = 0
        self.failures: list[str] = []
        self.read: dict[int, bytes] = {}
        self.missed: list[tuple[int, int, int]] = []  # first offset, end offset, and the time of the observation
        self._written = written
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "edge",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "check.crcs": True,
            **CLOSELY,
            **QUIET,
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        is_beginning = True
        while not self._stop.is_set():
            with contextlib.closing(Consumer(self._settings)) as consumer:
                start = OFFSET_BEGINNING if is_beginning else self._written.edge(self.partition)
                consumer.assign([TopicPartition(TOPIC, self.partition, start)])
                self._look(consumer, start)
            is_beginning = not is_beginning

    def _look(self, consumer: Consumer, start: int) -> None:
        """Read from `start` on, and record missing offsets."""
        is_known, expected = start >= 0, max(start, 0)
        for message in self._messages(consumer):
            error = message.error()
            if error is not None:
                self._take(error, expected)
                break
            offset = message.offset()
            if offset > expected:
                self._miss(expected, offset)
                self.overtaken += is_known
            elif offset < expected:
                self.failures.append(f"offset {offset} instead of {expected}, started at {start}")
            self.read[offset] = message.value()
            is_known, expected = True, offset + 1
            self._stop.wait((message.timestamp()[1] + RETENTION_MS + READ_LATE_MS - now_ms()) / 1000)
        self.looks += is_known and expected > start

    def _messages(self, consumer: Consumer) -> Iterator[Message]:
        """Records and errors, until `LOOK_S` ends."""
        deadline_s = time.monotonic() + LOOK_S
        for _ in range(RECORDS_PER_LOOK):
            message = consumer.poll(max(deadline_s - time.monotonic(), 0))
            if message is None or self._stop.is_set():
                return
            yield message

    def _take(self, error: KafkaError, expected: int) -> None:
        if error.name() == "_AUTO_OFFSET_RESET" and "out of range" in error.str().lower():
            self.overtaken += 1
            self._miss(expected, expected + 1)
        else:
            self.failures.append(f"{error.name()} {error.str()}")

    def _miss(self, begin: int, end: int) -> None:
        """Record missing offsets. Their age is checked at the end, when all acknowledgements are known."""
        self.missed.append((begin, end, now_ms()))

    def missed_too_soon(self) -> list[int]:
        """The offsets that were missing before their expiry."""
        records = self._written.records[self.partition]
        return [
            offset
            for begin, end, found_ms in self.missed
            for offset in range(begin, end)
            if offset >= len(records) or records[offset][1] > found_ms - RETENTION_MS
        ]


def now_ms() -> int:
    return int(time.time() * 1000)


def check(written: Written, reader: Reader) -> None:
    """Assert that all records read are the written ones in their order, and that missing ones had expired."""
    assert not reader.failures, reader.failures
    assert not reader.missed_too_soon(), "records were missing before their expiry"
    records = written.records[reader.partition]
    for offset, value in reader.read.items():
        assert records[offset][0] == value, f"offset {offset} has another value than the written one"


@contextlib.contextmanager
def readers(cluster: Cluster, written: Written) -> Iterator[list[Reader]]:
    with contextlib.ExitStack() as stack:
        kinds = [(partition, reset) for partition in range(PARTITIONS) for reset in ("earliest", "error")]
        yield [stack.enter_context(Reader(cluster.kafka, written, *kind)) for kind in kinds]


def at_the_edge(cluster: Cluster, reading: list[Reader]) -> Callable[[], bool]:
    """A condition: readers were overtaken often enough while objects were deleted, or a reader failed."""

    def is_enough() -> bool:
        if any(reader.failures for reader in reading):
            return True
        overtaken = sum(reader.overtaken for reader in reading)
        deleted = cluster.metric("penstock_janitor_deleted_objects_total")
        return overtaken >= OVERTAKEN and deleted >= DELETED and min(reader.looks for reader in reading) >= LOOKS

    return is_enough


def test_readers_at_the_log_start_get_correct_records_and_miss_no_young_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_eager(monkeypatch)
    with running(tmp_path / "data", "--flush-ms", "50", "--janitors", "1") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.kafka, **QUIET})
        topic = NewTopic(TOPIC, PARTITIONS, config={"retention.ms": str(RETENTION_MS)})
        admin.create_topics([topic], operation_timeout=30)[TOPIC].result(30)
        with Written(cluster.kafka) as written, readers(cluster, written) as reading:
            wait_until(at_the_edge(cluster, reading), EDGE_S, "readers to be overtaken", poll_s=0.2)
        assert not written.failures
        for reader in reading:
            check(written, reader)
