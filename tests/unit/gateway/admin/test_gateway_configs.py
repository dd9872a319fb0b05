"""Configurations are described and altered: each resource has its own result, and each value has its source."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from penstock.contracts.commands import AlterConfigs, ConfigChange, ConfigOperation, Done, Outcome, Rejected
from penstock.contracts.configs.topics import CLUSTER_CONFIGS, TOPIC_CONFIGS
from penstock.contracts.queries.groups import GroupConfigsView
from penstock.contracts.queries.topics import ValidateView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import alter_configs
from penstock.kafkawire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.kafkawire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.handlers.admin.describe_configs import NAMES_MAX
from penstock_gateway.kafka.broker_view import node_of
from penstock_gateway.kafka.client import Client
from tests.unit.gateway.gateway_fakes import LISTENER, World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, REMOVE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND


async def described(
    world: World,
    *resources: DescribeConfigsResource,
    version: int = 4,
    client: Client | None = None,
    **options: bool,
) -> list[Any]:
    response = await ask(world, DESCRIBE_CONFIGS, version, DescribeConfigsRequest(list(resources), **options), client)
    return list(response.results)


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_configurations_are_described_with_their_source(version: int) -> None:
    world = new_world()
    world.sequencer.add_topic("t", 1, **{"max.message.bytes": "5000"})
    (result,) = await described(world, DescribeConfigsResource(TOPIC, "t", None), version=version)
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs.keys() == TOPIC_CONFIGS.keys()
    assert configs["max.message.bytes"] == ("5000", 1)
    assert configs["retention.ms"] == ("604800000", 5)
    assert all(config.synonyms == [] for config in result.configs)


async def test_synonyms_documentation_and_names_are_in_the_answer_on_request() -> None:
    world = new_world()
    world.sequencer.add_topic("t", 1, **{"max.message.bytes": "5000"})
    resource = DescribeConfigsResource(TOPIC, "t", ["max.message.bytes"])
    (result,) = await described(world, resource, include_synonyms=True, include_documentation=True)
    (config,) = result.configs
    default = TOPIC_CONFIGS["max.message.bytes"].default
    assert [(each.value, each.source) for each in config.synonyms] == [("5000", 1), (default, 5)]
    assert config.documentation and config.config_type == 3


def new_world_with_topic() -> World:
    world = new_world()
    world.sequencer.add_topic("t", 1)
    world.sequencer.views["group_configs"] = lambda query: GroupConfigsView(1, [{} for _ in query.group_ids])
    return world


async def test_a_repeated_resource_is_described_once() -> None:
    one, two = DescribeConfigsResource(TOPIC, "t"), DescribeConfigsResource(TOPIC, "t", ["max.message.bytes"])
    first, second = await described(new_world_with_topic(), *[one, two] * 1_000)
    assert (len(first.configs) > 1, [each.name for each in second.configs]) == (True, ["max.message.bytes"])


@pytest.mark.parametrize("kind", [GROUP, CLIENT_METRICS])
async def test_a_request_describes_a_limited_number_of_names_that_need_not_exist(kind: int) -> None:
    asked = [DescribeConfigsResource(kind, f"name-{number}", ["none"]) for number in range(NAMES_MAX + 1)]
    world = new_world_with_topic()
    assert {each.error_code for each in await described(world, *asked)} == {ErrorCode.INVALID_REQUEST}
    assert {each.error_code for each in await described(world, *asked[1:])} == {ErrorCode.NONE}


async def turns_during(work: Awaitable[Any]) -> int:
    """How often other tasks may run until the work is done."""
    doing = asyncio.ensure_future(work)
    turns = 0
    while not doing.done():
        turns += 1
        await asyncio.sleep(0)
    await doing
    return turns


@pytest.mark.parametrize("name", ["describe", "alter", "replace"])
async def test_other_requests_run_while_many_resources_are_described_or_altered(name: str) -> None:
    names = [f"name-{number}" for number in range(5_000)]
    key, request = {
        "describe": (
            DESCRIBE_CONFIGS,
            DescribeConfigsRequest([DescribeConfigsResource(BROKER, each) for each in names]),
        ),
        "alter": (
            INCREMENTAL_ALTER_CONFIGS,
            IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, each) for each in names]),
        ),
        "replace": (
            ALTER_CONFIGS,
            alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(BROKER, each) for each in names]),
        ),
    }[name]
    world = new_world_with_topic()
    assert await turns_during(world.handlers[key](world.gateway, new_client(), 1, request)) > 30


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (DescribeConfigsResource(TOPIC, "absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (DescribeConfigsResource(TOPIC, "a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (DescribeConfigsResource(BROKER, "12345"), ErrorCode.INVALID_REQUEST),
        (DescribeConfigsResource(8, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_resource_that_does_not_exist_is_rejected(resource: DescribeConfigsResource, error: int) -> None:
    (result,) = await described(new_world(), resource)
    assert (result.error_code, result.resource_name, result.configs) == (error, resource.resource_name, [])


@pytest.mark.parametrize(("listener", "other"), [("INTERNAL", "EXTERNAL"), ("EXTERNAL", "INTERNAL")])
async def test_a_broker_is_known_by_its_id_on_the_clients_listener(listener: str, other: str) -> None:
    world = new_world(nodes={"INTERNAL": node_of("::1", 9093, "z1"), "EXTERNAL": node_of("localhost", 9092, "z1")})
    client = new_client(listener=listener)
    address = {"INTERNAL": "INTERNAL://[::1]:9093", "EXTERNAL": "EXTERNAL://localhost:9092"}[listener]
    own, strange = (
        DescribeConfigsResource(BROKER, str(world.gateway.nodes[name].node_id)) for name in (listener, other)
    )
    (result,) = await described(world, own, client=client)
    assert {config.name: config.value for config in result.configs}["advertised.listeners"] == address
    (rejected,) = await described(world, strange, client=client)
    assert rejected.error_code == ErrorCode.INVALID_REQUEST


async def test_a_broker_describes_its_present_settings() -> None:
    world = new_world(default_partitions=7, auto_create_topics=False, connections_max_reauth_ms=60_000)
    (result,) = await described(
        world, DescribeConfigsResource(BROKER, str(world.gateway.nodes[LISTENER].node_id), None)
    )
    configs = {config.name: config.value for config in result.configs}
    assert (configs["num.partitions"], configs["auto.create.topics.enable"]) == ("7", "false")
    assert configs["connections.max.reauth.ms"] == "60000"
    assert {config.name for config in result.configs if not config.read_only} == CLUSTER_CONFIGS.keys()


async def test_the_clusters_defaults_stand_between_a_topics_own_values_and_the_built_in_ones() -> None:
    world = new_world()
    world.sequencer.cluster_configs = {"log.retention.ms": "2000", "log.retention.bytes": "500"}
    world.sequencer.add_topic("t", 1, **{"retention.ms": "1000"})
    (result,) = await described(world, DescribeConfigsResource(TOPIC, "t", None), include_synonyms=True)
    configs = {config.name: config for config in result.configs}
    synonyms = {
        name: [(each.name, each.value, each.source) for each in config.synonyms] for name, config in configs.items()
    }
    assert synonyms["retention.ms"] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "2000", 3),
        ("log.retention.ms", "604800000", 5),
    ]
    assert synonyms["cleanup.policy"] == [("log.cleanup.policy", "delete", 5)]  # the name of Kafka's brokers
    assert synonyms["retention.bytes"] == [("log.retention.bytes", "500", 3), ("log.retention.bytes", "-1", 5)]
    assert (configs["retention.bytes"].value, configs["retention.bytes"].config_source) == ("500", 3)


async def test_the_broker_without_a_name_has_the_defaults_that_were_set_and_a_named_one_has_all() -> None:
    world = new_world()
    world.sequencer.cluster_configs = {"log.retention.ms": "2000"}
    own = str(world.gateway.nodes[LISTENER].node_id)
    resources = [DescribeConfigsResource(BROKER, "", None), DescribeConfigsResource(BROKER, own, None)]
    everybody, broker = await described(world, *resources)
    assert [(each.name, each.value, each.config_source) for each in everybody.configs] == [
        ("log.retention.ms", "2000", 3)
    ]
    configs = {config.name: (config.value, config.config_source) for config in broker.configs}
    assert (configs["log.retention.ms"], configs["log.retention.bytes"]) == (("2000", 3), ("-1", 5))
    assert [name for name, _ in world.sequencer.queries] == ["cluster_configs"], "one query for the whole request"
    assert [config.name for config in broker.configs] == sorted(config.name for config in broker.configs)


async def test_a_change_through_another_gateway_is_described_here_at_once() -> None:
    world = new_world()
    world.sequencer.add_topic("t", 1, **{"retention.ms": "1000"})
    await world.gateway.topics.find(["t"])
    world.sequencer.add_topic("t", 1, **{"retention.ms": "2000"})
    (result,) = await described(world, DescribeConfigsResource(TOPIC, "t", ["retention.ms"]))
    assert [config.value for config in result.configs] == ["2000"]


async def test_without_sequencers_no_cached_configuration_is_described() -> None:
    world = new_world()
    world.sequencer.add_topic("t")
    await world.gateway.topics.find(["t"])
    world.sequencer.is_down = True
    results = await described(world, DescribeConfigsResource(TOPIC, "t"), DescribeConfigsResource(BROKER, ""))
    assert [(each.error_code, each.configs) for each in results] == [(ErrorCode.REQUEST_TIMED_OUT, [])] * 2


def altering_world(*outcomes: Outcome) -> World:
    """Sequencers that give these outcomes to the first commands, and accept all later ones."""
    world = new_world()
    answers = iter(outcomes)
    world.sequencer.on_command = lambda command: next(answers, Done())
    return world


def altered(world: World) -> list[AlterConfigs]:
    return [command for entry in world.sequencer.commands for command in entry if isinstance(command, AlterConfigs)]


def resource(name: str, *configs: AlterableConfig, kind: int = TOPIC) -> AlterConfigsResource:
    return AlterConfigsResource(kind, name, list(configs))


async def altering(
    world: World, *resources: AlterConfigsResource, version: int = 1, validate_only: bool = False
) -> dict[tuple[int, str], tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(list(resources), validate_only)
    response = await ask(world, INCREMENTAL_ALTER_CONFIGS, version, request)
    results = {
        (each.resource_type, each.resource_name): (each.error_code, each.error_message) for each in response.responses
    }
    assert len(results) == len(response.responses)
    return results


@pytest.mark.parametrize("version", range(2))
async def test_only_the_named_configurations_change(version: int) -> None:
    world = altering_world()
    world.sequencer.seen_sequence = 41
    configs = [
        AlterableConfig("retention.ms", SET, "1000"),
        AlterableConfig("retention.bytes", REMOVE, None),
        AlterableConfig("cleanup.policy", APPEND, "compact"),
    ]
    assert await altering(world, resource("t", *configs), version=version) == {(TOPIC, "t"): (0, None)}
    (command,) = altered(world)
    assert (command.topic, command.replace, command.seen_sequence) == ("t", False, 41)
    assert command.changes == [
        ConfigChange("retention.ms", SET, "1000"),
        ConfigChange("retention.bytes", REMOVE, ""),
        ConfigChange("cleanup.policy", APPEND, "compact"),
    ]


@pytest.mark.parametrize("version", range(3))
async def test_the_older_api_replaces_all_configurations(version: int) -> None:
    world = altering_world()
    asked = alter_configs.AlterConfigsResource(TOPIC, "t", [alter_configs.AlterableConfig("retention.ms", "1000")])
    response = await ask(world, ALTER_CONFIGS, version, alter_configs.AlterConfigsRequest([asked]))
    assert response.responses == [alter_configs.AlterConfigsResourceResponse(0, None, TOPIC, "t")]
    (command,) = altered(world)
    assert (command.topic, command.replace) == ("t", True)
    assert command.changes == [ConfigChange("retention.ms", SET, "1000")]


async def test_the_broker_without_a_name_stands_for_the_clusters_defaults() -> None:
    world = altering_world()
    asked = resource("", AlterableConfig("log.retention.ms", SET, "1000"), kind=BROKER)
    assert await altering(world, asked) == {(BROKER, ""): (0, None)}
    assert [(each.topic, each.changes) for each in altered(world)] == [
        ("", [ConfigChange("log.retention.ms", SET, "1000")])
    ]


@pytest.mark.parametrize(
    ("bad", "error", "named"),
    [
        (resource("t", AlterableConfig("segment.bytes", SET, "1")), ErrorCode.INVALID_CONFIG, "segment.bytes"),
        (
            resource("t", AlterableConfig("message.format.version", APPEND, "1")),
            ErrorCode.INVALID_CONFIG,
            "message.format.version",
        ),
        (resource("t", AlterableConfig("retention.ms", SET, "-2")), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (resource("t", AlterableConfig("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST, "retention.ms"),
        (resource("t", AlterableConfig("retention.ms", 4, "1")), ErrorCode.INVALID_REQUEST, "operation 4"),
        (resource("t", AlterableConfig("retention.ms", -1, "1")), ErrorCode.INVALID_REQUEST, "operation -1"),
        (
            resource("t", AlterableConfig("retention.ms", SET, "1"), AlterableConfig("retention.ms", REMOVE)),
            ErrorCode.INVALID_REQUEST,
            "retention.ms",
        ),
        (
            resource("t", AlterableConfig("cleanup.policy", APPEND, "compact" + " " * 1_000)),
            ErrorCode.INVALID_CONFIG,
            "too long",
        ),
        (resource("", AlterableConfig("retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST, "Default topic resources"),
        (resource("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name"),
        (resource("7", kind=BROKER), ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected "),
        (resource("x", kind=BROKER), ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (resource("7", kind=8), ErrorCode.INVALID_REQUEST, "type 8"),
        (
            resource("", AlterableConfig("log.retention.hours", SET, "1"), kind=BROKER),
            ErrorCode.INVALID_CONFIG,
            "log.retention.hours",
        ),
        (
            resource("", AlterableConfig("retention.ms", SET, "1"), kind=BROKER),
            ErrorCode.INVALID_CONFIG,
            "retention.ms",
        ),
    ],
)
async def test_an_invalid_change_is_rejected_by_name_and_the_others_are_made(
    bad: AlterConfigsResource, error: int, named: str
) -> None:
    world = altering_world()
    results = await altering(world, bad, resource("good", AlterableConfig("retention.ms", SET, "1")))
    code, message = results[bad.resource_type, bad.resource_name]
    assert (code, named in (message or "")) == (error, True), message
    assert results[TOPIC, "good"] == (0, None)
    assert [command.topic for command in altered(world)] == ["good"]


async def test_a_removal_of_an_unknown_name_is_accepted_and_a_missing_topic_is_still_reported() -> None:
    """As in Kafka, where only names that are set are checked before the topic."""
    unknown = AlterableConfig("message.format.version", REMOVE, None)
    world = altering_world(Done(), Rejected(Rejection.UNKNOWN_TOPIC, "no such topic"))
    kept = AlterableConfig("retention.ms", REMOVE, None)
    assert await altering(world, resource("t", unknown, kept), resource("absent", unknown)) == {
        (TOPIC, "t"): (0, None),
        (TOPIC, "absent"): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"),
    }
    assert [command.changes for command in altered(world)] == [[ConfigChange("retention.ms", REMOVE, "")], []]


async def test_a_resource_named_twice_is_refused_once() -> None:
    world = altering_world()
    results = await altering(world, resource("t"), resource("t"), resource("good"))
    assert {name: code for (_, name), (code, _) in results.items()} == {"t": ErrorCode.INVALID_REQUEST, "good": 0}


async def test_an_error_message_has_a_limited_length() -> None:
    long = AlterableConfig("retention.ms" * 2_500, SET, "1")
    code, message = (await altering(altering_world(), resource("t", long)))[TOPIC, "t"]
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None and len(message) <= 1_000


async def test_a_sequencers_rejection_is_the_result_of_its_resource() -> None:
    world = altering_world(
        Rejected(Rejection.UNKNOWN_TOPIC, "no such topic"), Rejected(Rejection.INVALID_CONFIG, "no list")
    )
    assert await altering(world, resource("absent"), resource("t"), resource("good")) == {
        (TOPIC, "absent"): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"),
        (TOPIC, "t"): (ErrorCode.INVALID_CONFIG, "no list"),
        (TOPIC, "good"): (0, None),
    }


async def test_after_an_unknown_change_through_another_gateway_only_that_topic_is_tried_again() -> None:
    world = altering_world(Rejected(Rejection.STALE, "changed since"), Done())
    assert await altering(world, resource("t"), resource("other")) == {
        (TOPIC, "t"): (0, None),
        (TOPIC, "other"): (0, None),
    }
    assert [command.topic for command in altered(world)] == ["t", "other", "t"]


@pytest.mark.parametrize(("concurrent", "error"), [(99, 0), (100, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)])
async def test_a_hundred_concurrent_changes_succeed_and_beyond_that_the_client_is_asked_to_retry(
    concurrent: int, error: int
) -> None:
    world = altering_world(*[Rejected(Rejection.STALE, "changed since")] * concurrent)
    code, message = (await altering(world, resource("t")))[TOPIC, "t"]
    assert (code, message) == (error, "changed since" if error else None)
    assert len(altered(world)) == 100


async def test_validation_only_asks_and_alters_nothing() -> None:
    world = altering_world()
    asked: list[Any] = []

    def validate(query: Any) -> ValidateView:
        asked.extend(query.commands)
        return ValidateView(1, [Rejected(Rejection.INVALID_CONFIG, "no") for _ in query.commands])

    world.sequencer.views["validate"] = validate
    good = resource("t", AlterableConfig("retention.ms", SET, "1"))
    assert await altering(world, good, validate_only=True) == {(TOPIC, "t"): (ErrorCode.INVALID_CONFIG, "no")}
    assert [command.topic for command in asked] == ["t"]
    assert world.sequencer.commands == []


async def test_a_change_with_an_unknown_outcome_is_a_time_out() -> None:
    world = altering_world()
    world.sequencer.is_down = True
    assert (await altering(world, resource("t")))[TOPIC, "t"][0] == ErrorCode.REQUEST_TIMED_OUT


async def test_a_topic_that_was_altered_is_queried_again() -> None:
    world = altering_world()
    world.sequencer.add_topic("t")
    await world.gateway.topics.find(["t"])
    await altering(world, resource("t", AlterableConfig("max.message.bytes", SET, "5000")))
    assert world.gateway.topics.cached("t") is None
