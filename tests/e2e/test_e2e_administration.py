"""Administration with stock clients: quotas, log sizes, authorized operations, and usual topic settings."""

import time
from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
)
from kafka.admin import KafkaAdminClient

from penstock.kafkawire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from penstock.kafkawire.api.describe_client_quotas import DescribeClientQuotasRequest
from penstock.kafkawire.api.describe_quorum import DescribeQuorumRequest, PartitionRequest, TopicRequest
from penstock.kafkawire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.records import Record, build_batch
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.raw_requests import ask

pytestmark = pytest.mark.e2e

PRODUCE, LIST_OFFSETS, DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_QUORUM = 0, 2, 48, 49, 55
POSITION_LAG_MAX = 20  # entries; other tests of this cluster may write some
RATE = 200_000  # bytes per second
QUOTA_RECORDS, RECORD_BYTES = 800, 1_000
LEVEL_S_MAX = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("administration") / "data"
    with running(data, "--flush-ms", "20", "--gateways", "2") as started:
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka})


@pytest.fixture
def python_admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    made = kafka.KafkaAdminClient(bootstrap_servers=cluster.kafka)
    yield made
    made.close()


def set_quotas(cluster: Cluster, client_id: str, **values: float | None) -> None:
    """Set quotas, as soon as the cluster's level allows them."""
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    request = AlterClientQuotasRequest([EntryData([EntityData("client-id", client_id)], ops)])
    wait_until(
        lambda: not ask(cluster.kafka, ALTER_QUOTAS, 1, request).entries[0].error_code,
        LEVEL_S_MAX,
        "the quotas to be accepted",
    )


def test_clients_with_a_quota_are_throttled_and_others_are_not(cluster: Cluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("held", 2)])["held"].result(30)
    set_quotas(cluster, "held", producer_byte_rate=float(RATE), consumer_byte_rate=float(RATE))
    described = ask(cluster.kafka, DESCRIBE_QUOTAS, 1, DescribeClientQuotasRequest())
    assert {value.key: value.value for entry in described.entries for value in entry.values} == {
        "producer_byte_rate": RATE,
        "consumer_byte_rate": RATE,
    }
    needed_s = (
        QUOTA_RECORDS * RECORD_BYTES / RATE - 2.2
    )  # one second is credit, and the wait for another one comes after the last answer
    throttled: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.kafka,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    small = {"batch.size": 20_000}  # a consumer gets at least one batch of any size
    produce(Producer({**settings, **small, "client.id": "free"}), "held")
    assert throttled == []
    settings["client.id"] = "held"
    assert produce(Producer({**settings, **small}), "held") > needed_s
    assert throttled
    consumer = Consumer({**settings, "group.id": "held", "enable.auto.commit": False})
    began_s, seen = time.monotonic(), 0
    consumer.assign([TopicPartition("held", number, 0) for number in range(2)])
    while seen < QUOTA_RECORDS:
        seen += len(consumer.consume(100, 1.0))
    assert time.monotonic() - began_s > needed_s
    consumer.close()


def produce(producer: Producer, topic: str) -> float:
    """Produce the quota's records; return the seconds that it took."""
    began_s = time.monotonic()
    for number in range(QUOTA_RECORDS):
        producer.produce(topic, bytes(RECORD_BYTES), partition=number % 2)
    assert producer.flush(60) == 0
    return time.monotonic() - began_s


def test_a_removed_quota_throttles_no_client(cluster: Cluster) -> None:
    set_quotas(cluster, "once", producer_byte_rate=1.0)
    set_quotas(cluster, "once", producer_byte_rate=None)
    described = ask(cluster.kafka, DESCRIBE_QUOTAS, 1, DescribeClientQuotasRequest())
    assert "once" not in {part.entity_name for entry in described.entries for part in entry.entity}


def test_the_bytes_of_each_partition_are_reported_once(
    cluster: Cluster, admin: AdminClient, python_admin: KafkaAdminClient
) -> None:
    admin.create_topics([NewTopic("sized", 2)])["sized"].result(30)
    producer = Producer({"bootstrap.servers": cluster.kafka})
    producer.produce("sized", bytes(50_000), partition=1)
    assert producer.flush(30) == 0
    brokers = python_admin.describe_log_dirs(["sized"])
    sizes: dict[int, list[int]] = {}
    for broker in brokers:
        for log_dir in broker["log_dirs"]:
            assert (log_dir["error_code"], log_dir["log_dir"]) == (0, "penstock")
            for topic in log_dir["topics"]:
                for partition in topic["partitions"]:
                    sizes.setdefault(partition["partition_index"], []).append(partition["partition_size"])
    assert sizes.keys() == {0, 1}
    assert sizes[0] == [0]
    assert len(sizes[1]) == 1
    assert 50_000 < sizes[1][0] < 51_000


