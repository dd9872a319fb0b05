"""Transactions as users have them: stock producers, a compactor on real Spark, tables that have what is committed."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.audit.audit import Audit, run_task
from penstock.audit.report import Report
from penstock.audit.segment_check import Checked, SegmentCheck
from penstock.objectstore import open_store
from penstock.runtime.clock import SystemClock
from penstock.spark.source.catalog import opened_sequencers
from penstock.spark.source.config import read_source_config
from penstock.spark.source.data_source import PenstockSource, PenstockStreamReader
from tests.spark.source.source_world import options_of, reader_of, rows_of, schema_of
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.compactors import CompactorProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PLAIN, LATEST = "plain", "latest"
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
EAGER_KEYS = {
    "keys_interval_ms": "500",
    "keys_flushed_age_ms": "0",
    "keys_dirty_bytes_min": "0",
    "keys_dirty_age_ms": "0",
}
ROUNDS = 3
DEADLINE_S = 240.0
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"

Row = tuple[int, bytes, bytes]  # offset, key, value


class Written(msgspec.Struct):
    """A record that was acknowledged, and its transaction."""

    row: Row
    transaction: dict[str, str]


class Book:
    """Producers, and what they wrote and decided."""

    def __init__(self, cluster: Cluster) -> None:
        self._kafka = cluster.kafka
        self.written: dict[str, list[Written]] = {PLAIN: [], LATEST: []}
        self.producers = {name: self._producer(name) for name in (COMMITTED, ABORTED, OPEN)}
        self.fates: dict[str, dict[str, str]] = {}

    def begin(self, name: str) -> None:
        self.producers[name].begin_transaction()
        self.fates[name] = {"is": OPEN}

    def write(self, name: str, *keys: bytes) -> None:
        """To both topics, and flushed, so that it is a segment of its own."""
        producer, fate = self.producers[name], self.fates[name]

        def note(error: object, message: Message) -> None:
            assert error is None, error
            row = (message.offset(), message.key(), message.value())
            self.written[message.topic()].append(Written(row, fate))

        for topic in self.written:
            for key in keys:
                producer.produce(topic, b"%s %d" % (name.encode(), len(self.written[topic])), key, on_delivery=note)
        assert producer.flush(DEADLINE_S) == 0

    def end(self, name: str, fate: str) -> None:
        end = self.producers[name].commit_transaction if fate == COMMITTED else self.producers[name].abort_transaction
        end(DEADLINE_S)
        self.fates[name]["is"] = fate

    def expected(self, topic: str) -> list[Row]:
        """What is committed before the first record that is not decided."""
        written = sorted(self.written[topic], key=lambda each: each.row)
        stable = next((each.row[0] for each in written if each.transaction["is"] == OPEN), written[-1].row[0] + 1)
        return [each.row for each in written if each.row[0] < stable and each.transaction["is"] == COMMITTED]

    def latest(self) -> list[Row]:
        """Of each key the last one of these in the compacted topic."""
        return sorted({row[1]: row for row in self.expected(LATEST)}.values())

    def _producer(self, name: str) -> Producer:
        settings = {"transactional.id": name, "transaction.timeout.ms": 900_000, "linger.ms": 0}
        producer = Producer({"bootstrap.servers": self._kafka, **settings})
        producer.init_transactions(DEADLINE_S)
        return producer


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path / "data") as started:
        admin = AdminClient({"bootstrap.servers": started.kafka})
        for each in admin.create_topics([NewTopic(PLAIN, 1), NewTopic(LATEST, 1, config=CONFIGS)]).values():
            each.result(DEADLINE_S)
        yield started


def table(cluster: Cluster, topic: str, **options: str) -> list[Row]:
    found = rows_of(reader_of(cluster, topics=topic, **options))
    return [(row["offset"], row["key"], row["value"]) for row in found]


def consumed(cluster: Cluster, topic: str, last: Row) -> list[Row]:
    """The topic's records, up to one of them, by a stock client that reads what is committed."""
    settings = {"group.id": "reader", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": cluster.kafka, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[Row] = []

    def is_all() -> bool:
        for message in consumer.consume(100, 0.5):
            assert message.error() is None, message.error()
            rows.append((message.offset(), message.key(), message.value()))
        return last in rows

    try:
        wait_until(is_all, DEADLINE_S, f"{last} of {topic}")
    finally:
        consumer.close()
    return rows


async def audit(cluster: Cluster) -> Report:
    """Of everything there is, without another JVM."""
    address = read_source_config(options_of(cluster, topics=PLAIN)).address

    def read(checks: Sequence[SegmentCheck]) -> Checked:
        return msgspec.msgpack.decode(run_task(address.store_url, msgspec.msgpack.encode(checks)), type=Checked)

    async with opened_sequencers(address) as sequencers:
        store = await open_store(address.store_url)
        try:
            return await Audit(sequencers, store, address.cluster, SystemClock(), read).run()
        finally:
            await store.close()


class Stream:
    """A streaming query as far as the source has to do with it."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        options = options_of(cluster, topics=topic, startingOffsets="earliest")
        reader = PenstockSource(options).streamReader(schema_of("offset", "key", "value"))
        assert isinstance(reader, PenstockStreamReader)
        self._reader = reader
        self._at: dict[str, Any] = self._reader.initialOffset()

    def batch(self) -> list[Row]:
        """What one micro-batch reads."""
        start, self._at = self._at, self._reader.latestOffset(self._at, ReadAllAvailable())
        parts = self._reader.partitions(start, self._at)
        found = [row for part in parts for batch in self._reader.read(part) for row in batch.to_pylist()]
        return [(row["offset"], row["key"], row["value"]) for row in found]


def test_tables_and_clients_have_what_is_committed_before_and_after_compaction(cluster: Cluster, spark: Any) -> None:
    book = Book(cluster)
    for number in range(ROUNDS):
        book.begin(COMMITTED)
        book.begin(ABORTED)
        book.write(ABORTED, b"a", b"b")
        book.write(COMMITTED, b"a", b"key-%d" % number)
        book.end(ABORTED, ABORTED)
        book.end(COMMITTED, COMMITTED)
    book.begin(OPEN)
    book.write(OPEN, b"a", b"c")
    book.begin(COMMITTED)
    book.write(COMMITTED, b"a", b"behind what is open")
    book.end(COMMITTED, COMMITTED)
    stream = Stream(cluster, PLAIN)
    for topic in (PLAIN, LATEST):
        expected = book.expected(topic)
        assert len(expected) == 2 * ROUNDS
        assert table(cluster, topic) == expected == consumed(cluster, topic, expected[-1])
        assert table(cluster, topic, isolation="read_uncommitted") == sorted(each.row for each in book.written[topic])
    streamed = stream.batch()
    assert streamed == book.expected(PLAIN)

    with CompactorProcess(cluster, "compactor", **EAGER_KEYS) as compactor:
        compactor.until("jobs_total", kind="flushed", result="done")
        wait_until(lambda: table(cluster, LATEST) == book.latest(), DEADLINE_S, "each key's last record", poll_s=1)
        assert table(cluster, PLAIN) == book.expected(PLAIN)
        assert stream.batch() == [], "the open transaction holds it back"
        book.end(OPEN, COMMITTED)
        wait_until(lambda: table(cluster, LATEST) == book.latest(), DEADLINE_S, "the last of all", poll_s=1)
        assert compactor.stop() == 0

    streamed += stream.batch()
    assert streamed == book.expected(PLAIN)
    assert table(cluster, PLAIN) == book.expected(PLAIN) == consumed(cluster, PLAIN, book.expected(PLAIN)[-1])
    # A gateway may believe for two minutes in what compaction has replaced.
    read = consumed(cluster, LATEST, book.latest()[-1])
    assert set(book.latest()) <= set(read) <= set(book.expected(LATEST))
    assert read == sorted(set(read))
    loaded = spark.read.format("penstock").options(**options_of(cluster, topics=PLAIN)).load()
    assert sorted(map(tuple, loaded.select("offset", "key", "value").collect())) == book.expected(PLAIN)
    assert asyncio.run(audit(cluster)).findings == []
