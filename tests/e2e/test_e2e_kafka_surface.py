"""Rarely used Kafka APIs with stock clients: pages of partitions, elections, reassignments, topic ids, broker times."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupType as GroupType,
    ElectionType,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import InvalidReplicationAssignmentError

from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.retries import until_done
from tests.testkit.raw_requests import ask

pytestmark = pytest.mark.e2e

PRODUCE, FETCH, PRODUCE_VERSION, FETCH_VERSION = 0, 1, 13, 17
TIMEOUT_S = 60
LONG_AGO_MS = 1_000_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("surface") / "data", "--flush-ms", "20") as started:
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


@pytest.fixture
def python_admin(cluster: Cluster) -> Iterator[Any]:
    made = kafka.KafkaAdminClient(bootstrap_servers=cluster.kafka)
    yield made
    made.close()


def create(admin: AdminClient, name: str, partitions: int = 1, **configs: str) -> None:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, config=given)])[name].result(30)


def test_partitions_are_described_page_by_page(admin: AdminClient, python_admin: Any) -> None:
    create(admin, "pages", 3)
    first = python_admin.describe_topic_partitions(["pages"], response_partition_limit=2)
    second = python_admin.describe_topic_partitions(["pages"], cursor=first["next_cursor"])
    pages = [[each["partition_index"] for each in page["topics"][0]["partitions"]] for page in (first, second)]
    assert pages == [[0, 1], [2]]
    assert second["next_cursor"] is None


def test_there_is_nothing_to_elect(admin: AdminClient) -> None:
    create(admin, "elected")
    asked = [TopicPartition("elected", 0), TopicPartition("absent", 0)]
    answers = admin.elect_leaders(ElectionType.PREFERRED, asked).result(30)
    assert {partition.topic: error.name() for partition, error in answers.items()} == {
        "elected": "ELECTION_NOT_NEEDED",
        "absent": "UNKNOWN_TOPIC_OR_PART",
    }


def test_there_is_nothing_to_reassign(admin: AdminClient, python_admin: Any) -> None:
    create(admin, "placed")
    placed = kafka.TopicPartition("placed", 0)
    assert python_admin.alter_partition_reassignments({placed: [1, 2]}) == {placed: InvalidReplicationAssignmentError}
    assert python_admin.list_partition_reassignments() == {}


def test_groups_are_listed_by_their_type(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "grouped")
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "typed"})
    until_done(lambda: consumer.commit(offsets=[TopicPartition("grouped", 0, 0)], asynchronous=False))
    classic = admin.list_consumer_groups(types={GroupType.CLASSIC}).result(30)
    assert "typed" in {group.group_id for group in classic.valid}
    newer = admin.list_consumer_groups(types={GroupType.CONSUMER}).result(30)
    assert (newer.valid, newer.errors) == ([], [])
    consumer.close()


def test_the_error_for_an_existing_topic_comes_before_other_errors(admin: AdminClient) -> None:
    create(admin, "there")
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        create(admin, "there", segment_bytes="1000")
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        create(admin, "absent", segment_bytes="1000")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_have_the_brokers_time_if_the_topic_is_configured_so(
    cluster: Cluster, admin: AdminClient, codec: str
) -> None:
    topic = f"appended-{codec}"
    create(admin, topic, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    delivered: list[Message] = []
    producer = Producer({"bootstrap.servers": cluster.kafka, "compression.type": codec})
    for number in range(20):
        producer.produce(
            topic, b"%d" % number * 50, timestamp=LONG_AGO_MS, on_delivery=lambda _, each: delivered.append(each)
        )
    assert producer.flush(30) == 0
    after_ms = int(time.time() * 1000)
    # The producer sends old timestamps; the answer and the stored records have the broker's time.
    for message in (*delivered, *read(cluster, topic, 20)):
        kind, timestamp_ms = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before_ms <= timestamp_ms <= after_ms


async def test_other_clients_see_the_brokers_time_and_find_records_by_it(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "sought", message_timestamp_type="LogAppendTime")
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.kafka)
    sent = [producer.send("sought", b"%d" % number, timestamp_ms=LONG_AGO_MS).get(30) for number in range(3)]
    producer.close()
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.kafka)
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition("sought", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        records = [await consumer.getone() for _ in range(3)]
        assert [record.timestamp for record in records] == [each.timestamp for each in sent]
        assert {record.timestamp_type for record in records} == {1}
        found = await consumer.offsets_for_times({partition: sent[2].timestamp})
        assert found[partition].timestamp == sent[2].timestamp
    finally:
        await consumer.stop()


def test_records_out_of_their_time_are_refused(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "limited", message_timestamp_before_max_ms="60000")
    producer = Producer({"bootstrap.servers": cluster.kafka})
    errors: list[str] = []
    producer.produce("limited", b"old", timestamp=LONG_AGO_MS, on_delivery=lambda error, _: errors.append(error.name()))
    assert producer.flush(30) == 0
    assert errors == ["INVALID_TIMESTAMP"]
    producer.produce("limited", b"new")
    assert producer.flush(30) == 0
    (message,) = read(cluster, "limited", 1)
    assert (message.value(), message.timestamp()[0]) == (b"new", TIMESTAMP_CREATE_TIME)


def test_a_topic_made_again_is_not_served_under_its_old_id(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "again")
    old_id = id_of(admin, "again")
    assert produce_by_id(cluster, old_id, b"old") == 0
    assert fetch_until_answered(cluster, old_id) == (0, True)
    admin.delete_topics(["again"])["again"].result(30)
    create(admin, "again")
    new_id = id_of(admin, "again")
    assert new_id != old_id
    producer = Producer({"bootstrap.servers": cluster.kafka})
    producer.produce("again", b"new")
    assert producer.flush(30) == 0
    assert fetch_by_id(cluster, old_id) == (ErrorCode.UNKNOWN_TOPIC_ID, False)
    assert produce_by_id(cluster, old_id, b"late") == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch_until_answered(cluster, new_id) == (0, True)
    assert [message.value() for message in read(cluster, "again", 1)] == [b"new"]


def test_clients_go_on_when_a_topic_is_made_again(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "renewed")
    producer = Producer({"bootstrap.servers": cluster.kafka})
    settings = {"bootstrap.servers": cluster.kafka, "group.id": "renewed", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "topic.metadata.refresh.interval.ms": 200})
    consumer.subscribe(["renewed"])
    producer.produce("renewed", b"before")
    assert producer.flush(30) == 0
    assert [message.value() for message in take(consumer, 1)] == [b"before"]
    admin.delete_topics(["renewed"])["renewed"].result(30)
    create(admin, "renewed")
    for value in (b"after", b"last"):
        producer.produce("renewed", value)
        assert producer.flush(30) == 0
    # As with Kafka, a consumer keeps its position, 1, unless it starts again.
    values = [message.value() for message in take(consumer, 1)]
    assert values in ([b"after"], [b"last"])
    consumer.close()


def take(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` records."""
    found: list[Message] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline_s, f"{len(found)} of {count} records in {TIMEOUT_S} s"
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def read(cluster: Cluster, topic: str, count: int) -> list[Message]:
    """The first `count` records of partition 0."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": f"reads-{topic}"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return take(consumer, count)
    finally:
        consumer.close()


def id_of(admin: AdminClient, topic: str) -> bytes:
    """The topic's id as 16 bytes."""
    topic_id = admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return struct.pack(">qq", high, low)


