"""Subscriptions to metrics: which clients they select, what these push, and when the APIs are advertised."""

import asyncio

import pytest

from penstock.contracts.levels import CLIENT_METRICS_LEVEL
from penstock.kafkawire.api.api_versions import ApiVersionsRequest
from penstock.kafkawire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.telemetry.limits import TelemetryLimits
from penstock_gateway.telemetry.subscription_cache import SubscriptionCache
from tests.unit.gateway.gateway_fakes import FakeSequencer, World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask
from tests.unit.gateway.telemetry.gateway_telemetry import GET, PUSH, Reporter, subscribe
from tests.unit.gateway.telemetry.metrics_data import gauge, metrics_data, point, total

API_VERSIONS = 18
PUSHED = metrics_data(gauge("org.apache.kafka.producer.lag", point(7.5)), total("org.apache.kafka.sent", point(3)))


@pytest.fixture
def world() -> World:
    return new_world()


async def hello(world: World, client: Client, name: str = "apache-kafka-java", version: str = "4.3.1") -> set[int]:
    """The keys of the APIs that ApiVersions lists for a client with this software."""
    response = await ask(world, API_VERSIONS, 4, ApiVersionsRequest(name, version), client)
    return {each.api_key for each in response.api_keys}


async def wanted(world: World, client_id: str = "app-1") -> tuple[list[str], int]:
    """The metrics and the interval that a Java client gets."""
    client = new_client(client_id)
    client.port = 40_000
    await hello(world, client)
    response = await Reporter(world, client).get()
    return response.requested_metrics, response.push_interval_ms


async def test_the_apis_are_advertised_while_there_is_a_subscription(world: World) -> None:
    assert not {GET, PUSH} & await hello(world, new_client())
    await subscribe(world, interval_ms="1000")
    assert {GET, PUSH} <= await hello(world, new_client())
    await subscribe(world, interval_ms="")
    assert not {GET, PUSH} & await hello(world, new_client())


async def test_clients_without_a_matching_subscription_push_nothing(world: World) -> None:
    await subscribe(world, metrics="*", match="client_id=other")
    assert await wanted(world) == ([], 300_000)


@pytest.mark.parametrize(
    ("match", "is_selected"),
    [
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id = app-1 , client_software_name = apache-.*", True),
        ("client_id=app-1,client_software_name=librdkafka", False),
        ("client_software_version=4\\.3\\..*", True),
        ("client_source_address=127\\.0\\.0\\.1,client_source_port=40000", True),
        ("client_source_port=40001", False),
        ("client_instance_id=.{22}", True),
    ],
)
async def test_a_subscription_selects_clients_by_its_conditions(world: World, match: str, is_selected: bool) -> None:
    await subscribe(world, metrics="a.b", interval_ms="5000", match=match)
    assert await wanted(world) == ((["a.b"], 5_000) if is_selected else ([], 300_000))


async def test_several_subscriptions_add_up_and_the_shortest_interval_counts(world: World) -> None:
    await subscribe(world, "one", metrics="b,a", interval_ms="5000")
    await subscribe(world, "two", metrics="a,c", interval_ms="2000")
    assert await wanted(world) == (["a", "b", "c"], 2_000)
    await subscribe(world, "three", metrics="*", interval_ms="600000")
    assert await wanted(world) == (["*"], 2_000)


async def test_a_changed_subscription_has_another_id_and_the_client_asks_again(world: World) -> None:
    await subscribe(world, metrics="a")
    reporter = Reporter(world)
    first = await reporter.get()
    await subscribe(world, metrics="a,b")
    assert await reporter.push() == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = await reporter.get()
    assert (again.error_code, again.client_instance_id) == (ErrorCode.NONE, first.client_instance_id)
    assert again.subscription_id != first.subscription_id
    assert await reporter.push() == ErrorCode.NONE


