"""Authorized operations: a request for them lists all operations, as in a Kafka without an authorizer."""

import pytest

from penstock.contracts.queries.groups import DescribeGroupsView, GroupView
from penstock.kafkawire.api.describe_cluster import DescribeClusterRequest
from penstock.kafkawire.api.describe_groups import DescribeGroupsRequest
from penstock.kafkawire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

METADATA, DESCRIBE_GROUPS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 3, 15, 60, 75
# The operations in org.apache.kafka.security.authorizer.AclEntry of Kafka 4.3.
TOPIC, GROUP, CLUSTER = 3576, 3400, 8096
NOT_ASKED = -2147483648


@pytest.fixture
def world() -> World:
    world = new_world(auto_create_topics=False)
    world.sequencer.add_topic("t", 2)
    group = GroupView("g", "Empty", "consumer", "", [])
    world.sequencer.views["describe_groups"] = lambda query: DescribeGroupsView(1, [group])
    return world


@pytest.mark.parametrize("asked", [True, False])
async def test_metadata_lists_operations_of_topics_and_of_the_cluster(world: World, asked: bool) -> None:
    topics = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="gone")]
    request = MetadataRequest(
        topics, include_cluster_authorized_operations=asked, include_topic_authorized_operations=asked
    )
    answer = await ask(world, METADATA, 10, request)
    there, gone = answer.topics
    assert there.topic_authorized_operations == (TOPIC if asked else NOT_ASKED)
    assert gone.topic_authorized_operations == (TOPIC if asked else NOT_ASKED)
    assert answer.cluster_authorized_operations == (CLUSTER if asked else NOT_ASKED)


@pytest.mark.parametrize("asked", [True, False])
async def test_a_description_of_the_cluster_lists_operations(world: World, asked: bool) -> None:
    answer = await ask(world, DESCRIBE_CLUSTER, 2, DescribeClusterRequest(asked))
    assert answer.cluster_authorized_operations == (CLUSTER if asked else NOT_ASKED)


@pytest.mark.parametrize("asked", [True, False])
async def test_a_description_of_groups_lists_operations(world: World, asked: bool) -> None:
    (group,) = (await ask(world, DESCRIBE_GROUPS, 5, DescribeGroupsRequest(["g"], asked))).groups
    assert group.authorized_operations == (GROUP if asked else NOT_ASKED)


async def test_a_description_of_partitions_always_lists_operations_as_in_kafka(world: World) -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest("t"), TopicRequest("gone")])
    answer = await ask(world, DESCRIBE_TOPIC_PARTITIONS, 0, request)
    listed = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
    assert listed == {"t": TOPIC, "gone": TOPIC}


async def test_a_request_for_fenced_brokers_lists_none(world: World) -> None:
    answer = await ask(world, DESCRIBE_CLUSTER, 2, DescribeClusterRequest(include_fenced_brokers=True))
    assert [broker.is_fenced for broker in answer.brokers] == [False]
    assert answer.endpoint_type == 1
