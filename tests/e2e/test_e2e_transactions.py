"""Transactions with stock clients: records and offsets are committed together or not at all, also if services die."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.retries import until_done
from tests.testkit.loads.transaction_load import wait_for_transactions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
TIMEOUT_S = 60.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two gateways, so that one can die while clients know the other."""
    data = tmp_path_factory.mktemp("transactions") / "data"
    with running(data, "--flush-ms", "20", "--gateways", "2") as started:
        wait_for_transactions(started)
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic of two partitions that no other test writes to."""
    name = f"t{next(_numbers)}"
    admin.create_topics([NewTopic(name, 2)])[name].result(30)
    return name


def new_producer(cluster: Cluster, name: str, timeout_ms: int = 60_000, **settings: Any) -> Producer:
    """A producer that owns the transactional id."""
    given = {"bootstrap.servers": cluster.kafka, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
    producer = Producer(given | settings)
    until_done(lambda: producer.init_transactions(TIMEOUT_S))
    return producer


def send(producer: Producer, topic: str, *values: str) -> None:
    """Produce to both partitions in turn, and wait until all records are acknowledged."""
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0


def transact(producer: Producer, topic: str, *values: str) -> None:
    producer.begin_transaction()
    send(producer, topic, *values)
    until_done(lambda: producer.commit_transaction(TIMEOUT_S))


def read(cluster: Cluster, topic: str, isolation: str = COMMITTED) -> list[str]:
    """All values up to the end that a reader with this isolation sees, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.kafka,
            "group.id": "readers",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
        values, ended = [], set()
        while len(ended) < 2:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "no record in time"
            if message.error() is None:
                values.append(message.value().decode())
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
        return sorted(values)
    finally:
        consumer.close()


def ends(admin: AdminClient, topic: str, isolation: IsolationLevel) -> list[int]:
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(2)}
    found = admin.list_offsets(asked, isolation_level=isolation)
    return [found[partition].result(30).offset for partition in asked]


def committed_offset(admin: AdminClient, group: str, topic: str) -> int:
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    (found,) = admin.list_consumer_group_offsets(asked)[group].result(30).topic_partitions
    offset: int = found.offset
    return offset


def test_read_committed_sees_a_transaction_after_its_commit_and_read_uncommitted_at_once(
    cluster: Cluster, admin: AdminClient, topic: str
) -> None:
    producer = new_producer(cluster, topic)
    producer.begin_transaction()
    send(producer, topic, "a", "b")
    assert (read(cluster, topic), read(cluster, topic, UNCOMMITTED)) == ([], ["a", "b"])
    assert ends(admin, topic, IsolationLevel.READ_COMMITTED) == [0, 0]
    assert ends(admin, topic, IsolationLevel.READ_UNCOMMITTED) == [1, 1]
    until_done(lambda: producer.commit_transaction(TIMEOUT_S))
    assert read(cluster, topic) == ["a", "b"]
    assert ends(admin, topic, IsolationLevel.READ_COMMITTED) == [2, 2]


def test_read_committed_never_sees_aborted_records(cluster: Cluster, topic: str) -> None:
    producer = new_producer(cluster, topic)
    transact(producer, topic, "a1", "a2")
    producer.begin_transaction()
    send(producer, topic, "b1", "b2")
    until_done(lambda: producer.abort_transaction(TIMEOUT_S))
    transact(producer, topic, "c1", "c2")
    assert read(cluster, topic) == ["a1", "a2", "c1", "c2"]
    assert read(cluster, topic, UNCOMMITTED) == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_a_second_producer_with_the_same_id_fences_the_first_and_aborts_its_transaction(
    cluster: Cluster, topic: str
) -> None:
    first = new_producer(cluster, topic)
    first.begin_transaction()
    send(first, topic, "lost")
    second = new_producer(cluster, topic)
    assert read(cluster, topic) == []
    transact(second, topic, "kept")
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    assert fenced.value.args[0].name() == "_FENCED"
    assert read(cluster, topic) == ["kept"]


def test_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster, topic: str) -> None:
    producer = new_producer(cluster, topic, timeout_ms=1_000)
    producer.begin_transaction()
    send(producer, topic, "late")
    other = new_producer(cluster, f"{topic}-other")
    transact(other, topic, "kept")
    wait_until(lambda: read(cluster, topic) == ["kept"], TIMEOUT_S, "the end of the transaction")
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    assert read(cluster, topic) == ["kept"]


