"""Other administration APIs: quotas, log directories, resources, and features that Penstock does not have."""

from typing import Any

import pytest

from penstock.contracts.commands import AlterClientQuotas, Done, QuotaChange, QuotaPart, Rejected
from penstock.contracts.queries.topics import ValidateView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import API_TABLE
from penstock.kafkawire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from penstock.kafkawire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.kafkawire.api.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from penstock.kafkawire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.kafkawire.api.list_config_resources import ListConfigResourcesRequest
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, gateway_presence, new_client, new_world
from tests.unit.gateway.gateway_wire import ask
from tests.unit.gateway.telemetry.gateway_telemetry import subscribe

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS = 29, 30, 31, 34, 35
DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_SCRAM, LIST_RESOURCES = 48, 49, 50, 74


def versions(key: int) -> Any:
    api = API_TABLE[key]
    return pytest.mark.parametrize("version", range(api.min_version, api.max_version + 1))


@pytest.fixture
def world() -> World:
    world = new_world(share_groups=False)
    world.sequencer.add_topic("t", 3)
    world.sequencer.add_topic("u", 1)
    return world


def sizes(response: Any) -> dict[str, dict[int, int]]:
    (result,) = response.results
    assert (result.error_code, result.log_dir) == (0, "penstock")
    return {
        topic.name: {each.partition_index: each.partition_size for each in topic.partitions} for topic in result.topics
    }


@versions(DESCRIBE_LOG_DIRS)
async def test_all_logs_are_listed_with_their_bytes(world: World, version: int) -> None:
    response = await ask(world, DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(None))
    assert sizes(response) == {"t": {0: 100, 1: 200, 2: 300}, "u": {0: 100}}


async def test_only_existing_logs_of_a_request_are_listed(world: World) -> None:
    asked = [
        DescribableLogDirTopic("t", [2, 7, -1, 2]),
        DescribableLogDirTopic("gone", [0]),
        DescribableLogDirTopic("a/b"),
    ]
    assert sizes(await ask(world, DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(asked))) == {"t": {2: 300}}


async def test_for_a_client_one_gateway_reports_each_byte(world: World) -> None:
    reported = []
    for client_id in [f"c{number}" for number in range(40)]:
        world.directory.put(gateway_presence("g2", PLAINTEXT=("10.0.0.2", 9092)))
        reported.append(
            bool(sizes(await ask(world, DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(None), new_client(client_id))))
        )
    assert 5 < sum(reported) < 35


async def test_without_sequencers_a_request_for_logs_has_a_retriable_error(world: World) -> None:
    world.sequencer.is_down = True
    response = await ask(world, DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(None))
    assert response.error_code == response.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT


@versions(ALTER_LOG_DIRS)
async def test_no_partition_moves_to_an_unknown_directory(world: World, version: int) -> None:
    def asked(path: str) -> AlterReplicaLogDir:
        return AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("t", [0, 9]), AlterReplicaLogDirTopic("gone", [0])])

    request = AlterReplicaLogDirsRequest([asked("/elsewhere"), asked("penstock")])
    response = await ask(world, ALTER_LOG_DIRS, version, request)
    errors = [[each.error_code for each in topic.partitions] for topic in response.results]
    no_dir, unknown = ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [[no_dir, no_dir], [no_dir], [0, unknown], [unknown]]


async def test_topics_brokers_and_subscriptions_are_resources_with_configurations(world: World) -> None:
    def found(response: Any) -> set[tuple[str, int]]:
        assert response.error_code == 0
        return {(each.resource_name, each.resource_type) for each in response.config_resources}

    broker = (str(world.gateway.nodes["PLAINTEXT"].node_id), 4)
    topics = {("t", 2), ("u", 2)}
    assert found(await ask(world, LIST_RESOURCES, 1, ListConfigResourcesRequest())) == {broker, *topics}
    assert found(await ask(world, LIST_RESOURCES, 1, ListConfigResourcesRequest([2]))) == topics
    assert found(await ask(world, LIST_RESOURCES, 1, ListConfigResourcesRequest([4]))) == {broker}
    assert found(await ask(world, LIST_RESOURCES, 0, ListConfigResourcesRequest())) == set()
    await subscribe(world, "metrics-1", metrics="*")
    assert found(await ask(world, LIST_RESOURCES, 0, ListConfigResourcesRequest())) == {("metrics-1", 16)}
    assert found(await ask(world, LIST_RESOURCES, 1, ListConfigResourcesRequest([16]))) == {("metrics-1", 16)}
    assert found(await ask(world, LIST_RESOURCES, 1, ListConfigResourcesRequest([2, 8]))) == topics, "no loggers exist"
    rejected = await ask(world, LIST_RESOURCES, 1, ListConfigResourcesRequest([2, 1]))
    assert rejected.error_code == ErrorCode.UNSUPPORTED_VERSION


def with_quotas(world: World) -> None:
    world.sequencer.set_quota("producer_byte_rate", "1", user="alice")
    world.sequencer.set_quota("producer_byte_rate", "2", user=None)
    world.sequencer.set_quota("producer_byte_rate", "3", client_id="c", user="alice")
    world.sequencer.set_quota("request_percentage", "12.5", client_id="c")
    world.sequencer.set_quota("connection_creation_rate", "9", ip=None)


