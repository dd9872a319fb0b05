"""compose.clusters.yaml: one project serves several virtual clusters, each at its listener, and each by itself."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.testkit.clusters.cluster import wait_until
from tests.testkit.clusters.compose import HEALTHY_TIMEOUT_S, POLL_S, Project, running_project
from tests.testkit.loads.ledger import QUIET
from tests.testkit.loads.steady_load import create_topic

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

FIRST, SECOND, LATER = "default", "orders", "sales"
TOPIC = "records"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def clusters() -> Iterator[Project]:
    with running_project(
        "penstock-clusters",
        "compose.yaml",
        "compose.clusters.yaml",
        PENSTOCK_CLUSTERS=f"{FIRST},{SECOND}",
        PENSTOCK_LISTENER_CLUSTERS=f"INTERNAL={FIRST},EXTERNAL={SECOND}",
    ) as started:
        yield started


def penstock_cluster(project: Project, *arguments: str) -> Any:
    """The output of `penstock cluster` in the container of administrators."""
    return json.loads(project.compose("run", "--rm", "admin", "cluster", *arguments, "-o", "json"))


def states(project: Project) -> dict[str, str]:
    """The state of each registered cluster, by name."""
    return {each["name"]: each["state"] for each in penstock_cluster(project, "list")}


def of_first(project: Project) -> str:
    """The listener of the first cluster, without the proxy, which leads to the second one."""
    return f"{project.one('gateway').address}:9092"


def produce(bootstrap: str, value: bytes) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]


def consume(bootstrap: str) -> bytes | None:
    """The first record of the topic, by a member of a group."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", **QUIET}
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    try:
        (message,) = consumer.consume(1, TIMEOUT_S)
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_the_first_start_creates_the_clusters(clusters: Project) -> None:
    assert states(clusters) == {FIRST: "active", SECOND: "active"}


def test_clients_of_a_listener_see_only_its_cluster(clusters: Project) -> None:
    addresses = {FIRST: of_first(clusters), SECOND: clusters.kafka}
    for name, bootstrap in addresses.items():
        create_topic(bootstrap, TOPIC, 1)
        create_topic(bootstrap, f"only-in-{name}", 1)
        produce(bootstrap, name.encode())
    for name, bootstrap in addresses.items():
        topics = AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=TIMEOUT_S).topics
        assert set(topics) == {TOPIC, f"only-in-{name}"}
        assert consume(bootstrap) == name.encode()


def test_a_cluster_that_is_created_later_is_served_until_it_is_deleted(clusters: Project) -> None:
    clusters.compose("run", "--rm", "admin", "cluster", "create", LATER)  # returns when a sequencer serves it

    def is_hosted() -> bool:
        hosted = clusters.one("sequencer").metrics()
        return any(f'cluster="{LATER}"' in name for name in hosted)

    assert is_hosted()
    clusters.compose("run", "--rm", "admin", "cluster", "delete", LATER, "--yes")
    assert states(clusters)[LATER] == "deleted"
    wait_until(lambda: not is_hosted(), HEALTHY_TIMEOUT_S, "the deleted cluster to be closed", POLL_S)
