"""Dispatch: every API of the table is answered, and an error ends only its own connection."""

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from penstock.contracts.commands import Done, Outcome, Rejected
from penstock.contracts.levels import SHARE_GROUPS_LEVEL, STREAMS_GROUPS_LEVEL
from penstock.contracts.queries.consumer_groups import ConsumerHeartbeatView
from penstock.contracts.queries.groups import (
    DescribeGroupsView,
    GroupConfigsView,
    GroupOffsetsView,
    GroupsView,
    GroupView,
    HeartbeatView,
)
from penstock.contracts.queries.share import (
    ShareGroupsView,
    ShareGroupView,
    ShareHeartbeatView,
    ShareOffsetsView,
    SharePartitionsView,
)
from penstock.contracts.queries.streams_groups import StreamsGroupsView, StreamsGroupView, StreamsHeartbeatView
from penstock.contracts.queries.topics import ValidateView
from penstock.contracts.queries.transactions import TransactionsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import API_TABLE, decode_response, encode_request
from penstock.kafkawire.api.api_versions import ApiVersionsRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.handlers import all_handlers
from penstock_gateway.handlers.discovery.api_versions import NO_NODE
from penstock_gateway.kafka.client import Arrival
from penstock_gateway.kafka.error_mapping import REJECTIONS, CloseConnection, error_of
from tests.unit.gateway.gateway_fakes import World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask, ask_raw, request_frame

OWN, OTHER = -2, -3  # node ids of tests
TELEMETRY = {71, 72}  # not advertised without subscriptions to metrics
ANSWERED_ELSEWHERE = {1, 2}  # Fetch and ListOffsets have tests of their own
CASES = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in API_TABLE.values()
    for version in range(api.min_version, api.max_version + 1)
    if api.key not in ANSWERED_ELSEWHERE
]


def scripted_world() -> World:
    world = new_world(share_groups=True)
    world.sequencer.seen_level = STREAMS_GROUPS_LEVEL
    world.sequencer.on_command = reject
    world.sequencer.views |= {
        "groups": lambda query: GroupsView(1, []),
        "describe_groups": lambda query: DescribeGroupsView(
            1, [GroupView(i, "Dead", "", "", []) for i in query.group_ids]
        ),
        "group_offsets": lambda query: GroupOffsetsView(1, []),
        "heartbeat": lambda query: HeartbeatView(1, Rejection.UNKNOWN_MEMBER),
        "consumer_heartbeat": lambda query: ConsumerHeartbeatView(1, Rejected(Rejection.INVALID_REQUEST)),
        "streams_heartbeat": lambda query: StreamsHeartbeatView(1, Rejected(Rejection.INVALID_REQUEST)),
        "streams_groups": lambda query: StreamsGroupsView(
            1, [StreamsGroupView(query.group_ids[0], "", 0, 0, 0, [], [])]
        ),
        "transactions": lambda query: TransactionsView(1, []),
        "share_heartbeat": lambda query: ShareHeartbeatView(1, Rejected(Rejection.INVALID_REQUEST)),
        "share_partitions": lambda query: SharePartitionsView(1, [], rejection=Rejection.UNKNOWN_GROUP),
        "share_groups": lambda query: ShareGroupsView(1, [ShareGroupView(query.group_ids[0], "", 0, 0, "", [], [])]),
        "share_offsets": lambda query: ShareOffsetsView(1, [], Rejection.UNKNOWN_GROUP),
        "group_configs": lambda query: GroupConfigsView(1, [{} for _ in query.group_ids]),
        "validate": lambda query: ValidateView(1, [Done() for _ in query.commands]),
    }
    return world


def reject(command: Any) -> Outcome:
    return Rejected(Rejection.INVALID_REQUEST, "no")


def test_every_api_has_a_handler_and_no_handler_is_without_an_api() -> None:
    assert all_handlers().keys() == API_TABLE.keys()


def test_every_rejection_has_a_kafka_error() -> None:
    assert REJECTIONS.keys() == set(Rejection)
    assert all((error == ErrorCode.NONE) == (rejection == Rejection.NONE) for rejection, error in REJECTIONS.items())


def test_a_rejection_of_a_newer_service_is_an_unknown_error() -> None:
    assert error_of(9_999) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(("api_key", "version"), CASES)
