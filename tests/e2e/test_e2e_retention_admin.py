"""Administration of retention: with stock clients, and on the command line."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource, ConfigResourceType as AioResourceType
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonResource, ConfigResourceType

from penstock.kafkawire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.janitors import explained
from tests.testkit.raw_requests import ask

pytestmark = pytest.mark.e2e

WEEK_MS = "604800000"
HOUR_MS = "3600000"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_RETENTION_INTERVAL_MS", "500")
        data = tmp_path_factory.mktemp("retention") / "data"
        with running(data, "--flush-ms", "20", "--janitors", "1") as started:
            yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


def create(admin: AdminClient, name: str, **configs: str) -> None:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, config=given)])[name].result(30)


def produce(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def ends(admin: AdminClient, topic: str) -> tuple[int, int]:
    """The log start offset and the end offset."""
    partition = TopicPartition(topic, 0)
    found = [
        admin.list_offsets({partition: spec})[partition].result(30).offset
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    return found[0], found[1]


def values_of(cluster: Cluster, topic: str, first: int, count: int) -> list[bytes | None]:
    """The values of `count` records of the topic from an offset on."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "none", "auto.offset.reset": "error"})
    try:
        consumer.assign([TopicPartition(topic, 0, first)])
        messages = consumer.consume(count, timeout=60)
        for error in [message.error() for message in messages if message.error()]:
            raise KafkaException(error)
        assert [message.offset() for message in messages] == list(range(first, first + count))
        return [message.value() for message in messages]
    finally:
        consumer.close()


def configs_of(admin: AdminClient, name: str, kind: ResourceType = ResourceType.TOPIC) -> dict[str, tuple[str, int]]:
    """Value and source of each configuration, by name."""
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(30)
    return {each.name: (each.value, each.source) for each in found.values()}


def alter(admin: AdminClient, topic: str, *entries: ConfigEntry, validate_only: bool = False) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=list(entries))
    (future,) = admin.incremental_alter_configs([resource], validate_only=validate_only).values()
    future.result(30)


def set_to(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)


