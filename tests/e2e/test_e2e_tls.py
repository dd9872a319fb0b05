"""Stock clients over TLS: produce and consume, client certificates, and the end of the gateway."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, secured_gateway
from tests.testkit.servers.certificates import CLIENT, Authority, tls_settings

pytestmark = pytest.mark.e2e

TIMEOUT_S = 120
HANDSHAKES = "penstock_gateway_tls_handshakes_total"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("tls") / "data", "--flush-ms", "20") as started:
        yield started


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, authority: Authority) -> Iterator[SecuredGateway]:
    settings = tls_settings(
        authority.issue("server"),
        ssl_client_auth="required",
        ssl_truststore_certificates=authority.certificate,
        ssl_principal_mapping_rules="RULE:^CN=([^,]*).*$/$1/",
    )
    with secured_gateway(cluster, "secured", "SSL", **settings) as started:
        yield started


@pytest.fixture(scope="module")
def settings(gateway: SecuredGateway, authority: Authority) -> dict[str, object]:
    alice = authority.issue("alice", "CN=alice,OU=Payments", usage=CLIENT)
    return {
        "bootstrap.servers": gateway.addresses["SSL"],
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(alice.certificate),
        "ssl.key.location": str(alice.key),
    }


def create_topic(settings: dict[str, object], topic: str, partitions: int = 1) -> None:
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(TIMEOUT_S)


def read(settings: dict[str, object], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**settings, "group.id": topic, "enable.auto.commit": False})
    found: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def has_all() -> bool:
            for message in consumer.consume(1_000, 1.0):
                assert message.error() is None
                found.append(message.value())
            return len(found) >= count

        wait_until(has_all, TIMEOUT_S, f"{count} records")
    finally:
        consumer.close()
    return found


def test_a_client_gets_back_what_it_produced(settings: dict[str, object]) -> None:
    """Large batches and answers, so that each takes many records of TLS."""
    create_topic(settings, "large")
    values = [b"%d" % number * 30_000 for number in range(300)]
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({**settings, "batch.size": 1_000_000, "linger.ms": 20, "message.max.bytes": 900_000})
    for value in values:
        producer.produce("large", value, partition=0, on_delivery=note)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures
    assert read(settings, "large", len(values)) == values


def test_a_client_without_a_certificate_is_rejected(gateway: SecuredGateway, settings: dict[str, object]) -> None:
    errors: list[KafkaError] = []
    without = {name: value for name, value in settings.items() if "certificate" not in name and "key" not in name}
    producer = Producer({**without, "error_cb": errors.append})
    wait_until(lambda: producer.poll(0.1) or errors, TIMEOUT_S, "an error of the client")
    assert "alert certificate required" in errors[0].str()
    assert "peer did not return a certificate" in gateway.log()


def test_a_gateway_with_tls_stops_cleanly(gateway: SecuredGateway) -> None:
    assert gateway.metric(HANDSHAKES, outcome="completed") > 5
    assert gateway.stop() == 0
    assert "Traceback" not in gateway.log()