def test_no_partition_moves_to_another_log_directory(admin: AdminClient, python_admin: KafkaAdminClient) -> None:
    admin.create_topics([NewTopic("unmoved", 1)])["unmoved"].result(30)
    (broker,) = python_admin.describe_log_dirs(["unmoved"])
    (answer,) = python_admin.alter_replica_log_dirs({("unmoved", 0, broker["broker"]): "/elsewhere"}).values()
    assert answer.errno == 57  # LOG_DIR_NOT_FOUND


def test_sequencers_and_gateways_follow_the_journal(cluster: Cluster, python_admin: KafkaAdminClient) -> None:
    request = DescribeQuorumRequest([TopicRequest("__cluster_metadata", [PartitionRequest(0)])])
    brokers = {each["broker_id"] for each in python_admin.describe_cluster()["brokers"]}

    def has_all_observers() -> bool:
        quorum = ask(cluster.kafka, DESCRIBE_QUORUM, 2, request).topics[0].partitions[0]
        positions = {each.replica_id: each.log_end_offset for each in quorum.observers}
        return positions.keys() == brokers and min(positions.values()) >= quorum.high_watermark - POSITION_LAG_MAX

    wait_until(has_all_observers, LEVEL_S_MAX, "a position of each gateway near that of the sequencers")


def test_every_client_may_do_everything_and_the_answers_list_it(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("open", 1)])["open"].result(30)
    asked = admin.describe_topics(TopicCollection(["open"]), include_authorized_operations=True)
    assert AclOperation.ALTER_CONFIGS in asked["open"].result(30).authorized_operations
    cluster = admin.describe_cluster(include_authorized_operations=True).result(30)
    assert AclOperation.CLUSTER_ACTION in cluster.authorized_operations


def test_usual_settings_are_accepted_and_settings_without_effect_are_rejected(
    cluster: Cluster, admin: AdminClient
) -> None:
    usual = {"segment.bytes": "52428800", "min.insync.replicas": "2", "unclean.leader.election.enable": "false"}

    def is_created() -> bool:
        future = admin.create_topics([NewTopic("usual", 1, 3, config=usual)])["usual"]
        return future.exception(30) is None

    wait_until(is_created, LEVEL_S_MAX, "the level that allows these configurations")
    resource = ConfigResource(ConfigResource.Type.TOPIC, "usual")
    configs = admin.describe_configs([resource])[resource].result(30)
    assert {name: configs[name].value for name in usual} == usual
    assert configs["flush.ms"].value == str(2**63 - 1)
    rejected = admin.create_topics([NewTopic("tiered", 1, config={"remote.storage.enable": "true"})])["tiered"]
    with pytest.raises(KafkaException, match=r"remote\.storage\.enable only false is supported"):
        rejected.result(30)


def send(cluster: Cluster, topic: str, records: list[Record]) -> Any:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, build_batch(records))])]
    (answer,) = ask(cluster.kafka, PRODUCE, 9, ProduceRequest(None, -1, 30_000, data)).responses
    return answer.partition_responses[0]


def test_a_compacted_topic_rejects_each_record_without_a_key_by_its_index(cluster: Cluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("keyed", 1, config={"cleanup.policy": "compact"})])["keyed"].result(30)
    records = [Record(number, key=key, value=b"v") for number, key in enumerate((b"a", None, b"c", None))]
    rejected = send(cluster, "keyed", records)
    assert rejected.error_code == 87  # INVALID_RECORD
    assert [error.batch_index for error in rejected.record_errors] == [1, 3]
    assert send(cluster, "keyed", records[:1]).error_code == 0
    producer = Producer({"bootstrap.servers": cluster.kafka})
    errors: list[Any] = []
    producer.produce("keyed", b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors[0].name() == "_INVALID_RECORD" or errors[0].code() == 87


def test_times_at_the_edges_of_a_log_are_found(cluster: Cluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("edges", 1)])["edges"].result(30)

    def found(timestamp: int, topic: str = "edges") -> tuple[int, int]:
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])])
        ((partition,),) = [each.partitions for each in ask(cluster.kafka, LIST_OFFSETS, 7, request).topics]
        assert partition.error_code == 0
        return partition.offset, partition.timestamp

    earliest, latest, largest = -2, -1, -3
    assert [found(each) for each in (earliest, latest, largest, 0)] == [(0, -1), (0, -1), (-1, -1), (-1, -1)]
    start_ms = 1_700_000_000_000
    for first_ms in (start_ms, start_ms + 1_000):
        records = [Record(number, first_ms + 100 * number, value=b"v") for number in range(3)]
        assert send(cluster, "edges", records).error_code == 0
    assert found(0) == (0, start_ms)
    assert found(start_ms + 100) == (1, start_ms + 100)  # within a batch
    assert found(start_ms + 101) == (2, start_ms + 200)
    assert found(start_ms + 201) == (3, start_ms + 1_000)  # between batches
    assert found(start_ms + 1_200) == (5, start_ms + 1_200)  # the last record
    assert found(start_ms + 1_201) == (-1, -1)  # beyond the end
    assert found(largest) == (5, start_ms + 1_200)
    assert (found(earliest), found(latest)) == ((0, -1), (6, -1))
