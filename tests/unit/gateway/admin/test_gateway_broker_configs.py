"""Configurations of one broker are kept and described, without another effect; the state machine is the real one."""

from typing import Any

import pytest

from penstock.contracts.commands import ConfigOperation, RaiseLevel, Rejected
from penstock.contracts.levels import BROKER_CONFIGS_LEVEL
from penstock.contracts.queries.topics import ClusterConfigsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import alter_configs
from penstock.kafkawire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.kafkawire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_sequencer.core.queries import validate
from tests.unit.gateway.gateway_fakes import LISTENER, World, new_world
from tests.unit.gateway.gateway_wire import ask

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
BROKER = 4
SET, REMOVE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT
INVALID = ErrorCode.INVALID_REQUEST
RELOGIN = "sasl.kerberos.min.time.before.relogin"


@pytest.fixture
def world() -> World:
    return world_at(BROKER_CONFIGS_LEVEL)


def world_at(level: int) -> World:
    """A gateway whose sequencers keep the cluster's configurations, at this level."""
    world = new_world()
    fake = world.sequencer
    fake.seen_level = level
    fake.on_command = fake.apply
    fake.views["cluster_configs"] = lambda query: ClusterConfigsView(fake.seen_sequence, fake.machine.cluster_configs)
    fake.views["validate"] = lambda query: validate(fake.machine, query)
    fake.apply(RaiseLevel(world.clock.now_ms(), level))
    return world


def own_id(world: World) -> str:
    return str(world.gateway.nodes[LISTENER].node_id)


