"""Subscriptions to metrics as configurations: altered, described, and rejected."""

from typing import Any

import pytest

from penstock.contracts.commands import AlterClientMetrics, ConfigChange, ConfigOperation, Done
from penstock.contracts.levels import CLIENT_METRICS_LEVEL
from penstock.kafkawire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.kafkawire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask
from tests.unit.gateway.telemetry.gateway_telemetry import subscribe

DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
CLIENT_METRICS, FROM_SUBSCRIPTION, FROM_DEFAULT = 16, 7, 5
LIST, INT = 7, 3


@pytest.fixture
def world() -> World:
    world = new_world()
    world.sequencer.seen_level = CLIENT_METRICS_LEVEL
    world.sequencer.on_command = lambda command: Done()
    return world


async def altered(world: World, name: str, value: str, subscription: str = "s") -> tuple[int, str]:
    configs = [AlterableConfig(name, ConfigOperation.SET, value)]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(CLIENT_METRICS, subscription, configs)])
    (result,) = (await ask(world, INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
    return result.error_code, result.error_message or ""


async def described(world: World, name: str) -> Any:
    request = DescribeConfigsRequest([DescribeConfigsResource(CLIENT_METRICS, name, None)])
    (result,) = (await ask(world, DESCRIBE_CONFIGS, 4, request)).results
    return result


async def test_a_subscription_is_altered_by_its_own_command(world: World) -> None:
    assert await altered(world, "metrics", "a,b") == (ErrorCode.NONE, "")
    ((command,),) = world.sequencer.commands
    assert isinstance(command, AlterClientMetrics)
    assert (command.name, command.changes) == ("s", [ConfigChange("metrics", ConfigOperation.SET, "a,b")])


async def test_a_subscription_is_described_with_the_sources_of_its_values(world: World) -> None:
    await subscribe(world, "s", interval_ms="1000")
    found = {each.name: each for each in (await described(world, "s")).configs}
    values = {name: (each.value, each.config_source, each.config_type) for name, each in found.items()}
    assert values == {
        "metrics": ("", FROM_DEFAULT, LIST),
        "interval.ms": ("1000", FROM_SUBSCRIPTION, INT),
        "match": ("", FROM_DEFAULT, LIST),
    }


async def test_a_subscription_that_does_not_exist_has_the_defaults(world: World) -> None:
    assert {each.config_source for each in (await described(world, "absent")).configs} == {FROM_DEFAULT}


async def test_below_their_level_there_are_no_subscriptions(world: World) -> None:
    world.sequencer.seen_level = CLIENT_METRICS_LEVEL - 1
    assert (await altered(world, "metrics", "a"))[0] == ErrorCode.UNSUPPORTED_VERSION
    assert (await described(world, "s")).error_code == ErrorCode.NONE
    assert "client_metrics" not in [name for name, _ in world.sequencer.queries]


@pytest.mark.parametrize(
    ("name", "value", "subscription", "error", "message"),
    [
        ("x", "1", "s", ErrorCode.INVALID_CONFIG, "Unknown client metrics configuration: x"),
        (
            "interval.ms",
            "10",
            "s",
            ErrorCode.INVALID_CONFIG,
            "Invalid value 10 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ("match", "x=1", "s", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: x=1"),
        ("metrics", "a", "", ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
    ],
)
async def test_an_invalid_change_is_never_journaled(
    world: World, name: str, value: str, subscription: str, error: ErrorCode, message: str
) -> None:
    assert await altered(world, name, value, subscription) == (error, message)
    assert not world.sequencer.commands


async def test_a_subscription_without_a_name_cannot_be_described(world: World) -> None:
    result = await described(world, "")
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == "Client metrics subscription name must not be empty"