def joined_consumer(cluster: Cluster, group: str, topic: str) -> Consumer:
    """A member of the group that has its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": COMMITTED,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.05) is None and consumer.assignment(), TIMEOUT_S, "the assignment")
    return consumer


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_and_records_are_committed_together_or_not_at_all(
    cluster: Cluster, admin: AdminClient, topic: str, committed: bool
) -> None:
    consumer = joined_consumer(cluster, f"g-{topic}", topic)
    producer = new_producer(cluster, topic)
    producer.begin_transaction()
    send(producer, topic, "out")
    offsets = [TopicPartition(topic, 0, 7)]
    until_done(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S))
    with pytest.raises(KafkaException, match="UNSTABLE_OFFSET_COMMIT"):
        wanted = ConsumerGroupTopicPartitions(f"g-{topic}", [TopicPartition(topic, 0)])
        found = admin.list_consumer_group_offsets([wanted], require_stable=True)[f"g-{topic}"].result(30)
        raise_first_error(found.topic_partitions)
    end = producer.commit_transaction if committed else producer.abort_transaction
    until_done(lambda: end(TIMEOUT_S))
    assert committed_offset(admin, f"g-{topic}", topic) == (7 if committed else -1001)
    assert read(cluster, topic) == (["out"] if committed else [])
    consumer.close()


def raise_first_error(partitions: list[TopicPartition]) -> None:
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)


def test_a_member_that_was_replaced_commits_no_offsets(cluster: Cluster, admin: AdminClient, topic: str) -> None:
    consumer = joined_consumer(cluster, f"g-{topic}", topic)
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    successor = joined_consumer(cluster, f"g-{topic}", topic)
    producer = new_producer(cluster, topic)
    producer.begin_transaction()
    send(producer, topic, "twice")
    with pytest.raises(KafkaException) as rejected:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], metadata, TIMEOUT_S)
    assert rejected.value.args[0].txn_requires_abort()
    until_done(lambda: producer.abort_transaction(TIMEOUT_S))
    assert read(cluster, topic) == []
    assert committed_offset(admin, f"g-{topic}", topic) == -1001
    successor.close()


@pytest.mark.parametrize("victim", ["gateway-1", "gateway-2", "sequencer-1"])
def test_a_transaction_goes_on_when_a_service_is_killed_in_its_middle(
    cluster: Cluster, topic: str, victim: str
) -> None:
    producer = new_producer(cluster, topic)
    for number in range(3):
        producer.begin_transaction()
        send(producer, topic, f"{number}-a", f"{number}-b")
        if number == 1:
            cluster.kill(victim)
        send(producer, topic, f"{number}-c", f"{number}-d")
        until_done(lambda: producer.commit_transaction(TIMEOUT_S))
    wait_until(cluster.is_ready, 2 * TIMEOUT_S, f"{victim} to come back")
    assert read(cluster, topic) == [f"{number}-{letter}" for number in range(3) for letter in "abcd"]


def test_aiokafka_consumes_transforms_and_produces(cluster: Cluster, admin: AdminClient, topic: str) -> None:
    sink = f"{topic}-sink"
    admin.create_topics([NewTopic(sink, 2)])[sink].result(30)
    transact(new_producer(cluster, topic), topic, "a", "b", "c", "d")
    asyncio.run(transform(cluster.kafka, topic, sink))
    assert read(cluster, sink) == ["A", "B", "C", "D"]
    assert committed_offset(admin, f"g-{topic}", topic) == 3, "two records and the marker"


async def transform(kafka: str, source: str, sink: str) -> None:
    """Copy each batch of records in a transaction, twice: the first one is aborted."""
    group = f"g-{source}"
    consumer = aiokafka.AIOKafkaConsumer(
        source,
        bootstrap_servers=kafka,
        group_id=group,
        isolation_level=COMMITTED,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=30_000,  # long enough that no session expires on a slow machine
    )
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=group)
    async with consumer, producer:
        left = 4
        while left:
            batches = await consumer.getmany(timeout_ms=10_000)
            if not batches:  # the member may not have a partition yet
                continue
            for is_meant in (False, True):
                await producer.begin_transaction()
                for partition, records in batches.items():
                    for record in records:
                        await producer.send_and_wait(sink, record.value.upper(), partition=partition.partition)
                offsets = {partition: await consumer.position(partition) for partition in batches}
                await producer.send_offsets_to_transaction(offsets, group)
                await (producer.commit_transaction() if is_meant else producer.abort_transaction())
            left -= sum(map(len, batches.values()))