async def test_every_api_answers_a_request_with_nothing_in_it(api_key: int, version: int) -> None:
    world = scripted_world()
    request = API_TABLE[api_key].request()
    if api_key == 0:
        request = API_TABLE[0].request(acks=1)
    if api_key == 22:
        world.sequencer.on_command = lambda command: pytest.fail("an empty transactional id is rejected here")
    assert isinstance(await ask(world, api_key, version, request), API_TABLE[api_key].response)


@pytest.mark.parametrize(("api_key", "version"), CASES)
async def test_without_sequencers_every_api_still_answers_or_closes(api_key: int, version: int) -> None:
    world = scripted_world()
    world.sequencer.is_down = True
    try:
        response = await ask(
            world,
            api_key,
            version,
            API_TABLE[api_key].request(acks=1) if api_key == 0 else API_TABLE[api_key].request(),
        )
    except CloseConnection as cause:
        assert "cannot answer now" in str(cause)
        assert api_key in (3, 75), "only a listing of all topics has no error code"
    else:
        assert isinstance(response, API_TABLE[api_key].response)


async def test_an_unknown_version_of_api_versions_is_answered_as_version_0_with_the_served_versions() -> None:
    data = await ask_raw(new_world(), request_frame(18, 99, b"\x01\x02\x03"))
    response: Any = decode_response(18, 0, data[8:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {each.api_key: (each.min_version, each.max_version) for each in response.api_keys} == {
        api.key: (api.min_version, api.max_version) for api in API_TABLE.values()
    }


@pytest.mark.parametrize("share_groups", [False, True])
@pytest.mark.parametrize("version", range(6))
async def test_api_versions_advertises_exactly_the_served_versions_with_produce_from_0(
    version: int, share_groups: bool
) -> None:
    response = await ask(new_world(share_groups=share_groups), 18, version, API_TABLE[18].request())
    ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    served = {api.key: (api.min_version, api.max_version) for api in API_TABLE.values() if api.key not in TELEMETRY}
    assert ranges == served
    assert ranges[0][0] == 0


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, NO_NODE, ErrorCode.NONE),
        ("test", NO_NODE, ErrorCode.INVALID_REQUEST),
        (None, OWN, ErrorCode.INVALID_REQUEST),
        ("test", OWN, ErrorCode.NONE),
        ("test", OTHER, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", OWN, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
async def test_a_client_that_means_another_broker_looks_for_the_brokers_again(
    cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    world = new_world()
    own_id = world.gateway.nodes["PLAINTEXT"].node_id
    meant = {OWN: own_id, OTHER: own_id + 1}.get(node_id, node_id)
    response = await ask(world, 18, 5, ApiVersionsRequest("client", "1", cluster_id, meant))
    assert response.error_code == error
    assert bool(response.api_keys) == (not error)


@pytest.mark.parametrize(
    ("share_groups", "level", "finalized"),
    [(True, SHARE_GROUPS_LEVEL, 1), (True, SHARE_GROUPS_LEVEL - 1, None), (False, SHARE_GROUPS_LEVEL, None)],
)
async def test_share_groups_are_a_finalized_feature_where_they_are_on_and_all_sequencers_know_them(
    share_groups: bool, level: int, finalized: int | None
) -> None:
    world = new_world(share_groups=share_groups)
    world.sequencer.seen_level = level
    response = await ask(world, 18, 4, API_TABLE[18].request())
    found = {each.name: each.max_version_level for each in response.finalized_features}
    assert found.get("share.version") == finalized
    assert any(each.name == "share.version" for each in response.supported_features) == share_groups


@pytest.mark.parametrize("api_key", [76, 78, 79, 91, 92])
async def test_members_get_an_error_where_share_groups_are_off(api_key: int) -> None:
    """As in Kafka: librdkafka's share consumers would wait for ever where these APIs are not advertised."""
    world = new_world(share_groups=False)
    world.sequencer.seen_level = SHARE_GROUPS_LEVEL
    response = await ask(world, api_key, API_TABLE[api_key].max_version, API_TABLE[api_key].request())
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not world.sequencer.commands


@pytest.mark.parametrize(
    ("level_seen_s", "error"),
    [(-3_600.0, ErrorCode.UNSUPPORTED_VERSION), (1_000.0, ErrorCode.COORDINATOR_NOT_AVAILABLE)],
)
@pytest.mark.parametrize("api_key", [76, 78, 79, 91, 92])
async def test_members_get_an_error_before_all_sequencers_know_share_groups(
    api_key: int, level_seen_s: float, error: ErrorCode
) -> None:
    """If that may change soon, the error is retriable."""
    world = new_world(share_groups=True)
    world.sequencer.level_seen_s = level_seen_s
    response = await ask(world, api_key, API_TABLE[api_key].max_version, API_TABLE[api_key].request())
    assert response.error_code == error


@pytest.mark.parametrize(("api_key", "version"), [(73, 0), (999, 3), (-1, 0), (3, 99), (1, 0), (3, -1)])
async def test_an_api_or_version_that_is_not_served_closes_the_connection(api_key: int, version: int) -> None:
    with pytest.raises(CloseConnection, match="is not served"):
        await ask_raw(new_world(), request_frame(api_key, version, b""))


@pytest.mark.parametrize(
    "frame", [b"", b"\0", b"\0\x03\0\x09", request_frame(3, 9, b""), request_frame(3, 9, b"\xff\xff\xff\xff\x0f")]
)
async def test_a_frame_that_is_no_request_closes_the_connection(frame: bytes) -> None:
    with pytest.raises(CloseConnection, match="not a request"):
        await ask_raw(new_world(), frame)


async def test_stray_bytes_after_a_request_are_ignored() -> None:
    """librdkafka leaves three in every Metadata request for all topics from version 9 on."""
    body = encode_request(3, 9, API_TABLE[3].request(topics=None))
    assert await ask_raw(new_world(), request_frame(3, 9, body + b"\0\0\0"))


async def test_a_bug_in_a_handler_ends_its_connection_only() -> None:
    async def broken(*arguments: Any) -> None:
        raise ZeroDivisionError("a bug")

    world = new_world()
    world.handlers[18] = broken
    with pytest.raises(CloseConnection, match="ZeroDivisionError in a handler"):
        await ask(world, 18, 0, API_TABLE[18].request())


async def test_requests_of_one_connection_run_one_at_a_time_in_order() -> None:
    events: list[str] = []
    gate = asyncio.Event()

    async def slow(gateway: Any, client: Any, version: int, request: Any) -> Any:
        events.append(f"begin {version}")
        await gate.wait()
        events.append(f"end {version}")
        return API_TABLE[18].response()

    world, client = new_world(), new_client()
    world.handlers[18] = slow
    tasks = [asyncio.create_task(ask(world, 18, version, API_TABLE[18].request(), client)) for version in (0, 1, 2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert events == ["begin 0"]
    gate.set()
    await asyncio.gather(*tasks)
    assert events == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]


async def test_the_pool_follows_the_client_id_of_the_latest_request() -> None:
    world, client = new_world(pool="p1"), new_client()
    for client_id, pool in (("app,pool=b", "b"), ("app", "p1")):
        await ask_raw(world, request_frame(18, 0, b"", client_id), client)
        assert client.pool == pool


async def test_the_zone_follows_the_client_id_of_the_latest_request() -> None:
    world, client = new_world(), new_client()
    for client_id, zone in (("app,zone=b", "b"), ("app", "z1")):
        await ask_raw(world, request_frame(18, 0, b"", client_id), client)
        assert (client.client_id, client.zone) == (client_id, zone)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200))
def test_random_bytes_are_answered_or_close_their_connection(data: bytes) -> None:
    survive(data)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(CASES), st.binary(max_size=120))
def test_random_bodies_are_answered_or_close_their_connection(case: Any, body: bytes) -> None:
    api_key, version = case.values
    survive(request_frame(api_key, version, body))


def survive(frame: bytes) -> None:
    async def attempt() -> None:
        world = scripted_world()
        world.sequencer.add_topic("t", 2)
        try:
            async with asyncio.timeout(60):
                await world.dispatcher.answer(new_client(), memoryview(frame), Arrival(0.0, 0))
        except CloseConnection as cause:
            assert "in a handler" not in str(cause), f"a handler failed: {cause}"

    if frame[:4] not in {struct.pack(">hh", key, version) for key in (1, 2) for version in range(20)}:
        asyncio.run(attempt())


async def test_requests_are_counted_by_api_and_version() -> None:
    world = new_world()
    for version in (3, 0, 3):
        await ask(world, 18, version, ApiVersionsRequest())
    counted = [
        world.metric("penstock_gateway_requests_total", api="ApiVersions", version=each) for each in ("0", "1", "3")
    ]
    assert counted == [1, 0, 2]