async def test_a_client_waits_until_a_new_gateway_knows_the_subscriptions() -> None:
    sequencer = FakeSequencer()
    sequencer.hold = asyncio.Event()
    cache = SubscriptionCache(sequencer)
    asked = asyncio.create_task(cache.wanted({}, 60))
    await asyncio.sleep(0)
    assert not (asked.done() or cache.is_empty)
    sequencer.hold.set()
    assert (await asked).metrics == ()
    assert cache.is_empty


async def test_without_sequencers_a_new_gateway_answers_after_a_while() -> None:
    sequencer = FakeSequencer()
    sequencer.hold = asyncio.Event()
    cache = SubscriptionCache(sequencer)
    assert (await cache.wanted({}, 0.01)).metrics == ()
    assert not cache.is_empty


async def test_below_their_level_it_is_known_that_there_are_no_subscriptions() -> None:
    sequencer = FakeSequencer()
    sequencer.is_down, sequencer.seen_level = True, CLIENT_METRICS_LEVEL - 1
    cache = SubscriptionCache(sequencer)
    assert (await cache.wanted({}, 60)).metrics == ()
    assert cache.is_empty


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
async def test_pushed_metrics_are_shown_with_every_codec(world: World, codec: int) -> None:
    await subscribe(world, metrics="*")
    reporter = Reporter(world)
    await reporter.get()
    assert await reporter.push(compress(PUSHED, codec), compression_type=codec) == ErrorCode.NONE
    labels = {"client_id": "test-client", "client_instance_id": shown_id(world)}
    assert world.metric("penstock_client_producer_lag", **labels) == 7.5
    assert world.metric("penstock_client_sent_total", **labels) == 3.0
    assert world.metric("penstock_gateway_telemetry_pushes_total", error="NONE") == 1


def shown_id(world: World) -> str:
    """The label of the only client with metrics."""
    (sample,) = [
        sample
        for family in world.gateway.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "penstock_client_sent_total"
    ]
    return sample.labels["client_instance_id"]


@pytest.mark.parametrize("codec", [NONE, ZSTD])
async def test_a_large_push_is_decoded_too(codec: int) -> None:
    world = new_world(limits=GatewayLimits(telemetry=TelemetryLimits(decoded_at_once_max=10)))
    await subscribe(world, metrics="*")
    reporter = Reporter(world)
    await reporter.get()
    assert await reporter.push(compress(PUSHED, codec), compression_type=codec) == ErrorCode.NONE
    assert shown_id(world)


@pytest.mark.parametrize(
    ("metrics", "codec", "error"),
    [
        (b"\x0a\x05abc", NONE, ErrorCode.INVALID_RECORD),
        (b"not compressed", ZSTD, ErrorCode.INVALID_RECORD),
        (compress(PUSHED, GZIP)[:-9], GZIP, ErrorCode.INVALID_RECORD),
        (PUSHED[:-1], NONE, ErrorCode.INVALID_RECORD),
        (compress(bytes(2_000_000), ZSTD), ZSTD, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(bytes(2_000_000), GZIP), GZIP, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"\x0a\x00" * 500, NONE, ErrorCode.INVALID_RECORD),
    ],
)
async def test_a_damaged_push_is_rejected_and_shows_nothing(metrics: bytes, codec: int, error: ErrorCode) -> None:
    limits = TelemetryLimits(plain_bytes_max=1_000_000, fields_max=400)
    world = new_world(limits=GatewayLimits(telemetry=limits))
    await subscribe(world, metrics="*")
    reporter = Reporter(world)
    await reporter.get()
    assert await reporter.push(metrics, compression_type=codec) == error
    names = [family.name for family in world.gateway.metrics.registry.collect()]
    assert not [name for name in names if name.startswith("penstock_client_")]
    assert world.metric("penstock_gateway_telemetry_pushes_total", error=error.name) == 1


async def test_a_push_that_no_subscription_wants_shows_nothing(world: World) -> None:
    reporter = Reporter(world)
    await reporter.get()
    assert await reporter.push(PUSHED) == ErrorCode.NONE
    names = [family.name for family in world.gateway.metrics.registry.collect()]
    assert not [name for name in names if name.startswith("penstock_client_")]
