"""Hidden topics: questions by name are refused, lists leave them out, and only CREATE creates."""

import pytest

from penstock.contracts.acls import AclBinding, AclOperation, ResourceType
from penstock.contracts.commands import CreateTopic, Done, Outcome, TopicCreated
from penstock.kafkawire.api import (
    create_topics as creating,
    delete_topics as deleting,
    describe_cluster,
    describe_configs,
    describe_topic_partitions as paging,
    find_coordinator,
    list_offsets,
)
from penstock.kafkawire.api.api_versions import ApiVersionsRequest
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataRequestTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import CloseConnection
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask
from tests.unit.gateway.security.security_fakes import FakeBindings, binding

TOPIC, CLUSTER, GROUP = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP
DESCRIBE, CREATE, DELETE = AclOperation.DESCRIBE, AclOperation.CREATE, AclOperation.DELETE
ANONYMOUS = "User:ANONYMOUS"
LIST_OFFSETS, METADATA, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS = 2, 3, 10, 19, 20, 32
DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 60, 75
REFUSED, UNKNOWN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def allow(operation: AclOperation, kind: ResourceType, name: str, *, prefixed: bool = False) -> AclBinding:
    return binding(operation, kind, name, principal=ANONYMOUS, prefixed=prefixed)


@pytest.fixture
def bindings() -> FakeBindings:
    return FakeBindings([allow(DESCRIBE, TOPIC, "mine", prefixed=True)])


@pytest.fixture
def world(bindings: FakeBindings) -> World:
    world = new_world(bindings=bindings)
    for name in ("mine", "mine2", "theirs"):
        world.sequencer.add_topic(name, 2)
    world.sequencer.on_command = lambda command: accepted(world, command)
    return world


def accepted(world: World, command: object) -> Outcome:
    if isinstance(command, CreateTopic):
        world.sequencer.add_topic(command.name)
        return TopicCreated(command.topic_id, 1, {})
    return Done()


async def metadata(world: World, *names: str, version: int = 12, **fields: bool) -> dict[str | None, int]:
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], **fields)
    return {topic.name: topic.error_code for topic in (await ask(world, METADATA, version, request)).topics}


@pytest.mark.parametrize("version", [0, 1, 12])
async def test_a_list_of_all_topics_leaves_hidden_ones_out(world: World, version: int) -> None:
    request = MetadataRequest([] if version == 0 else None)
    answer = await ask(world, METADATA, version, request)
    assert [topic.name for topic in answer.topics] == ["mine", "mine2"]


async def test_a_question_by_name_is_refused_whether_the_topic_exists_or_not(world: World) -> None:
    answer = await metadata(world, "theirs", "theirs.gone", "mine", allow_auto_topic_creation=False)
    assert answer == {"mine": 0, "theirs": REFUSED, "theirs.gone": REFUSED}


async def test_a_question_by_id_is_refused_without_the_name(world: World) -> None:
    ids = [world.sequencer.topics[name].topic_id for name in ("mine", "theirs")] + [b"x" * 16]
    request = MetadataRequest([MetadataRequestTopic(topic_id=each, name=None) for each in ids])
    answer = {each.topic_id: (each.name, each.error_code) for each in (await ask(world, METADATA, 12, request)).topics}
    assert answer == {ids[0]: ("mine", 0), ids[1]: (None, REFUSED), ids[2]: (None, ErrorCode.UNKNOWN_TOPIC_ID)}


async def test_only_a_client_with_create_creates_a_topic_by_its_question(world: World, bindings: FakeBindings) -> None:
    assert await metadata(world, "mine.new") == {"mine.new": REFUSED}
    assert "mine.new" not in world.sequencer.topics
    assert await metadata(world, "mine.new", allow_auto_topic_creation=False) == {"mine.new": UNKNOWN}
    bindings.set(*bindings.bindings, allow(CREATE, TOPIC, "mine.new"))
    assert await metadata(world, "mine.new", "mine.newer") == {"mine.new": 0, "mine.newer": REFUSED}
    bindings.set(*bindings.bindings, allow(CREATE, CLUSTER, "kafka-cluster"))
    assert await metadata(world, "mine.newer") == {"mine.newer": 0}


async def test_a_question_about_existing_topics_reports_no_missing_create(world: World) -> None:
    await metadata(world, "mine")
    labels = {"api": "Metadata", "operation": "CREATE", "resource_type": "TOPIC", "enforced": "true"}
    assert world.metric("penstock_gateway_access_denied_total", **labels) == 0
    await metadata(world, "mine.new")
    assert world.metric("penstock_gateway_access_denied_total", **labels) == 1


