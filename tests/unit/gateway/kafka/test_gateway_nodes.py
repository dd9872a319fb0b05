"""The brokers that a client sees: those of its zone, and one leader, on which all gateways agree."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.ids import DEFAULT_POOL
from penstock.contracts.messages import Presence
from penstock_gateway.kafka.broker_view import brokers_for, leader_for, node_of, pool_of, zone_of
from tests.unit.gateway.gateway_fakes import LISTENER, gateway_presence

OWN = node_of("10.0.0.1", 9092, "a")


def gateway(host: str, zone: str, port: int = 9092, pool: str = DEFAULT_POOL) -> Presence:
    made = gateway_presence(f"gateway-{host}-{port}", zone, PLAINTEXT=(host, port))
    return msgspec.structs.replace(made, pool=pool)


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("", "z1"),
        ("my-app", "z1"),
        ("zone=a", "a"),
        ("my-app,ws_az=us-east-1a", "us-east-1a"),
        ("diskless_az=b;team=x", "b"),
        ("timezone=utc", "z1"),
        ("zone=", "z1"),
        ("zone=a.b", "z1"),
    ],
)
def test_a_client_id_may_name_the_clients_zone(client_id: str, zone: str) -> None:
    assert zone_of(client_id, "z1") == zone


@pytest.mark.parametrize(
    ("client_id", "pool"),
    [
        ("", "p1"),
        ("my-app", "p1"),
        ("pool=analytics", "analytics"),
        ("my-app,zone=b,pool=team_a;x", "team_a"),
        ("pool=streams,-StreamThread-1-consumer", "streams"),
        ("threadpool=4", "p1"),
        ("pool=a.b", "p1"),
    ],
)
def test_a_client_id_may_name_the_clients_pool(client_id: str, pool: str) -> None:
    assert pool_of(client_id, "p1") == pool


@given(st.text(max_size=20), st.integers(0, 65535))
def test_a_node_id_is_a_positive_int32_and_always_the_same(host: str, port: int) -> None:
    node = node_of(host, port, "a")
    assert 0 < node.node_id < 2**31
    assert node == node_of(host, port, "a")


def test_the_own_gateway_is_listed_before_its_presence_arrives() -> None:
    assert brokers_for(LISTENER, "a", DEFAULT_POOL, OWN, []) == [OWN]


def test_processes_that_share_a_port_are_one_broker() -> None:
    assert brokers_for(LISTENER, "a", DEFAULT_POOL, OWN, [gateway("10.0.0.1", "a"), gateway("10.0.0.1", "a")]) == [OWN]


def test_a_client_sees_the_brokers_of_its_own_zone_only() -> None:
    others = [gateway("10.0.0.2", "b"), gateway("10.0.0.3", "b"), gateway("10.0.0.4", "a")]
    assert {node.host for node in brokers_for(LISTENER, "b", DEFAULT_POOL, OWN, others)} == {"10.0.0.2", "10.0.0.3"}


def test_a_client_of_a_zone_without_gateways_sees_all_brokers() -> None:
    assert {node.host for node in brokers_for(LISTENER, "c", DEFAULT_POOL, OWN, [gateway("10.0.0.2", "b")])} == {
        "10.0.0.1",
        "10.0.0.2",
    }


def test_a_client_sees_the_brokers_of_its_own_pool_only() -> None:
    others = [gateway("10.0.0.2", "a", pool="x"), gateway("10.0.0.3", "b", pool="x"), gateway("10.0.0.4", "a")]
    assert {node.host for node in brokers_for(LISTENER, "a", "x", OWN, others)} == {"10.0.0.2"}
    assert {node.host for node in brokers_for(LISTENER, "b", "x", OWN, others)} == {"10.0.0.3"}
    assert {node.host for node in brokers_for(LISTENER, "c", "x", OWN, others)} == {"10.0.0.2", "10.0.0.3"}
    assert {node.host for node in brokers_for(LISTENER, "a", DEFAULT_POOL, OWN, others)} == {"10.0.0.1", "10.0.0.4"}


def test_a_pool_without_gateways_has_no_brokers() -> None:
    assert brokers_for(LISTENER, "a", "x", OWN, [gateway("10.0.0.2", "a")]) == []


def test_a_gateway_without_a_listener_of_that_name_is_no_broker_there() -> None:
    assert brokers_for(LISTENER, "a", DEFAULT_POOL, OWN, [gateway_presence("g2", "a", OTHER=("10.0.0.2", 9092))]) == [
        OWN
    ]
    assert brokers_for(LISTENER, "b", DEFAULT_POOL, OWN, [gateway_presence("g2", "b", OTHER=("10.0.0.2", 9092))]) == [
        OWN
    ]


def test_an_address_that_two_zones_share_counts_in_both() -> None:
    shared = [gateway("10.0.0.1", "b"), gateway("10.0.0.2", "c")]
    assert [(node.host, node.zone) for node in brokers_for(LISTENER, "b", DEFAULT_POOL, OWN, shared)] == [
        ("10.0.0.1", "b")
    ]
    assert brokers_for(LISTENER, "a", DEFAULT_POOL, OWN, shared) == [OWN]


@given(st.text(), st.integers(2, 8), st.data())
def test_a_client_moves_only_if_its_leader_dies(client: str, count: int, data: st.DataObject) -> None:
    brokers = [node_of(f"10.0.0.{number}", 9092, "a") for number in range(count)]
    leader = leader_for(client, brokers)
    dead = data.draw(st.sampled_from([node for node in brokers if node != leader]))
    assert leader_for(client, [node for node in brokers if node != dead]) == leader


def test_clients_spread_over_the_brokers() -> None:
    brokers = [node_of(f"10.0.0.{number}", 9092, "a") for number in range(4)]
    leaders = [leader_for(f"client-{number}", brokers) for number in range(400)]
    assert all(leaders.count(node) > 50 for node in brokers)
