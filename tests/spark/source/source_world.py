"""Helpers for tests of the source: topics in a running cluster, and their records from a Kafka client."""

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.source.config import COLUMNS
from penstock.spark.source.data_source import PenstockReader, PenstockSource, PushdownSource
from penstock.spark.source.splits import Stretch
from tests.testkit.clusters.cluster import Cluster

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEADLINE_S = 120.0
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestamp_type": IntegerType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": ArrayType(HEADER),
}


def schema_of(*names: str) -> StructType:
    """A schema as Spark passes it to the source."""
    return StructType([StructField(name, TYPES[name]) for name in names or COLUMNS])


def options_of(cluster: Cluster, **options: str) -> dict[str, str]:
    """The options of the source that name a cluster."""
    return {"nats": cluster.nats_url, "store": f"file://{cluster.data / 'objects'}", **options}


def reader_of(cluster: Cluster, filters: Iterable[Any] = (), **options: str) -> PenstockReader:
    """A reader as Spark creates it, but without Spark."""
    kind = PushdownSource if filters else PenstockSource
    source = kind(options_of(cluster, **options))
    names = [part.split()[0] for part in source.schema().split(", ") if part[0] not in "<>"]
    reader = source.reader(schema_of(*[name for name in names if name in COLUMNS]))
    if filters:
        assert list(reader.pushFilters(list(filters))) == list(filters), "Spark must apply every predicate itself"
    return reader


def rows_of(reader: PenstockReader) -> list[dict[str, Any]]:
    """All rows of all tasks."""
    return [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]


def stretches_of(reader: PenstockReader) -> list[Stretch]:
    """The stretches that are read from the store, each by one GET."""
    return [stretch for partition in reader.partitions() for stretch in partition.split.stretches]


def create_topics(cluster: Cluster, **partitions: int) -> None:
    """Create topics with these numbers of partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    made = admin.create_topics([NewTopic(name, count) for name, count in partitions.items()])
    for each in made.values():
        each.result(DEADLINE_S)


def produce(cluster: Cluster, topic: str, records: Iterable[Mapping[str, Any]], **settings: Any) -> int:
    """Produce all records, wait for their acknowledgements, and return their number."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.kafka, **settings})
    count = 0
    for record in records:
        while True:
            try:
                producer.produce(topic, **record, on_delivery=lambda error, _: error and failures.append(error))
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []
    return count


def consume(cluster: Cluster, topic: str, partitions: int, wanted: int) -> list[dict[str, Any]]:
    """The topic from its beginning, read by a stock client, as rows of the source."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    rows: list[dict[str, Any]] = []
    deadline_s = time.monotonic() + DEADLINE_S
    try:
        while len(rows) < wanted:
            assert time.monotonic() < deadline_s, f"{len(rows)} of {wanted} records came"
            rows += [_row(message) for message in _messages(consumer)]
    finally:
        consumer.close()
    return rows


def _messages(consumer: Consumer) -> Iterator[Any]:
    for message in consumer.consume(1000, 1.0):
        if message.error():
            raise KafkaException(message.error())
        yield message


def _row(message: Any) -> dict[str, Any]:
    kind, milliseconds = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": EPOCH + timedelta(milliseconds=milliseconds),
        "timestamp_type": kind - 1,  # the client counts from 1
        "key": message.key(),
        "value": message.value(),
        "headers": [{"key": key, "value": value} for key, value in message.headers() or ()],
    }


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows sorted by topic, partition and offset."""
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