async def test_authorized_operations_are_those_of_the_client(world: World, bindings: FakeBindings) -> None:
    bindings.set(*bindings.bindings, allow(DELETE, TOPIC, "mine"))
    request = MetadataRequest(
        [MetadataRequestTopic(name="mine")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = await ask(world, METADATA, 10, request)
    assert answer.topics[0].topic_authorized_operations == 1 << DESCRIBE | 1 << DELETE
    assert answer.cluster_authorized_operations == 0
    bindings.set(allow(AclOperation.ALTER, CLUSTER, "kafka-cluster"))
    described = await ask(world, DESCRIBE_CLUSTER, 0, describe_cluster.DescribeClusterRequest(True))
    assert described.cluster_authorized_operations == 1 << DESCRIBE | 1 << AclOperation.ALTER


async def test_pages_of_all_topics_show_neither_hidden_topics_nor_their_names_in_cursors(world: World) -> None:
    first = paging.DescribeTopicPartitionsRequest([], 3)
    answer = await ask(world, DESCRIBE_TOPIC_PARTITIONS, 0, first)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("mine", 2), ("mine2", 1)]
    assert answer.topics[0].topic_authorized_operations == 1 << DESCRIBE
    rest = paging.DescribeTopicPartitionsRequest([], 3, answer.next_cursor)
    last = await ask(world, DESCRIBE_TOPIC_PARTITIONS, 0, rest)
    assert [(topic.name, len(topic.partitions)) for topic in last.topics] == [("mine2", 1)]
    assert last.next_cursor is None


async def test_a_description_by_name_refuses_hidden_topics(world: World) -> None:
    request = paging.DescribeTopicPartitionsRequest([paging.TopicRequest("theirs"), paging.TopicRequest("mine")])
    answer = await ask(world, DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert {topic.name: topic.error_code for topic in answer.topics} == {"mine": 0, "theirs": REFUSED}


async def test_new_topics_need_create_and_their_configurations_describe_configs(
    world: World, bindings: FakeBindings
) -> None:
    bindings.set(allow(CREATE, TOPIC, "new", prefixed=True))
    topics = [creating.CreatableTopic(name, 1, 1) for name in ("new", "other")]
    answer = await ask(world, CREATE_TOPICS, 7, creating.CreateTopicsRequest(topics))
    new, other = answer.topics
    assert (new.error_code, new.topic_config_error_code, new.num_partitions, new.configs) == (0, REFUSED, -1, [])
    assert (other.name, other.error_code) == ("other", REFUSED)
    assert "other" not in world.sequencer.topics


async def test_a_deletion_tells_only_clients_with_describe_whether_a_topic_exists(
    world: World, bindings: FakeBindings
) -> None:
    bindings.set(*bindings.bindings, allow(DELETE, TOPIC, "mine2"))
    names = ["mine", "mine.gone", "mine2", "theirs", "theirs.gone"]
    request = deleting.DeleteTopicsRequest([deleting.DeleteTopicState(name) for name in names])
    answer = {each.name: each.error_code for each in (await ask(world, DELETE_TOPICS, 6, request)).responses}
    assert answer == {"mine": REFUSED, "mine.gone": UNKNOWN, "mine2": 0, "theirs": REFUSED, "theirs.gone": REFUSED}


async def test_a_refused_deletion_by_id_shows_the_name_only_with_describe(world: World) -> None:
    ids = [world.sequencer.topics[name].topic_id for name in ("mine", "theirs")]
    request = deleting.DeleteTopicsRequest([deleting.DeleteTopicState(None, each) for each in (*ids, b"x" * 16)])
    answer = [(each.name, each.error_code) for each in (await ask(world, DELETE_TOPICS, 6, request)).responses]
    assert answer == [("mine", REFUSED), (None, REFUSED), (None, ErrorCode.UNKNOWN_TOPIC_ID)]


async def test_offsets_of_hidden_topics_are_refused_without_a_query(world: World) -> None:
    asked = [list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0)]) for name in ("theirs", "gone")]
    answer = await ask(world, LIST_OFFSETS, 5, list_offsets.ListOffsetsRequest(topics=asked))
    assert [each.error_code for topic in answer.topics for each in topic.partitions] == [REFUSED, REFUSED]
    assert world.sequencer.queries == []


async def test_coordinators_are_found_for_groups_and_transactions_that_may_be_described(
    world: World, bindings: FakeBindings
) -> None:
    bindings.set(allow(DESCRIBE, GROUP, "g"))
    request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
    answer = (await ask(world, FIND_COORDINATOR, 4, request)).coordinators
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert {each.key: each.error_code for each in answer} == {"g": 0, "h": refused}
    one = await ask(world, FIND_COORDINATOR, 3, find_coordinator.FindCoordinatorRequest("x", 1))
    assert one.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_many_coordinators_are_checked_each_and_answered_in_order(world: World, bindings: FakeBindings) -> None:
    bindings.set(allow(DESCRIBE, GROUP, "g", prefixed=True))
    keys = [f"{first}{number}" for number in range(2_000) for first in "gh"]
    request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
    answer = (await ask(world, FIND_COORDINATOR, 4, request)).coordinators
    assert [each.key for each in answer if not each.error_code] == keys[::2]
    assert [each.key for each in answer if each.error_code] == keys[1::2]


async def test_configurations_are_refused_by_type(world: World) -> None:
    resources = [
        describe_configs.DescribeConfigsResource(kind, name, None) for kind, name in [(2, "mine"), (4, "1"), (32, "g")]
    ]
    answer = await ask(world, DESCRIBE_CONFIGS, 4, describe_configs.DescribeConfigsRequest(resources))
    assert [(each.resource_type, each.error_code) for each in answer.results] == [
        (2, REFUSED),
        (4, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (32, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]


async def test_a_client_learns_versions_but_nothing_else_while_bindings_are_not_known(
    world: World, bindings: FakeBindings
) -> None:
    bindings.is_known = False
    assert (await ask(world, 18, 3, ApiVersionsRequest())).error_code == 0
    with pytest.raises(CloseConnection, match="not known yet"):
        await metadata(world, "mine")
