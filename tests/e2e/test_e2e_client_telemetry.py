"""Telemetry of stock clients (KIP-714): subscriptions by Kafka's tool, pushes, and Prometheus metrics."""

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.kafkawire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance import provision
from tests.conformance.driver import Driver
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.metrics import samples, total
from tests.testkit.raw_requests import ask

pytestmark = pytest.mark.e2e

INCREMENTAL_ALTER_CONFIGS, CLIENT_METRICS, SET = 44, 16, 0
ASSIGNED = "penstock_client_consumer_coordinator_assigned_partitions"
TIMEOUT_S = 60.0
TOOL_TIMEOUT_S = 180.0
# A client of librdkafka with its usual log, which sends a record and ends.
QUIET_CLIENT = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("quiet", b"hello")
assert producer.flush(60) == 0
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path / "data", "--flush-ms", "20") as started:
        yield started


def subscribe(cluster: Cluster, name: str, **configs: str) -> None:
    """Set configurations of a subscription, as soon as the cluster's level allows them."""
    changes = [AlterableConfig(each.replace("_", "."), SET, value) for each, value in configs.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(CLIENT_METRICS, name, changes)])
    wait_until(
        lambda: not ask(cluster.kafka, INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code,
        TIMEOUT_S,
        "the subscription to be accepted",
    )


def metrics_of(cluster: Cluster, client_id: str) -> dict[str, float]:
    """The metrics that clients with this id have pushed."""
    with urllib.request.urlopen(f"http://{cluster.http}/metrics", timeout=TIMEOUT_S) as answer:
        found = samples(answer.read().decode())
    wanted = f'client_id="{client_id}"'
    return {name: value for name, value in found.items() if name.startswith("penstock_client_") and wanted in name}


def test_without_a_subscription_librdkafka_logs_nothing(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUIET_CLIENT, cluster.kafka], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_metrics_of_librdkafka_are_shown(cluster: Cluster) -> None:
    subscribe(cluster, "prepared", interval_ms="1000")
    producer = Producer({"bootstrap.servers": cluster.kafka, "client.id": "app-1", "log_level": 2})

    def has_latency() -> dict[str, float]:
        producer.produce("t", b"value")
        producer.flush(TIMEOUT_S)
        shown = metrics_of(cluster, "app-1")
        return shown if total(shown, "penstock_client_producer_request_latency_avg") > 0 else {}

    assert has_latency() == {}
    subscribe(cluster, "producers", metrics="org.apache.kafka.producer.", interval_ms="500", match="client_id=app-.*")
    shown = wait_until(has_latency, TIMEOUT_S, "the metrics of a running client")
    assert len({name.partition('client_instance_id="')[2].partition('"')[0] for name in shown}) == 1


@pytest.fixture
def java() -> list[str]:
    """The command of Java, with all jars of the conformance tests."""
    try:
        return provision.java_command()
    except provision.Missing as why:
        pytest.skip(f"no Java client: {why}")


def test_kafkas_tool_subscribes_to_the_metrics_of_a_java_consumer(
    cluster: Cluster, java: list[str], tmp_path: Path
) -> None:
    def tool(*arguments: str) -> str:
        command = [*java, "org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server", cluster.kafka]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
        return done.stdout

    selected = ["--interval", "500", "--match", "client_software_name=apache-kafka-java"]
    tool("--alter", "--name", "java", "--metrics", "org.apache.kafka.consumer.", *selected)
    assert tool("--list").split() == ["java"]
    assert "metrics=org.apache.kafka.consumer." in tool("--describe", "--name", "java")
    driver = Driver([*java, "JavaClient"], cluster.kafka, tmp_path / "java.log", {})
    with contextlib.closing(driver):
        driver.ask("create_topic", topic="t", partitions=1, configs={})
        driver.ask("join", group="readers", topics=["t"])

        def has_its_partition() -> bool:
            driver.ask("poll", for_ms=500)
            return total(metrics_of(cluster, "consumer-readers-1"), ASSIGNED) == 1

        wait_until(has_its_partition, TIMEOUT_S, "the metrics of the consumer")
    tool("--delete", "--name", "java")
    assert tool("--list").split() == []