def error_of(failed: pytest.ExceptionInfo[KafkaException]) -> KafkaError:
    error = failed.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def run(cluster: Cluster, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *argv, "--data", str(cluster.data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


def test_records_are_deleted_up_to_an_offset_and_up_to_the_end(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "trimmed")
    produce(cluster, "trimmed", 10)
    (future,) = admin.delete_records([TopicPartition("trimmed", 0, 4)]).values()
    assert future.result(30).low_watermark == 4
    assert ends(admin, "trimmed") == (4, 10)
    assert values_of(cluster, "trimmed", 4, 6) == [b"%d" % number for number in range(4, 10)]
    with pytest.raises(KafkaException, match="Offset out of range"):
        values_of(cluster, "trimmed", 3, 1)
    (future,) = admin.delete_records([TopicPartition("trimmed", 0, -1)]).values()
    assert future.result(30).low_watermark == 10
    assert ends(admin, "trimmed") == (10, 10)
    produce(cluster, "trimmed", 1)
    assert values_of(cluster, "trimmed", 10, 1) == [b"0"]


@pytest.mark.parametrize(
    ("topic", "offset", "code"),
    [("kept", 4, KafkaError.OFFSET_OUT_OF_RANGE), ("compacted", 1, KafkaError.POLICY_VIOLATION)],
)
def test_an_invalid_deletion_is_rejected_and_deletes_nothing(
    cluster: Cluster, admin: AdminClient, topic: str, offset: int, code: int
) -> None:
    create(admin, topic, cleanup_policy="compact" if topic == "compacted" else "delete")
    producer = Producer({"bootstrap.servers": cluster.kafka})
    for number in range(3):
        producer.produce(topic, b"value", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    with pytest.raises(KafkaException) as failed:
        future.result(30)
    assert error_of(failed).code() == code
    assert ends(admin, topic) == (0, 3)


def test_configurations_change_one_by_one_and_are_described_with_their_source(admin: AdminClient) -> None:
    create(admin, "altered", retention_bytes="1000")
    before = configs_of(admin, "altered")
    assert (before["retention.ms"], before["retention.bytes"]) == ((WEEK_MS, 5), ("1000", 1))
    append = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    alter(admin, "altered", set_to("retention.ms", HOUR_MS), append)
    after = configs_of(admin, "altered")
    assert (after["retention.ms"], after["retention.bytes"]) == ((HOUR_MS, 1), ("1000", 1))
    assert after["cleanup.policy"] == ("delete,compact", 1)
    remove = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    alter(admin, "altered", remove)
    assert configs_of(admin, "altered")["retention.ms"] == (WEEK_MS, 5)


@pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning")
def test_the_older_way_to_alter_replaces_all(admin: AdminClient) -> None:
    create(admin, "replaced", retention_bytes="1000")
    resource = ConfigResource(ResourceType.TOPIC, "replaced", set_config={"retention.ms": HOUR_MS})
    (future,) = admin.alter_configs([resource]).values()
    future.result(30)
    after = configs_of(admin, "replaced")
    assert (after["retention.ms"], after["retention.bytes"]) == ((HOUR_MS, 1), ("-1", 5))


def test_a_validated_or_rejected_request_changes_nothing(admin: AdminClient) -> None:
    create(admin, "validated")
    alter(admin, "validated", set_to("retention.ms", HOUR_MS), validate_only=True)
    for name, value in (("segment.bytes", "1"), ("retention.ms", "soon"), ("min.compaction.lag.ms", "9" * 30)):
        for validate_only in (True, False):
            with pytest.raises(KafkaException) as failed:
                alter(admin, "validated", set_to(name, value), validate_only=validate_only)
            assert error_of(failed).code() == KafkaError.INVALID_CONFIG
            assert name in error_of(failed).str()
    with pytest.raises(KafkaException) as failed:
        alter(admin, "absent", set_to("retention.ms", HOUR_MS))
    assert error_of(failed).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert {source for _, source in configs_of(admin, "validated").values()} == {5}


def alter_defaults(bootstrap: str, *configs: AlterableConfig) -> None:
    """Alter the defaults as Java's tools do; other clients cannot send the empty broker name."""
    api_key, version, broker = 44, 1, 4
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(broker, "", list(configs))])
    response = ask(bootstrap, api_key, version, request)
    assert [(each.error_code, each.error_message) for each in response.responses] == [(0, None)]


def test_the_clusters_defaults_apply_to_topics_without_own_values(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "own", retention_ms="1000000")
    create(admin, "silent")
    alter_defaults(cluster.kafka, AlterableConfig("log.retention.ms", 0, HOUR_MS))
    assert configs_of(admin, "silent")["retention.ms"] == (HOUR_MS, 3)
    assert configs_of(admin, "own")["retention.ms"] == ("1000000", 1)
    (broker,) = admin.list_topics(timeout=30).brokers
    assert configs_of(admin, str(broker), ResourceType.BROKER)["log.retention.ms"] == (HOUR_MS, 3)
    alter_defaults(cluster.kafka, AlterableConfig("log.retention.ms", 1, None))
    assert configs_of(admin, "silent")["retention.ms"] == (WEEK_MS, 5)


def test_a_single_broker_has_nothing_to_alter(admin: AdminClient) -> None:
    (broker,) = admin.list_topics(timeout=30).brokers
    entry = set_to("log.retention.ms", HOUR_MS)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    with pytest.raises(KafkaException, match="empty name"):
        future.result(30)


def test_kafka_python_alters_and_deletes(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "by-kafka-python")
    produce(cluster, "by-kafka-python", 5)
    client = kafka.KafkaAdminClient(bootstrap_servers=cluster.kafka)
    try:
        client.alter_configs([PythonResource(ConfigResourceType.TOPIC, "by-kafka-python", {"retention.ms": HOUR_MS})])
        partition = kafka.TopicPartition("by-kafka-python", 0)
        assert client.delete_records({partition: 3})[partition]["low_watermark"] == 3
    finally:
        client.close()
    assert configs_of(admin, "by-kafka-python")["retention.ms"] == (HOUR_MS, 1)
    assert ends(admin, "by-kafka-python") == (3, 5)


async def test_aiokafka_alters(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "by-aiokafka", retention_bytes="1000")
    client = AIOKafkaAdminClient(bootstrap_servers=cluster.kafka)
    await client.start()
    try:
        await client.alter_configs([AioResource(AioResourceType.TOPIC, "by-aiokafka", {"retention.ms": HOUR_MS})])
    finally:
        await client.close()
    after = configs_of(admin, "by-aiokafka")
    assert (after["retention.ms"], after["retention.bytes"]) == ((HOUR_MS, 1), ("-1", 5))


def test_a_shorter_retention_takes_old_records_away_at_once(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "expiring")
    produce(cluster, "expiring", 5)
    alter(admin, "expiring", set_to("retention.ms", "1"))
    wait_until(lambda: ends(admin, "expiring") == (5, 5), 120, "all records to expire")


def test_a_deleted_topic_comes_back_with_its_records_while_its_window_is_open(
    cluster: Cluster, admin: AdminClient
) -> None:
    create(admin, "precious", penstock_undelete_window_ms=HOUR_MS)
    produce(cluster, "precious", 5)
    admin.delete_topics(["precious"])["precious"].result(30)
    table = run(cluster, "topic", "deleted")
    assert (table.returncode, table.stderr) == (0, "")
    _, row = (re.split(r"  +", line) for line in table.stdout.splitlines())
    (listed,) = json.loads(run(cluster, "topic", "deleted", "-o", "json").stdout)
    assert row[:3] == ["precious", listed["topic_id"], "1"]
    deleted, gone = (datetime.fromisoformat(listed[name]) for name in ("deleted_at", "gone_at"))
    assert (gone - deleted).total_seconds() * 1000 == int(HOUR_MS) and listed["size_bytes"] > 0

    create(admin, "precious")  # the name is free
    taken = run(cluster, "topic", "undelete", "precious")
    assert (taken.returncode, taken.stdout) == (1, "")
    assert taken.stderr.startswith("penstock: topic 'precious' cannot come back: ")
    admin.delete_topics(["precious"])["precious"].result(30)
    back = run(cluster, "topic", "undelete", "precious", f"--id={listed['topic_id']}")
    assert (back.returncode, back.stderr) == (0, "")
    assert back.stdout.startswith(f"topic precious is back: id {listed['topic_id']}, 1 partitions, ")
    assert values_of(cluster, "precious", 0, 5) == [b"%d" % number for number in range(5)]
    again = run(cluster, "topic", "undelete", "precious")
    assert again.stderr.startswith("penstock: no deleted topic 'precious' can come back")


def test_a_janitor_explains_why_an_object_stays(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "explained")
    produce(cluster, "explained", 1)
    store = cluster.data / "objects"
    key = str(newest_segment(store).relative_to(store))
    said = explained(cluster, key)
    assert said.stderr == ""
    assert said.stdout.startswith("live: ") and key in said.stdout


def newest_segment(store: Path) -> Path:
    """The object with the newest modification time."""
    return max(store.glob("*/segments/*/*"), key=lambda path: path.stat().st_mtime_ns)
