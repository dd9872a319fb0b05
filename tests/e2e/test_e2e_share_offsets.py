"""The start offsets of share groups: the command line moves and deletes them, and a group may begin at a time."""

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.contracts.levels import SHARE_GROUPS_LEVEL, SHARE_STARTS_LEVEL
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until
from tests.testkit.clusters.commands import TIMEOUT_S, error_of, penstock, run, values

pytestmark = pytest.mark.e2e

TOPIC = "jobs"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("share-offsets") / "data"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_SHARE_GROUPS", "true")
        with running(data) as started:
            wait_for_level(started, SHARE_GROUPS_LEVEL)
            penstock(started, "topic", "create", TOPIC, "-p", "2")
            for partition in range(2):
                penstock(started, "topic", "produce", f"{TOPIC}/{partition}", "--file", "/dev/stdin", text=b"x\n" * 10)
            yield started


def begun(cluster: Cluster, name: str) -> ShareConsumer:
    """A member of a new share group, which has begun both partitions at their ends."""
    consumer = ShareConsumer({"bootstrap.servers": cluster.kafka, "group.id": name})
    consumer.subscribe([TOPIC])

    def has_begun() -> bool:
        consumer.poll(0.2)
        found = run("group", "lag", name, "-o", "json", "--bootstrap", cluster.kafka)
        return not found.returncode and len(json.loads(found.stdout)) == 2  # an error before the member has joined

    wait_until(has_begun, TIMEOUT_S, "both partitions")
    return consumer


def leave(cluster: Cluster, name: str, member: ShareConsumer) -> None:
    """Close the only member, and return when it has left. A closing client waits for that for 5 s only."""
    member.close()

    def is_empty() -> bool:
        return bool(values(cluster, "group", "describe", name)["state"] == "Empty")

    wait_until(is_empty, TIMEOUT_S, f"the member of {name} to leave")


def starts(cluster: Cluster, name: str) -> list[int]:
    return [each["committed_offset"] for each in values(cluster, "group", "lag", name)]


def test_a_share_group_is_moved_with_a_preview_and_without_members(cluster: Cluster) -> None:
    member = begun(cluster, "moved")
    reset = ("group", "reset", "moved", "--to", "4", "--topic", f"{TOPIC}/1")
    busy = error_of(cluster, *reset, "--yes")
    assert busy == "group 'moved' is Stable with 1 members: stop them first"
    leave(cluster, "moved", member)
    expected = [{"topic": TOPIC, "partition": 1, "before_offset": 10, "after_offset": 4, "change": -6}]
    assert values(cluster, *reset, "--dry-run") == expected
    assert starts(cluster, "moved") == [10, 10]
    assert error_of(cluster, *reset) == "Set 1 offsets of moved? Confirm it with --yes"
    assert values(cluster, *reset, "--yes") == expected
    assert starts(cluster, "moved") == [10, 4]
    penstock(cluster, "group", "reset", "moved", "--to=-3", "--yes")  # from the present positions
    penstock(cluster, "group", "seek", "moved", f"{TOPIC}/0@2", "--yes")
    assert starts(cluster, "moved") == [2, 1]

    again = ShareConsumer({"bootstrap.servers": cluster.kafka, "group.id": "moved"})
    again.subscribe([TOPIC])
    found: list[tuple[int | None, int | None]] = []

    def has_read_all() -> bool:
        found.extend((each.partition(), each.offset()) for each in again.poll(0.2))
        return len(found) >= 17

    wait_until(has_read_all, TIMEOUT_S, "the records from the new offsets on")
    assert sorted(found) == [(0, each) for each in range(2, 10)] + [(1, each) for each in range(1, 10)]
    again.close()


def test_a_share_group_and_a_group_of_consumers_copy_each_other(cluster: Cluster) -> None:
    leave(cluster, "copied", begun(cluster, "copied"))
    penstock(cluster, "group", "reset", "consumers", "--to", "7", "--topic", TOPIC, "--yes")
    assert starts(cluster, "copied") == [10, 10]
    penstock(cluster, "group", "seek", "copied", "--like", "consumers", "--yes")
    assert starts(cluster, "copied") == [7, 7]
    penstock(cluster, "group", "seek", "consumers-2", "--like", "copied", "--yes")
    assert values(cluster, "group", "describe", "consumers-2")["type"] == "classic"
    assert starts(cluster, "consumers-2") == [7, 7]


def test_the_offsets_of_a_share_group_and_the_group_are_deleted(cluster: Cluster) -> None:
    leave(cluster, "deleted", begun(cluster, "deleted"))
    assert error_of(cluster, "group", "delete", "deleted", "--topic", "none", "--yes") == (
        "group 'deleted' has no offsets in topic 'none'"
    )
    assert values(cluster, "group", "delete", "deleted", "--topic", TOPIC, "--yes") == [
        {"name": "deleted", "topic": TOPIC, "partitions": 2, "result": "deleted"}
    ]
    # A group without offsets and members does not exist.
    assert error_of(cluster, "group", "lag", "deleted").startswith("there is no group 'deleted'")
    leave(cluster, "deleted", begun(cluster, "deleted"))
    penstock(cluster, "group", "delete", "deleted", "--yes")
    assert values(cluster, "group", "list", "deleted") == []


def test_a_share_group_begins_at_the_first_record_of_the_last_hour(cluster: Cluster) -> None:
    wait_for_level(cluster, SHARE_STARTS_LEVEL)
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    admin.create_topics([NewTopic("aged", 1)])["aged"].result(TIMEOUT_S)
    entry = ConfigEntry("share.auto.offset.reset", "by_duration:PT1H", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "aged", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    now_ms = time.time_ns() // 1_000_000
    # One batch, so that only a search in its records finds the first of the last hour.
    producer = Producer({"bootstrap.servers": cluster.kafka, "linger.ms": 1_000})
    for age_ms in (3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2, 5 * HOUR_MS, 0):
        producer.produce("aged", b"%d" % age_ms, partition=0, timestamp=now_ms - age_ms)
    assert producer.flush(TIMEOUT_S) == 0

    consumer = ShareConsumer({"bootstrap.servers": cluster.kafka, "group.id": "aged"})
    consumer.subscribe(["aged"])
    found: list[int | None] = []

    def has_read_all() -> bool:
        found.extend(each.offset() for each in consumer.poll(0.2))
        return len(found) >= 3

    wait_until(has_read_all, TIMEOUT_S, "the records from the first of the last hour on")
    assert found == [2, 3, 4]
    consumer.close()
