"""Stock clients with stock settings: every codec, groups, offsets, timestamps and the administration they offer."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.ledger import read_everything
from tests.testkit.loads.retries import until_done
from tests.testkit.servers import debian

pytestmark = pytest.mark.e2e

METADATA_TIMEOUT_S = 60  # kcat's default is 5
SESSION_TIMEOUT_MS = 30_000  # long enough that no session expires on a slow machine
SESSION_PARTITIONS = "penstock_gateway_fetch_session_partitions"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("clients") / "data", "--flush-ms", "20") as started:
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> list[int]:
    """Produce to partition 0 and return the acknowledged offsets."""
    offsets: list[int] = []
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, message: object) -> None:
        if error is not None:
            failures.append(error)
        else:
            offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=note)
    assert producer.flush(60) == 0
    if failures:
        raise KafkaException(failures[0])
    return offsets


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    return [value for records in read_everything(bootstrap, topic).values() for _, _, value in records]


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_gets_back_what_it_compressed(cluster: Cluster, codec: str) -> None:
    values = [b"%d" % number * 100 for number in range(200)]
    offsets = produce(cluster.kafka, f"confluent-{codec}", values, **{"compression.type": codec, "linger.ms": 20})
    assert offsets == list(range(200))
    assert values_of(cluster.kafka, f"confluent-{codec}") == values


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_gets_back_what_it_compressed(cluster: Cluster, codec: str) -> None:
    topic = f"aiokafka-{codec}"
    kind = None if codec == "none" else codec
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.kafka, compression_type=kind, enable_idempotence=True
    ) as producer:
        answers = [await producer.send(topic, b"%d" % number * 100) for number in range(50)]
        assert [(await answer).offset for answer in answers] == list(range(50))
    async with aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=cluster.kafka,
        group_id=f"g-{codec}",
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
    ) as consumer:
        read = [await asyncio.wait_for(consumer.getone(), 60) for _ in range(50)]
        assert [record.value for record in read] == [b"%d" % number * 100 for number in range(50)]
        await consumer.commit()
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.kafka, group_id=f"g-{codec}") as consumer:
        assert await consumer.committed(aiokafka.TopicPartition(topic, 0)) == 50


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_gets_back_what_it_compressed(cluster: Cluster, codec: str) -> None:
    topic = f"kafka-python-{codec}"
    kind = None if codec == "none" else codec
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.kafka, compression_type=kind)
    try:
        sent = [producer.send(topic, b"%d" % number * 100, headers=[("h", b"v")]) for number in range(50)]
        assert [answer.get(60).offset for answer in sent] == list(range(50))
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=cluster.kafka,
        auto_offset_reset="earliest",
        group_id=f"kp-{codec}",
        consumer_timeout_ms=60_000,
    )
    try:
        read = [next(consumer) for _ in range(50)]
    finally:
        consumer.close()
    assert [record.value for record in read] == [b"%d" % number * 100 for number in range(50)]
    assert {tuple(record.headers) for record in read} == {(("h", b"v"),)}


def test_kafka_python_reads_many_partitions_in_a_fetch_session(cluster: Cluster, admin: AdminClient) -> None:
    """It pauses some of them for a while: its session has no place for these then."""
    topic, partitions = "in-a-session", 30
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(60)
    producer = Producer({"bootstrap.servers": cluster.kafka})
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.kafka, auto_offset_reset="earliest", fetch_max_wait_ms=100, group_id=None
    )
    assigned = [kafka.TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(assigned)
    written: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    read: dict[int, list[bytes]] = {number: [] for number in range(partitions)}

    def has_read_all() -> bool:
        for each, records in consumer.poll(200).items():
            read[each.partition] += [record.value for record in records]
        return read == written

    try:
        for turn in range(6):
            paused = assigned[turn::6]
            consumer.pause(*paused)
            for number in range(turn, partitions, 2):
                if number % 6 != turn:
                    written[number].append(b"%d" % turn)
                    producer.produce(topic, b"%d" % turn, partition=number)
            assert producer.flush(60) == 0
            wait_until(has_read_all, 60, f"the records of turn {turn}")
            consumer.resume(*paused)
        wait_until(
            lambda: cluster.metric(SESSION_PARTITIONS) >= partitions - len(paused), 60, "the partitions in a session"
        )
    finally:
        consumer.close()


def test_kcat_produces_consumes_and_lists(cluster: Cluster) -> None:
    program, environment = debian.kcat()

    def kcat(*arguments: str, data: bytes = b"") -> bytes:
        command = [program, "-b", cluster.kafka, "-m", str(METADATA_TIMEOUT_S), *arguments]
        return subprocess.run(command, input=data, env=environment, check=True, timeout=180, capture_output=True).stdout

    kcat("-P", "-t", "by-kcat", "-K", ":", data=b"a:1\nb:2\nc:3\n")
    assert kcat("-C", "-t", "by-kcat", "-o", "beginning", "-e", "-q", "-K", ":") == b"a:1\nb:2\nc:3\n"
    listing = json.loads(kcat("-L", "-J"))
    assert "by-kcat" in {topic["topic"] for topic in listing["topics"]}
    assert [broker["name"] for broker in listing["brokers"]] == [cluster.kafka]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_producer_without_idempotence_and_with_any_acks_is_served(
    cluster: Cluster, admin: AdminClient, acks: str
) -> None:
    topic = f"acks-{acks}"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    produce(cluster.kafka, topic, [b"1", b"2"], acks=acks)
    # With acks=0 the producer closes after it sent the records, without an answer.
    wait_until(lambda: values_of(cluster.kafka, topic) == [b"1", b"2"], 60, "both records")


def test_topics_are_made_described_grown_and_deleted(cluster: Cluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("made", 3, config={"max.message.bytes": "2000"})])["made"].result(30)
    assert len(admin.list_topics("made", timeout=30).topics["made"].partitions) == 3
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("made", 3)])["made"].result(30)
    resource = ConfigResource(ResourceType.TOPIC, "made")
    configs = admin.describe_configs([resource])[resource].result(30)
    assert configs["max.message.bytes"].value == "2000"
    assert configs["cleanup.policy"].value == "delete"
    admin.create_partitions([NewPartitions("made", 5)])["made"].result(30)
    assert len(admin.list_topics("made", timeout=30).topics["made"].partitions) == 5
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions("made", 2)])["made"].result(30)
    admin.delete_topics(["made"])["made"].result(30)
    assert "made" not in admin.list_topics(timeout=30).topics
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topics(["made"])["made"].result(30)


def test_what_cannot_be_made_is_refused_by_name(admin: AdminClient) -> None:
    rejections = {
        "INVALID_CONFIG": NewTopic("odd-config", 1, config={"remote.storage.enable": "true"}),
        "INVALID_PARTITIONS": NewTopic("no-partitions", 0),
        "TOPIC_EXCEPTION": NewTopic("not a name", 1),
    }
    for expected, topic in rejections.items():
        with pytest.raises(KafkaException, match=expected):
            admin.create_topics([topic])[topic.topic].result(30)


def test_validating_a_topic_makes_none(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("only-asked", 1)], validate_only=True)["only-asked"].result(30)
    assert "only-asked" not in admin.list_topics(timeout=30).topics


def test_a_batch_over_the_topics_limit_is_refused(cluster: Cluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("small", 1, config={"max.message.bytes": "1000"})])["small"].result(30)
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        produce(cluster.kafka, "small", [b"x" * 2000])
    assert produce(cluster.kafka, "small", [b"x" * 100]) == [0]


def test_offsets_are_found_by_time(cluster: Cluster, admin: AdminClient) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka, "linger.ms": 50})
    for timestamp in range(1000, 2000, 10):
        producer.produce("timed", b"x", partition=0, timestamp=timestamp)
    assert producer.flush(60) == 0
    partition = TopicPartition("timed", 0)
    expected = {
        OffsetSpec.earliest(): 0,
        OffsetSpec.latest(): 100,
        OffsetSpec.for_timestamp(0): 0,
        OffsetSpec.for_timestamp(1500): 50,
        OffsetSpec.for_timestamp(1501): 51,
        OffsetSpec.for_timestamp(1990): 99,
        OffsetSpec.for_timestamp(1991): -1,
    }
    for spec, offset in expected.items():
        assert admin.list_offsets({partition: spec})[partition].result(30).offset == offset


def test_a_group_hands_over_commits_and_can_be_described_and_deleted(cluster: Cluster, admin: AdminClient) -> None:
    produce(cluster.kafka, "handed", [b"%d" % number for number in range(10)])
    settings = {"bootstrap.servers": cluster.kafka, "group.id": "handing", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["handed"])
    try:
        for number in range(5):
            message = wait_until(lambda: consumer.poll(1), 60, "a record")
            assert message.value() == b"%d" % number
            until_done(partial(consumer.commit, message, asynchronous=False))
        described = admin.describe_consumer_groups(["handing"])["handing"].result(30)
        assert described.state.name == "STABLE"
        assert [member.assignment.topic_partitions for member in described.members] == [[TopicPartition("handed", 0)]]
    finally:
        consumer.close()

    def listed() -> set[str]:
        return {group.group_id for group in admin.list_consumer_groups().result(30).valid}

    assert "handing" in listed()
    request = [ConsumerGroupTopicPartitions("handing")]
    (committed,) = admin.list_consumer_group_offsets(request)["handing"].result(30).topic_partitions
    assert committed.offset == 5
    successor = Consumer(settings)
    successor.subscribe(["handed"])
    try:
        assert wait_until(lambda: successor.poll(1), 60, "the next record").value() == b"5"
    finally:
        successor.close()
    until_empty(admin, "handing")
    admin.delete_consumer_groups(["handing"])["handing"].result(30)
    assert "handing" not in listed()


def until_empty(admin: AdminClient, group: str) -> None:
    """Return when all members have left; a closing client waits at most 5 s for the answer to LeaveGroup."""

    def is_empty() -> bool:
        return bool(admin.describe_consumer_groups([group])[group].result(30).state == ConsumerGroupState.EMPTY)

    wait_until(is_empty, 60, f"the last member of {group} to leave")


def test_members_that_come_and_go_share_the_partitions(cluster: Cluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("shared", 6)])["shared"].result(30)
    settings = {"bootstrap.servers": cluster.kafka, "group.id": "sharing", "session.timeout.ms": 6000}
    members = [Consumer(settings) for _ in range(3)]

    def shares() -> list[int]:
        for member in members:
            message = member.poll(0.05)
            assert message is None or message.error() is None
        return sorted(len(member.assignment()) for member in members)

    for member in members:
        member.subscribe(["shared"])
    wait_until(lambda: shares() == [2, 2, 2], 60, "two partitions per member")
    members.pop().close()
    wait_until(lambda: shares() == [3, 3], 60, "three partitions per member")
    members.pop().close()
    wait_until(lambda: shares() == [6], 60, "all partitions for the last member")
    members.pop().close()


def test_static_members_come_back_without_a_rebalance(cluster: Cluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("static", 2)])["static"].result(30)
    settings = {"bootstrap.servers": cluster.kafka, "group.id": "statics", "session.timeout.ms": 30_000}
    assigned: list[str] = []

    def member(name: str) -> Consumer:
        consumer = Consumer({**settings, "group.instance.id": name})
        consumer.subscribe(["static"], on_assign=lambda *_: assigned.append(name))
        return consumer

    one, two = member("one"), member("two")

    def have_joined(*members: Consumer) -> bool:
        messages = [consumer.poll(0.05) for consumer in (*members, two)]
        return not any(messages) and all(consumer.assignment() for consumer in members)

    wait_until(lambda: have_joined(one, two), 60, "both members to join")
    before = one.assignment()
    assigned.clear()
    one.close()  # a static member that closes does not leave
    again = member("one")
    wait_until(lambda: have_joined(again), 60, "the member to be back")
    assert again.assignment() == before
    assert assigned == ["one"]
    again.close()
    two.close()


async def test_admin_clients_in_python_get_along(cluster: Cluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.kafka)
    await admin.start()
    try:
        await admin.create_topics([aiokafka.admin.NewTopic("by-aiokafka", 2, 1)])
        (description,) = await admin.describe_topics(["by-aiokafka"])
        assert len(description["partitions"]) == 2
        assert (await admin.describe_cluster())["brokers"]
        await admin.delete_topics(["by-aiokafka"])
    finally:
        await admin.close()


def test_a_stock_consumer_reads_from_the_middle_of_a_batch(cluster: Cluster) -> None:
    produce(cluster.kafka, "middle", [b"%d" % number for number in range(100)], **{"linger.ms": 200})
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "middle"})
    try:
        consumer.assign([TopicPartition("middle", 0, 57)])
        message = wait_until(lambda: consumer.poll(1), 60, "a record")
        assert (message.offset(), message.value()) == (57, b"57")
    finally:
        consumer.close()


def test_an_offset_past_the_end_resets_the_consumer(cluster: Cluster) -> None:
    produce(cluster.kafka, "short", [b"only"])
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "short", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition("short", 0, 1000)])
        message = wait_until(lambda: consumer.poll(1), 60, "a record")
        assert (message.offset(), message.value()) == (0, b"only")
    finally:
        consumer.close()


def test_the_console_shows_every_process(cluster: Cluster) -> None:
    wait_until(cluster.is_ready, 60, "all processes to be ready")
    assert set(cluster.processes()) == {"nats-server", "agent-1", "sequencer-1"}
    wait_until(lambda: any("penstock_flusher" in name for name in cluster.metrics()), 60, "the flusher's metrics")


def test_clients_leave_nothing_in_the_logs_but_facts(cluster: Cluster) -> None:
    for log in Path(cluster.data / "logs").glob("*.log"):
        assert "Traceback" not in log.read_text(), log