def produce_by_id(cluster: Cluster, topic_id: bytes, value: bytes) -> int:
    """Produce one record, and return the error code."""
    records = build_batch([Record(0, LONG_AGO_MS, None, value)])
    topic = TopicProduceData("", topic_id, [PartitionProduceData(0, records)])
    response = ask(cluster.kafka, PRODUCE, PRODUCE_VERSION, ProduceRequest(None, -1, 30_000, [topic]))
    return int(response.responses[0].partition_responses[0].error_code)


def fetch_by_id(cluster: Cluster, topic_id: bytes) -> tuple[int, bool]:
    """Fetch once; return the error code, and whether there are records."""
    topic = FetchTopic("", topic_id, [FetchPartition(partition_max_bytes=1_000_000)])
    response = ask(cluster.kafka, FETCH, FETCH_VERSION, FetchRequest(min_bytes=1, topics=[topic]))
    (data,) = response.responses[0].partitions
    return int(data.error_code), bool(data.records)


def fetch_until_answered(cluster: Cluster, topic_id: bytes) -> tuple[int, bool]:
    """The first answer with records or an error; an empty answer is possible on a slow machine."""

    def answered() -> tuple[int, bool] | None:
        answer = fetch_by_id(cluster, topic_id)
        return None if answer == (0, False) else answer

    answer: tuple[int, bool] = wait_until(answered, TIMEOUT_S, "a record")
    return answer
