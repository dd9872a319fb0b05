"""The rules of telemetry requests: ids, subscriptions, intervals and errors."""

import uuid

import pytest

from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.schema import NO_UUID
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.telemetry.limits import TelemetryLimits
from tests.unit.gateway.gateway_fakes import World, new_client, new_world
from tests.unit.gateway.telemetry.gateway_telemetry import Reporter

INTERVAL_S = 300.0


@pytest.fixture
def world() -> World:
    return new_world()


async def test_a_client_gets_an_id_and_an_empty_subscription(world: World) -> None:
    response = await Reporter(world).get()
    assert response.error_code == ErrorCode.NONE
    assert uuid.UUID(bytes=response.client_instance_id).version == 4
    assert (response.requested_metrics, response.push_interval_ms) == ([], 300_000)
    assert (response.accepted_compression_types, response.telemetry_max_bytes) == ([4, 3, 1, 2], 1024 * 1024)
    assert response.delta_temporality is True


async def test_each_client_gets_another_id(world: World) -> None:
    ids = {(await Reporter(world).get()).client_instance_id for _ in range(5)}
    assert len(ids) == 5
    assert NO_UUID not in ids


async def test_a_client_keeps_its_id_and_its_subscription_at_another_gateway(world: World) -> None:
    reporter = Reporter(world)
    first = await reporter.get()
    other = Reporter(new_world(instance="g2"), instance_id=reporter.instance_id)
    assert await other.get() == first


async def test_a_client_that_asks_again_within_its_interval_is_throttled(world: World) -> None:
    reporter = Reporter(world)
    await reporter.get()
    assert (await reporter.get()).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.now_s += INTERVAL_S
    assert (await reporter.get()).error_code == ErrorCode.NONE


async def test_one_push_is_accepted_in_each_interval(world: World) -> None:
    reporter = Reporter(world)
    await reporter.get()
    assert await reporter.push() == ErrorCode.NONE
    assert await reporter.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.now_s += INTERVAL_S
    assert await reporter.push() == ErrorCode.NONE


async def test_a_last_push_is_accepted_at_any_time_and_no_push_after_it(world: World) -> None:
    reporter = Reporter(world)
    await reporter.get()
    await reporter.push()
    assert await reporter.push(terminating=True) == ErrorCode.NONE
    assert await reporter.push() == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": b"0" * 101}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
async def test_a_wrong_push_has_its_own_error(fields: dict[str, int], error: ErrorCode) -> None:
    reporter = Reporter(new_world(limits=GatewayLimits(telemetry=TelemetryLimits(push_bytes_max=100))))
    await reporter.get()
    assert await reporter.push(**fields) == error


@pytest.mark.parametrize("instance_id", [NO_UUID, bytes(15) + b"\1"])
async def test_a_push_without_an_id_is_rejected(world: World, instance_id: bytes) -> None:
    assert await Reporter(world, instance_id=instance_id).push() == ErrorCode.INVALID_REQUEST


async def test_after_an_unknown_subscription_the_client_may_ask_at_once(world: World) -> None:
    reporter = Reporter(world)
    await reporter.get()
    assert await reporter.push(subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert (await reporter.get()).error_code == ErrorCode.NONE


async def test_a_push_to_a_gateway_that_does_not_know_the_client_is_accepted(world: World) -> None:
    reporter = Reporter(world)
    await reporter.get()
    other = Reporter(new_world(instance="g2"), instance_id=reporter.instance_id)
    assert await other.push(subscription_id=reporter.subscription_id) == ErrorCode.NONE


async def test_the_state_of_a_client_ends_with_its_connection(world: World) -> None:
    reporter = Reporter(world)
    await reporter.get()
    reporter.client.close()
    again = Reporter(world, instance_id=reporter.instance_id)
    assert (await again.get()).error_code == ErrorCode.NONE


async def test_the_end_of_an_old_connection_changes_nothing_on_the_new_one(world: World) -> None:
    reporter = Reporter(world)
    await reporter.get()
    again = Reporter(world, instance_id=reporter.instance_id)
    await again.get()
    reporter.client.close()
    assert (await again.get()).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_connection_has_one_client_instance() -> None:
    world, client = new_world(), new_client()
    first = Reporter(world, client)
    await first.get()
    await Reporter(world, client).get()
    assert (await first.get()).error_code == ErrorCode.NONE  # it is unknown again


async def test_beyond_the_limit_the_idlest_client_is_removed() -> None:
    world = new_world(limits=GatewayLimits(telemetry=TelemetryLimits(instances_max=2)))
    reporters = [Reporter(world) for _ in range(3)]
    for reporter in reporters:
        await reporter.get()
    errors = [(await reporter.get()).error_code for reporter in reversed(reporters)]
    assert errors == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2 + [ErrorCode.NONE]
