"""Configurations of share groups, if share groups are enabled."""

from typing import Any

import pytest

from penstock.contracts.commands import AlterGroupConfigs, ConfigChange, ConfigOperation, Done, Rejected
from penstock.contracts.configs.groups import GROUP_RESOURCE_CONFIGS
from penstock.contracts.levels import SHARE_GROUPS_LEVEL
from penstock.contracts.queries.groups import GroupConfigsView
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
    results = (await ask(world, DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources))).results
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
        ("consumer.session.timeout.ms", "45000", "g", ErrorCode.INVALID_CONFIG),
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
    response = await ask(new_world(share_groups=False), LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest([GROUP]))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_where_share_groups_are_off_groups_have_no_configurations() -> None:
    world = new_world(share_groups=False)
    assert (await altered(world, RESET, "earliest"))[0] == ErrorCode.INVALID_REQUEST
    (result,) = await described(world, "g")
    assert result.error_code == ErrorCode.INVALID_REQUEST
