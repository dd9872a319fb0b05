"""The Java client of Kafka 4.4 commits offsets with topic ids (KIP-848), and by names where it must."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.driver import Driver
from tests.conformance.provision import Missing, java_command
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.loads.transaction_load import wait_for_transactions
from tests.testkit.metrics import total

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

REQUESTS = "penstock_gateway_requests_total"
TOPIC_IDS = {"OffsetCommit": 10, "OffsetFetch": 10, "TxnOffsetCommit": 6}  # the first version with topic ids
VALUES = ["one", "two", "three"]
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("topic-ids") / "data", "--flush-ms", "20") as started:
        wait_for_transactions(started)
        yield started


@pytest.fixture
def java(cluster: Cluster, tmp_path: Path) -> Iterator[Driver]:
    try:
        command = [*java_command(), "JavaClient"]
    except Missing as error:
        pytest.skip(f"there is no Java client on this machine: {error}")
    driver = Driver(command, cluster.kafka, tmp_path / "java.log", {})
    yield driver
    driver.close()


def handled(cluster: Cluster, api: str, *, with_ids: bool) -> float:
    """The requests of an API since the start, with or without ids of topics."""
    versions = range(TOPIC_IDS[api], 20) if with_ids else range(TOPIC_IDS[api])
    found = cluster.metrics_of("agent-1")
    return sum(total(found, REQUESTS, api=api, version=str(version)) for version in versions)


def read_as_a_member(java: Driver, topic: str, protocol: str) -> None:
    """A member of a new group reads all values, commits them and leaves."""
    java.ask("create_topic", topic=topic, partitions=1, configs={})
    java.ask("produce", topic=topic, codec="none", values=VALUES)
    java.ask("join", group=f"group-of-{topic}", topics=[topic], protocol=protocol)
    read: list[str] = []

    def has_all() -> bool:
        read.extend(value for _, _, value in java.ask("poll", for_ms=1_000)["records"])
        return read == VALUES

    wait_until(has_all, TIMEOUT_S, "all values")
    java.ask("leave")
    assert java.ask("group_offsets", group=f"group-of-{topic}", topic=topic, partitions=1) == {"0": len(VALUES)}


def test_a_member_of_the_consumer_protocol_commits_by_topic_id(cluster: Cluster, java: Driver) -> None:
    before = {each: handled(cluster, each, with_ids=True) for each in ("OffsetCommit", "OffsetFetch")}
    read_as_a_member(java, "by-id", "consumer")
    for each, count in before.items():
        assert handled(cluster, each, with_ids=True) > count, each


def test_a_member_of_the_classic_protocol_commits_by_name(cluster: Cluster, java: Driver) -> None:
    with_ids, by_name = (handled(cluster, "OffsetCommit", with_ids=each) for each in (True, False))
    read_as_a_member(java, "by-name", "classic")
    assert handled(cluster, "OffsetCommit", with_ids=True) == with_ids
    assert handled(cluster, "OffsetCommit", with_ids=False) > by_name


def test_a_transaction_commits_by_topic_id(cluster: Cluster, java: Driver) -> None:
    """The producer asks for the ids of the topics that it commits, also if it does not write to them."""
    for topic in ("source", "target"):
        java.ask("create_topic", topic=topic, partitions=1, configs={})
    java.ask("produce", topic="source", codec="none", values=VALUES)
    with_ids, by_name = (handled(cluster, "TxnOffsetCommit", with_ids=each) for each in (True, False))
    java.ask("transform_start", source="source", target="target", group="movers", transactional_id="mover")
    wait_until(lambda: java.ask("transform_once", batch_max=10), TIMEOUT_S, "a transaction")
    assert handled(cluster, "TxnOffsetCommit", with_ids=True) > with_ids
    assert handled(cluster, "TxnOffsetCommit", with_ids=False) == by_name
    assert java.ask("group_offsets", group="movers", topic="source", partitions=1) == {"0": len(VALUES)}
