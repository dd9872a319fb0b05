"""Configurations of groups: consumer groups and share groups."""

from typing import Any

import pytest

from penstock.contracts.commands import AlterGroupConfigs, ConfigChange, ConfigOperation, Done, Rejected
from penstock.contracts.configs.groups import GROUP_RESOURCE_CONFIGS
from penstock.contracts.levels import KAFKA_VALUES_LEVEL, SHARE_GROUPS_LEVEL
from penstock.contracts.queries.groups import GroupConfigsView
from penstock.contracts.queries.topics import ClusterConfigsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.kafkawire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.kafkawire.api.list_config_resources import ListConfigResourcesRequest
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES = 32, 44, 74
GROUP, FROM_GROUP, FROM_DEFAULT = 32, 8, 5
RESET = "share.auto.offset.reset"


def share_world(level: int | None = SHARE_GROUPS_LEVEL) -> World:
    world = new_world(share_groups=True)
    world.sequencer.seen_level = level
    world.sequencer.views["group_configs"] = lambda query: GroupConfigsView(
        1,
        [{RESET: "earliest"} if group == "g" else {} for group in query.group_ids or ["g"]],
        group_ids=query.group_ids or ["g"],
    )
    return world


async def altered(world: World, name: str, value: str | None, group: str = "g") -> tuple[int, str]:
    configs = [AlterableConfig(name, ConfigOperation.SET, value)]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP, group, configs)])
    (result,) = (await ask(world, INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
    return result.error_code, result.error_message or ""


async def described(world: World, *groups: str) -> list[Any]:
    resources = [DescribeConfigsResource(GROUP, group, None) for group in groups]
    results = (await ask(world, DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources, include_synonyms=True))).results
    return list(results)


async def test_a_groups_configurations_are_described_with_their_source() -> None:
    own, other = await described(share_world(), "g", "other")
    values = {config.name: (config.value, config.config_source) for config in own.configs}
    assert values.keys() == GROUP_RESOURCE_CONFIGS.keys()
    assert values[RESET] == ("earliest", FROM_GROUP)
    assert {config.config_source for config in other.configs} == {FROM_DEFAULT}


async def test_configurations_are_altered_also_before_the_group_exists() -> None:
    world = share_world()
    world.sequencer.on_command = lambda command: Done()
    assert await altered(world, RESET, "earliest") == (ErrorCode.NONE, "")
    ((command,),) = world.sequencer.commands
    assert isinstance(command, AlterGroupConfigs)
    assert (command.group_id, command.changes) == ("g", [ConfigChange(RESET, ConfigOperation.SET, "earliest")])


@pytest.mark.parametrize(
    ("name", "value", "group", "error"),
    [
        (RESET, "soonest", "g", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "0", "g", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "0", "g", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "45000", "g", ErrorCode.INVALID_CONFIG),
        ("consumer.assignment.interval.ms", "15001", "g", ErrorCode.INVALID_CONFIG),
        ("consumer.assignor.offload.enable", "x", "g", ErrorCode.INVALID_CONFIG),
        ("nonsense", "1", "g", ErrorCode.INVALID_CONFIG),
        (RESET, "earliest", "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_an_invalid_change_is_never_journaled(name: str, value: str, group: str, error: ErrorCode) -> None:
    world = share_world()
    code, message = await altered(world, name, value, group)
    assert code == error
    assert message
    assert not world.sequencer.commands


async def test_a_sequencers_rejection_is_the_result_of_its_group() -> None:
    world = share_world()
    world.sequencer.on_command = lambda command: Rejected(Rejection.INVALID_CONFIG, "no")
    assert await altered(world, RESET, "earliest") == (ErrorCode.INVALID_CONFIG, "no")


async def test_until_all_sequencers_know_them_they_are_not_altered() -> None:
    code, _ = await altered(share_world(SHARE_GROUPS_LEVEL - 1), RESET, "earliest")
    assert code == ErrorCode.UNSUPPORTED_VERSION


async def test_while_the_level_is_unknown_the_sequencers_decide() -> None:
    world = share_world(None)
    world.sequencer.on_command = lambda command: Done()
    assert await altered(world, RESET, "earliest") == (ErrorCode.NONE, "")


async def test_groups_with_configurations_are_listed_before_the_groups_exist() -> None:
    response = await ask(share_world(), LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest([GROUP]))
    assert [(each.resource_name, each.resource_type) for each in response.config_resources] == [("g", GROUP)]


async def test_a_group_without_a_name_has_kafkas_errors() -> None:
    (result,) = await described(share_world(), "")
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    result = await altered(share_world(), RESET, "earliest", "")
    assert result == (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


# A broker of Kafka 4.4.0 accepts these values. It has narrower bounds by default, which its operator can widen.
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "45000"),
        ("consumer.session.timeout.ms", "60000"),
        ("consumer.heartbeat.interval.ms", "5000"),
        ("consumer.heartbeat.interval.ms", "15000"),
        ("consumer.assignment.interval.ms", "0"),
        ("consumer.assignment.interval.ms", "15000"),
        ("consumer.assignor.offload.enable", "false"),
        ("share.assignor.offload.enable", "false"),
    ],
)
async def test_configurations_of_consumer_groups_need_no_share_groups(name: str, value: str) -> None:
    world = new_world(share_groups=False)
    world.sequencer.seen_level = KAFKA_VALUES_LEVEL
    world.sequencer.on_command = lambda command: Done()
    assert await altered(world, name, value) == (ErrorCode.NONE, "")


async def test_a_consumer_group_has_the_clusters_value_unless_it_has_its_own() -> None:
    world = share_world()
    timeout, broker_name = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    world.sequencer.views["cluster_configs"] = lambda query: ClusterConfigsView(1, {broker_name: "50000"})
    world.sequencer.views["group_configs"] = lambda query: GroupConfigsView(
        1, [{timeout: "6000"} if group == "g" else {} for group in query.group_ids]
    )
    own, other = await described(world, "g", "other")
    described_as = [
        [
            (each.name, each.value, each.source)
            for config in result.configs
            if config.name == timeout
            for each in config.synonyms
        ]
        for result in (own, other)
    ]
    of_cluster = [(broker_name, "50000", 3), (broker_name, "45000", FROM_DEFAULT)]
    assert described_as == [[(timeout, "6000", FROM_GROUP), *of_cluster], of_cluster]
