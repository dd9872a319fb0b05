"""Readers at the very edge of what is kept: all they get is right, and nothing is missing before its time."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.cluster import Cluster, running, wait_until
from tests.testkit.janitors import make_eager
from tests.testkit.ledger import QUIET, idempotent_producer

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

TOPIC = "edge"
RETENTION_MS = 2_500
PARTITIONS = 2
RECORD_BYTES = 200
RECORD_PAUSE_S = 0.001
FETCHED_BYTES = 20_000  # at once, so that a reader of old records stays behind
RECORDS_PER_LOOK = 400
LOOKS = 20
OVERTAKEN = 6
DELETED = 20
EDGE_S = 90.0


class Written:
    """A thread that writes, and what it was told: by place the value, and when the record was made."""

    def __init__(self, bootstrap: str) -> None:
        self.records: dict[tuple[int, int], tuple[bytes, int]] = {}
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

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d %s" % (number, bytes(RECORD_BYTES))
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._note)
            self._producer.poll(RECORD_PAUSE_S)
            number += 1

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.records[message.partition(), message.offset()] = (message.value(), message.timestamp()[1])


class Reader:
    """A thread that goes to the beginning, or to where the beginning was a while ago, again and again."""

    def __init__(self, bootstrap: str, partition: int, reset: str) -> None:
        self.partition = partition
        self.looks = self.overtaken = 0
        self.failures: list[str] = []
        self.read: dict[int, bytes] = {}
        self.skipped: list[tuple[int, int, int]] = []  # from, to before, and by when they had to be too old
        self._left_over = -1  # where the look before ended: the client may still hold what it fetched from there on
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "edge",
                "enable.auto.commit": False,
                "auto.offset.reset": reset,
                "check.crcs": True,
                "max.partition.fetch.bytes": FETCHED_BYTES,
                "queued.min.messages": 1,
                **QUIET,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        first = 0  # an offset that was the beginning once, long ago as soon as it matters
        while not self._stop.is_set():
            start = OFFSET_BEGINNING if self.looks % 2 else first
            self._consumer.assign([TopicPartition(TOPIC, self.partition, start)])
            first = self._look(start) or first
            self.looks += 1

    def _look(self, start: int) -> int:
        """Read on from there; the first offset that came."""
        expected, first = max(start, 0), 0
        for _ in range(RECORDS_PER_LOOK):
            message = self._consumer.poll(1.0)
            if message is None or self._stop.is_set():
                break
            error = message.error()
            if error is not None:
                self._take(error, expected)
                break
            offset = message.offset()
            if offset == self._left_over:
                self._left_over += 1
                continue
            self._left_over = -1
            first = first or offset
            if offset > expected:
                self.skipped.append((expected, offset, int(time.time() * 1000)))
            elif offset < expected:
                self.failures.append(f"offset {offset} in the place of {expected}, begun at {start}, first {first}")
            self.read[offset] = message.value()
            expected = offset + 1
        self._left_over = expected if first else -1
        return first

    def _take(self, error: KafkaError, expected: int) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET and "out of range" in error.str().lower():
            self.overtaken += 1
            self.skipped.append((expected, expected + 1, int(time.time() * 1000)))
        else:
            self.failures.append(f"{error.name()} {error.str()}")


def check(written: Written, reader: Reader) -> None:
    """All that came is what was written there, and what did not come was too old."""
    assert not reader.failures, reader.failures
    for offset, value in reader.read.items():
        assert written.records[reader.partition, offset][0] == value, f"offset {offset} is not what was written"
    for begin, end, by_ms in reader.skipped:
        young = [  # a place that was out of range is one that is skipped
            offset
            for offset in range(begin, end)
            if written.records[reader.partition, offset][1] + RETENTION_MS > by_ms
        ]
        assert not young, f"offsets {young[0]} to {young[-1]} were skipped {begin}-{end} before their time"


@contextlib.contextmanager
def readers(cluster: Cluster) -> Iterator[list[Reader]]:
    with contextlib.ExitStack() as stack:
        kinds = [(partition, reset) for partition in range(PARTITIONS) for reset in ("earliest", "error")]
        yield [stack.enter_context(Reader(cluster.kafka, *kind)) for kind in kinds]


def at_the_edge(cluster: Cluster, reading: list[Reader]) -> Callable[[], bool]:
    """Whether readers were overtaken often enough, while objects went."""

    def is_enough() -> bool:
        overtaken = sum(reader.overtaken for reader in reading)
        deleted = cluster.metric("penstock_janitor_deleted_objects_total")
        return overtaken >= OVERTAKEN and deleted >= DELETED and min(reader.looks for reader in reading) >= LOOKS

    return is_enough


def test_readers_at_the_edge_of_retention_get_what_is_right_and_miss_nothing_that_is_young(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_eager(monkeypatch)
    with running(tmp_path / "data", "--flush-ms", "50", "--janitors", "1") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.kafka, **QUIET})
        topic = NewTopic(TOPIC, PARTITIONS, config={"retention.ms": str(RETENTION_MS)})
        admin.create_topics([topic], operation_timeout=30)[TOPIC].result(30)
        with Written(cluster.kafka) as written, readers(cluster) as reading:
            wait_until(at_the_edge(cluster, reading), EDGE_S, "readers to be overtaken", poll_s=0.2)
        assert not written.failures
        for reader in reading:
            check(written, reader)