@pytest.mark.parametrize(
    ("components", "strict", "values"),
    [
        ([], False, {1, 2, 3, 12.5, 9}),
        ([], True, set()),
        ([("user", 0, "alice")], False, {1, 3}),
        ([("user", 0, "alice")], True, {1}),
        ([("user", 1, None)], False, {2}),
        ([("user", 2, None)], False, {1, 2, 3}),
        ([("user", 2, None)], True, {1, 2}),
        ([("user", 0, "alice"), ("client-id", 2, None)], True, {3}),
        ([("client-id", 0, "c")], False, {3, 12.5}),
        ([("ip", 1, None)], False, {9}),
        ([("user", 0, "absent")], False, set()),
    ],
)
@versions(DESCRIBE_QUOTAS)
async def test_the_quotas_that_a_filter_matches_are_described(
    world: World, version: int, components: list[tuple[str, int, str | None]], strict: bool, values: set[float]
) -> None:
    with_quotas(world)
    request = DescribeClientQuotasRequest([ComponentData(*each) for each in components], strict)
    response = await ask(world, DESCRIBE_QUOTAS, version, request)
    assert (response.error_code, response.error_message) == (0, "")
    assert {value.value for entry in response.entries for value in entry.values} == values


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, "a"), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "a"), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_an_invalid_filter_is_rejected(world: World, components: Any, error: ErrorCode) -> None:
    request = DescribeClientQuotasRequest([ComponentData(*each) for each in components])
    response = await ask(world, DESCRIBE_QUOTAS, 1, request)
    assert (response.error_code, response.entries) == (error, None)
    assert response.error_message


async def test_without_sequencers_a_request_for_quotas_has_a_retriable_error(world: World) -> None:
    world.sequencer.is_down = True
    response = await ask(world, DESCRIBE_QUOTAS, 1, DescribeClientQuotasRequest())
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT


def entry(entity: dict[str, str | None], **values: float | None) -> EntryData:
    parts = [EntityData(kind, name) for kind, name in entity.items()]
    return EntryData(parts, [OpData(key, value or 0.0, value is None) for key, value in values.items()])


@versions(ALTER_QUOTAS)
async def test_each_entity_is_altered_or_rejected_on_its_own(world: World, version: int) -> None:
    world.sequencer.on_command = lambda command: Done()
    response = await ask(
        world,
        ALTER_QUOTAS,
        version,
        AlterClientQuotasRequest(
            [
                entry({"user": "a", "client-id": None}, producer_byte_rate=1000.0, request_percentage=12.5),
                entry({"user": "b"}, consumer_byte_rate=None),
                entry({"user": "c"}, consumer_byte_rate=0.5),
                entry({"group": "d"}, consumer_byte_rate=1.0),
                entry({"user": ""}, consumer_byte_rate=1.0),
                entry({"user": "e"}, no_such_rate=1.0),
                entry({"user": "f"}, consumer_byte_rate=float("inf")),
            ]
        ),
    )
    rejected = ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in response.entries] == [0, 0, *[rejected] * 5]
    assert all(each.error_message for each in response.entries[2:])
    assert "no_such_rate" in response.entries[5].error_message
    sent = [command for commands in world.sequencer.commands for command in commands]
    assert [(each.entity, each.changes) for each in sent if isinstance(each, AlterClientQuotas)] == [
        (
            [QuotaPart("client-id", None), QuotaPart("user", "a")],
            [QuotaChange("producer_byte_rate", "1000"), QuotaChange("request_percentage", "12.5")],
        ),
        ([QuotaPart("user", "b")], [QuotaChange("consumer_byte_rate", None)]),
    ]


async def test_an_entity_that_occurs_twice_is_refused_once(world: World) -> None:
    request = AlterClientQuotasRequest([entry({"user": "a"}, producer_byte_rate=1.0)] * 2)
    response = await ask(world, ALTER_QUOTAS, 1, request)
    assert [each.error_code for each in response.entries] == [ErrorCode.INVALID_REQUEST]
    assert world.sequencer.commands == []


async def test_after_an_unknown_change_through_another_gateway_the_command_is_tried_again(world: World) -> None:
    answers = [Rejected(Rejection.STALE, "changed since"), Done()]
    world.sequencer.on_command = lambda command: answers.pop(0)
    request = AlterClientQuotasRequest([entry({"user": "a"}, producer_byte_rate=1.0)])
    assert (await ask(world, ALTER_QUOTAS, 1, request)).entries[0].error_code == 0
    assert answers == []


async def test_altered_quotas_are_in_force_here_at_once(world: World) -> None:
    world.sequencer.on_command = lambda command: Done()
    world.sequencer.set_quota("producer_byte_rate", "5", user="a")
    await ask(world, ALTER_QUOTAS, 1, AlterClientQuotasRequest([entry({"user": "a"}, producer_byte_rate=5.0)]))
    meter = world.gateway.quotas.meter("producer_byte_rate", "a", "any")
    assert meter is not None
    assert meter.limit == 5


async def test_quotas_that_some_sequencers_do_not_know_are_refused_at_once(world: World) -> None:
    world.sequencer.seen_level = 2
    request = AlterClientQuotasRequest([entry({"user": "a"}, producer_byte_rate=1.0)])
    assert (await ask(world, ALTER_QUOTAS, 1, request)).entries[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert world.sequencer.commands == []


async def test_quotas_that_are_only_validated_are_not_altered(world: World) -> None:
    world.sequencer.views["validate"] = lambda query: ValidateView(1, [Done()] * len(query.commands))
    request = AlterClientQuotasRequest([entry({"user": "a"}, producer_byte_rate=1.0)], validate_only=True)
    assert (await ask(world, ALTER_QUOTAS, 1, request)).entries[0].error_code == 0
    assert world.sequencer.commands == []
