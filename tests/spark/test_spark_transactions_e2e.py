"""Transactions end to end: stock producers, a compactor on real Spark, tables with the committed records."""

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
    """An acknowledged record and the state of its transaction."""

    row: Row
    transaction: dict[str, str]


class Transactions:
    """Producers, their records, and the ends of their transactions."""

    def __init__(self, cluster: Cluster) -> None:
        self._kafka = cluster.kafka
        self.written: dict[str, list[Written]] = {PLAIN: [], LATEST: []}
        self.producers = {name: self._producer(name) for name in (COMMITTED, ABORTED, OPEN)}
        self.states: dict[str, dict[str, str]] = {}

    def begin(self, name: str) -> None:
        self.producers[name].begin_transaction()
        self.states[name] = {"is": OPEN}

    def write(self, name: str, *keys: bytes) -> None:
        """Write to both topics and flush, so that the records have their own segment."""
        producer, state = self.producers[name], self.states[name]

        def record(error: object, message: Message) -> None:
            assert error is None, error
            row = (message.offset(), message.key(), message.value())
            self.written[message.topic()].append(Written(row, state))

        for topic in self.written:
            for key in keys:
                producer.produce(topic, b"%s %d" % (name.encode(), len(self.written[topic])), key, on_delivery=record)
        assert producer.flush(DEADLINE_S) == 0

    def end(self, name: str, state: str) -> None:
        end = self.producers[name].commit_transaction if state == COMMITTED else self.producers[name].abort_transaction
        end(DEADLINE_S)
        self.states[name]["is"] = state

    def expected(self, topic: str) -> list[Row]:
        """The committed records before the first record of an open transaction."""
        written = sorted(self.written[topic], key=lambda each: each.row)
        stable = next((each.row[0] for each in written if each.transaction["is"] == OPEN), written[-1].row[0] + 1)
        return [each.row for each in written if each.row[0] < stable and each.transaction["is"] == COMMITTED]

    def latest(self) -> list[Row]:
        """The last of these records for each key of the compacted topic."""
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
    """The topic's records up to `last`, read by a stock client that reads committed records."""
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
    """An audit of the whole cluster, without another JVM."""
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
    """The part of a streaming query that the source implements."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        options = options_of(cluster, topics=topic, startingOffsets="earliest")
        reader = PenstockSource(options).streamReader(schema_of("offset", "key", "value"))
        assert isinstance(reader, PenstockStreamReader)
        self._reader = reader
        self._at: dict[str, Any] = self._reader.initialOffset()

    def batch(self) -> list[Row]:
        """The records of the next micro-batch."""
        start, self._at = self._at, self._reader.latestOffset(self._at, ReadAllAvailable())
        parts = self._reader.partitions(start, self._at)
        found = [row for part in parts for batch in self._reader.read(part) for row in batch.to_pylist()]
        return [(row["offset"], row["key"], row["value"]) for row in found]


def test_tables_and_clients_have_the_committed_records_before_and_after_compaction(
    cluster: Cluster, spark: Any
) -> None:
    transactions = Transactions(cluster)
    for number in range(ROUNDS):
        transactions.begin(COMMITTED)
        transactions.begin(ABORTED)
        transactions.write(ABORTED, b"a", b"b")
        transactions.write(COMMITTED, b"a", b"key-%d" % number)
        transactions.end(ABORTED, ABORTED)
        transactions.end(COMMITTED, COMMITTED)
    transactions.begin(OPEN)
    transactions.write(OPEN, b"a", b"c")
    transactions.begin(COMMITTED)
    transactions.write(COMMITTED, b"a", b"after the open one")
    transactions.end(COMMITTED, COMMITTED)
    stream = Stream(cluster, PLAIN)
    for topic in (PLAIN, LATEST):
        expected = transactions.expected(topic)
        assert len(expected) == 2 * ROUNDS
        assert table(cluster, topic) == expected == consumed(cluster, topic, expected[-1])
        assert table(cluster, topic, isolation="read_uncommitted") == sorted(
            each.row for each in transactions.written[topic]
        )
    streamed = stream.batch()
    assert streamed == transactions.expected(PLAIN)

    with CompactorProcess(cluster, "compactor", **EAGER_KEYS) as compactor:
        compactor.until("jobs_total", kind="flushed", result="done")
        wait_until(
            lambda: table(cluster, LATEST) == transactions.latest(), DEADLINE_S, "each key's last record", poll_s=1
        )
        assert table(cluster, PLAIN) == transactions.expected(PLAIN)
        assert stream.batch() == [], "the open transaction delays it"
        transactions.end(OPEN, COMMITTED)
        wait_until(lambda: table(cluster, LATEST) == transactions.latest(), DEADLINE_S, "the last of all", poll_s=1)
        assert compactor.stop() == 0

    streamed += stream.batch()
    assert streamed == transactions.expected(PLAIN)
    assert (
        table(cluster, PLAIN)
        == transactions.expected(PLAIN)
        == consumed(cluster, PLAIN, transactions.expected(PLAIN)[-1])
    )
    # For two minutes, a gateway may still use extents that compaction has replaced.
    read = consumed(cluster, LATEST, transactions.latest()[-1])
    assert set(transactions.latest()) <= set(read) <= set(transactions.expected(LATEST))
    assert read == sorted(set(read))
    loaded = spark.read.format("penstock").options(**options_of(cluster, topics=PLAIN)).load()
    assert sorted(map(tuple, loaded.select("offset", "key", "value").collect())) == transactions.expected(PLAIN)
    assert asyncio.run(audit(cluster)).findings == []
