"""Streams groups in the command line: a member is a client that sends the heartbeats of Kafka Streams (KIP-1071)."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.kafkawire.api.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.commands import error_of, penstock, values
from tests.testkit.raw_requests import ask

pytestmark = pytest.mark.e2e

OFFSET_COMMIT, HEARTBEAT = 8, 88
COMMIT_BY_NAME = 9
TIMEOUT_S = 60
SESSION_MS = 600_000  # the member sends no heartbeats while commands run
CHANGELOG = "counting-store-changelog"
CLIENT_ID = "thread"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("streams-groups") / "data") as started:
        yield started


def joined(cluster: Cluster, group: str, topic: str) -> Any:
    """The answer that gives a new member of the group its tasks. The topology has one subtopology with a store."""
    parts = [Subtopology("0", [topic], state_changelog_topics=[TopicInfo(CHANGELOG)])]
    join = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=60_000,
        topology=Topology(0, parts),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )
    answers: list[Any] = []

    def has_tasks() -> bool:
        epoch = answers[-1].member_epoch if answers else 0
        stay = StreamsGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch)
        answer = ask(cluster.kafka, HEARTBEAT, 1, stay if answers else join, CLIENT_ID)
        if answer.error_code == 0:  # not while the cluster's level rises
            answers.append(answer)
        return bool(answers and answers[-1].active_tasks)

    wait_until(has_tasks, TIMEOUT_S, "tasks of the member")
    return answers[-1]


def lengthen_session(cluster: Cluster, group: str) -> None:
    entry = ConfigEntry("streams.session.timeout.ms", str(SESSION_MS), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def test_a_streams_group_is_listed_described_and_moved(cluster: Cluster) -> None:
    group, topic = "counting", "words"
    penstock(cluster, "topic", "create", topic, "-p", "2")
    for partition in range(2):
        penstock(cluster, "topic", "produce", f"{topic}/{partition}", "--file", "/dev/stdin", text=b"x\n" * 5)
    member = joined(cluster, group, topic)
    lengthen_session(cluster, group)
    done = ask(
        cluster.kafka,
        OFFSET_COMMIT,
        COMMIT_BY_NAME,
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=member.member_epoch,
            member_id="m",
            topics=[OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 3)])],
        ),
        CLIENT_ID,
    )
    assert done.topics[0].partitions[0].error_code == 0

    listed = {"name": group, "type": "streams"}
    (row,) = values(cluster, "group", "list", "--type", "streams")
    assert row.items() >= listed.items()
    assert values(cluster, "group", "list", "--type", "share") == []
    described = values(cluster, "group", "describe", group)
    assert described.items() >= (listed | {"member_count": 1, "topology_epoch": 0, "assignor": "sticky"}).items()
    assert described["subtopologies"] == [
        {
            "subtopology": "0",
            "source_topics": [topic],
            "repartition_topics": [],
            "sink_topics": [],
            "changelog_topics": [CHANGELOG],
        }
    ]
    (only,) = described["members"]
    assert (only["member_id"], only["client_id"], only["process"]) == ("m", CLIENT_ID, "p")
    assert (only["epoch"], only["active"], only["standby"]) == (member.member_epoch, ["0/0-1"], [])
    (lag,) = values(cluster, "group", "lag", group)
    assert (lag["topic"], lag["partition"], lag["lag"], lag["member"]) == (topic, 0, 2, f"{CLIENT_ID}@127.0.0.1")
    assert "stop them first" in error_of(cluster, "group", "reset", group, "--to", "earliest", "--yes")

    left = StreamsGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=-1)
    assert ask(cluster.kafka, HEARTBEAT, 1, left, CLIENT_ID).error_code == 0
    penstock(cluster, "group", "reset", group, "--to", "earliest", "--topic", topic, "--yes")
    assert [each["lag"] for each in values(cluster, "group", "lag", group)] == [5, 5]
    penstock(cluster, "group", "delete", group, "--yes")
    assert values(cluster, "group", "list", "--type", "streams") == []