async def altered(
    world: World, *changes: AlterableConfig, name: str | None = None, validate_only: bool = False
) -> tuple[int, str]:
    """Error and message of an incremental change of this broker, or of the named one."""
    broker = AlterConfigsResource(BROKER, own_id(world) if name is None else name, list(changes))
    request = IncrementalAlterConfigsRequest([broker], validate_only)
    (result,) = (await ask(world, INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
    return result.error_code, result.error_message or ""


async def replaced(world: World, **configs: str) -> tuple[int, str]:
    """Error and message of a change that names all configurations of this broker."""
    changes = [alter_configs.AlterableConfig(name, value) for name, value in configs.items()]
    broker = alter_configs.AlterConfigsResource(BROKER, own_id(world), changes)
    (result,) = (await ask(world, ALTER_CONFIGS, 2, alter_configs.AlterConfigsRequest([broker]))).responses
    return result.error_code, result.error_message or ""


async def described(world: World, name: str, source: int) -> dict[str, Any]:
    """The configurations from a source, by name; with the empty name those of the cluster."""
    request = DescribeConfigsRequest([DescribeConfigsResource(BROKER, name, None)], include_synonyms=True)
    (result,) = (await ask(world, DESCRIBE_CONFIGS, 4, request)).results
    assert result.error_code == 0
    return {config.name: config for config in result.configs if config.config_source == source}


async def set_here(world: World) -> dict[str, str]:
    """The configurations that were set for this broker."""
    return {name: config.value for name, config in (await described(world, own_id(world), 2)).items()}


async def test_they_are_described_as_set_and_with_kafkas_default_until_they_are_removed(world: World) -> None:
    lists = AlterableConfig("log.cleanup.policy", APPEND, "compact")
    assert await altered(world, AlterableConfig("background.threads", SET, "9"), lists) == (0, "")
    found = await described(world, own_id(world), 2)
    assert {name: config.value for name, config in found.items()} == {
        "background.threads": "9",
        "log.cleanup.policy": "delete,compact",
    }
    threads = found["background.threads"]
    assert [(each.value, each.source) for each in threads.synonyms] == [("9", 2), ("10", 5)]
    assert (threads.read_only, threads.config_type) == (False, 3)
    lists = AlterableConfig("log.cleanup.policy", SUBTRACT, "compact")
    assert await altered(world, AlterableConfig("background.threads", REMOVE, None), lists) == (0, "")
    assert await set_here(world) == {"log.cleanup.policy": "delete"}


async def test_the_older_api_resets_those_that_it_does_not_name_and_nothing_of_the_cluster(world: World) -> None:
    assert await altered(world, AlterableConfig("log.retention.ms", SET, "1000"), name="") == (0, "")
    assert await replaced(world, **{RELOGIN: "58000", "num.io.threads": "3"}) == (0, "")
    assert await replaced(world, **{RELOGIN: "59000"}) == (0, "")
    assert await set_here(world) == {RELOGIN: "59000"}
    assert (await described(world, "", 3))["log.retention.ms"].value == "1000"
    assert await replaced(world) == (0, "")
    assert await set_here(world) == {}


async def test_a_change_through_another_gateway_is_not_undone_by_a_replacement(world: World) -> None:
    fake = world.sequencer

    def overtaken(command: Any) -> Rejected:
        fake.on_command = fake.apply
        fake.machine.cluster_configs[f"penstock.broker.{own_id(world)}.num.io.threads"] = "3"
        return Rejected(Rejection.STALE, "changed since")

    fake.on_command = overtaken
    assert await replaced(world, **{RELOGIN: "58000"}) == (0, "")
    assert await set_here(world) == {RELOGIN: "58000"}, "the replacement names all configurations"


async def test_the_cluster_lists_them_with_the_brokers_id_so_those_of_a_gone_broker_can_be_removed(
    world: World,
) -> None:
    assert await altered(world, AlterableConfig(RELOGIN, SET, "58000")) == (0, "")
    kept = f"penstock.broker.{own_id(world)}.{RELOGIN}"
    assert {name: config.value for name, config in (await described(world, "", 3)).items()} == {kept: "58000"}
    assert await altered(world, AlterableConfig(kept, REMOVE, None), name="") == (0, "")
    assert await set_here(world) == {}
    other = AlterableConfig("penstock.broker.7.num.partitions", SET, "3")
    code, message = await altered(world, other, name="")
    assert (code, "num.partitions" in message) == (ErrorCode.INVALID_CONFIG, True)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (AlterableConfig("log.retention.ms", SET, "1"), INVALID, "for all brokers, with an empty name"),
        (AlterableConfig("num.partitions", SET, "1"), INVALID, "Cannot update these configs dynamically"),
        (AlterableConfig("ssl.keystore.location", SET, "/k"), INVALID, "Cannot update these configs dynamically"),
        (AlterableConfig("max.connections", SET, "9"), INVALID, "Cannot update these configs dynamically"),
        (AlterableConfig("colour", APPEND, "red"), INVALID, "Cannot update these configs dynamically: [colour]"),
        (AlterableConfig("background.threads", SET, "0"), INVALID, "background.threads must be"),
        (AlterableConfig("background.threads", SET, None), INVALID, "null is not a valid value"),
        (AlterableConfig("sasl.kerberos.kinit.cmd", SET, "k" * 256), INVALID, "has more than 255 characters"),
        (AlterableConfig("sasl.login.refresh.window.factor", SET, "1e999"), INVALID, "must be a number"),
        (AlterableConfig("background.threads", APPEND, "1"), ErrorCode.INVALID_CONFIG, "its type is not LIST"),
    ],
)
async def test_what_a_broker_cannot_have_is_rejected_with_a_reason(
    world: World, change: AlterableConfig, error: int, words: str
) -> None:
    code, message = await altered(world, AlterableConfig(RELOGIN, SET, "58000"), change)
    assert (code, words in message) == (error, True), message
    assert await set_here(world) == {}


async def test_a_name_that_no_broker_has_can_be_removed_and_needs_no_command(world: World) -> None:
    assert await altered(world, AlterableConfig("colour", REMOVE, None)) == (0, "")
    assert world.sequencer.commands == []


async def test_a_validation_changes_nothing(world: World) -> None:
    assert await altered(world, AlterableConfig(RELOGIN, SET, "58000"), validate_only=True) == (0, "")
    assert await set_here(world) == {}


async def test_without_sequencers_a_replacement_is_to_be_tried_again(world: World) -> None:
    world.sequencer.is_down = True
    assert (await replaced(world, **{RELOGIN: "58000"}))[0] == ErrorCode.REQUEST_TIMED_OUT


async def test_during_an_upgrade_nothing_can_be_set_and_everything_can_be_removed() -> None:
    world = world_at(BROKER_CONFIGS_LEVEL - 1)
    code, message = await altered(world, AlterableConfig(RELOGIN, SET, "58000"))
    assert (code, "until all sequencers" in message) == (ErrorCode.UNSUPPORTED_VERSION, True)
    assert await altered(world, AlterableConfig(RELOGIN, REMOVE, None)) == (0, "")
    assert world.sequencer.commands == []
