"""All gateways name one coordinator for a group, and no entry of a list is missing, also while gateways change.

The worlds of this module are gateways with one view of each other.
"""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.messages import Presence
from penstock.contracts.queries.groups import GroupSummary, GroupsView
from penstock.contracts.queries.transactions import TransactionSummary, TransactionsView
from penstock.kafkawire.api.find_coordinator import Coordinator, FindCoordinatorRequest
from penstock.kafkawire.api.list_groups import ListGroupsRequest
from penstock.kafkawire.api.list_transactions import ListTransactionsRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.broker_view import coordinator_for, known_brokers, node_of
from penstock_gateway.metadata.cluster_view import CLOCKS_MS, NEWCOMER_MS
from tests.unit.gateway.gateway_fakes import LISTENER, ZONE, World, gateway_presence, new_client, new_world
from tests.unit.gateway.gateway_wire import ask

FIND_COORDINATOR, LIST_GROUPS, LIST_TRANSACTIONS = 10, 16, 66
NAMES = [f"name-{number}" for number in range(60)]
GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_KEY = "group:AAAAAAAAQACAAAAAAAAAEA:0"
FIRST_PORT = 9092


def presence(number: int, zone: str = ZONE, started_ms: int = 0) -> Presence:
    made = gateway_presence(f"g{number}", zone, **{LISTENER: ("10.0.0.1", FIRST_PORT + number)})
    return msgspec.structs.replace(made, started_ms=started_ms)


def world_of(number: int, presences: list[Presence], zone: str = ZONE) -> World:
    """The gateway with this number; it knows these presences."""
    world = new_world(nodes={LISTENER: node_of("10.0.0.1", FIRST_PORT + number, zone)})
    for each in presences:
        world.directory.put(each)
    groups = [GroupSummary(name, "consumer", "Stable") for name in NAMES]
    world.sequencer.views["groups"] = lambda query: GroupsView(1, groups)
    transactions = [TransactionSummary(name, 1, "Ongoing") for name in NAMES]
    world.sequencer.views["transactions"] = lambda query: TransactionsView(1, transactions)
    return world


def worlds_of(count: int) -> list[World]:
    presences = [presence(number) for number in range(count)]
    return [world_of(number, presences) for number in range(count)]


async def found_by(world: World, key_type: int, keys: list[str], client_id: str = "c") -> list[Coordinator]:
    asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    response = await ask(world, FIND_COORDINATOR, 6, asked, new_client(client_id))
    found: list[Coordinator] = response.coordinators
    return found


async def groups_of(world: World, client_id: str = "c") -> list[str]:
    response = await ask(world, LIST_GROUPS, 5, ListGroupsRequest(), new_client(client_id))
    assert response.error_code == ErrorCode.NONE
    return [each.group_id for each in response.groups]


async def transactions_of(world: World) -> list[str]:
    response = await ask(world, LIST_TRANSACTIONS, 1, ListTransactionsRequest(), new_client())
    assert response.error_code == ErrorCode.NONE
    return [each.transactional_id for each in response.transaction_states]


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
async def test_every_gateway_names_the_same_coordinator_and_all_of_them_have_some(key_type: int) -> None:
    first, *others = [await found_by(world, key_type, NAMES) for world in worlds_of(3)]
    assert others == [first] * 2
    assert not any(each.error_code for each in first)
    assert len({each.port for each in first}) == 3


async def test_older_versions_name_the_same_coordinator() -> None:
    worlds = worlds_of(3)
    (newest,) = await found_by(worlds[0], GROUP, ["g"])
    for world in worlds:
        older = await ask(world, FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g"))
        assert (older.node_id, older.host, older.port) == (newest.node_id, newest.host, newest.port)


async def test_a_coordinator_changes_only_if_it_dies_or_a_new_gateway_takes_the_group() -> None:
    world = worlds_of(3)[0]
    before = [each.port for each in await found_by(world, GROUP, NAMES)]
    world.directory.drop("g2")
    after = [each.port for each in await found_by(world, GROUP, NAMES)]
    moved = {port for port, now in zip(before, after, strict=True) if port != now}
    assert moved == {FIRST_PORT + 2}
    world.directory.put(presence(2))
    assert [each.port for each in await found_by(world, GROUP, NAMES)] == before


async def test_a_client_finds_coordinators_in_its_own_zone_whichever_gateway_it_asks() -> None:
    presences = [presence(0, "a"), presence(1, "a"), presence(2, "b"), presence(3, "b")]
    answers = [
        await found_by(world_of(number, presences, zone), GROUP, NAMES, "zone=b")
        for number, zone in enumerate(("a", "a", "b", "b"))
    ]
    assert answers[1:] == answers[:1] * 3
    assert {each.port for each in answers[0]} == {FIRST_PORT + 2, FIRST_PORT + 3}


async def test_the_coordinators_of_share_partitions_are_found_where_share_groups_are_on() -> None:
    topic_id = SHARE_KEY.split(":")[1]
    keys = [SHARE_KEY, "group", "", f":{topic_id}:0", f" :{topic_id}:0", "g:AAAA:0", f"g:{topic_id}:x"]
    off, on = new_world(share_groups=False), new_world()
    assert [each.error_code for each in await found_by(off, SHARE, [SHARE_KEY])] == [ErrorCode.INVALID_REQUEST]
    good, *bad = await found_by(on, SHARE, keys)
    assert (good.key, good.error_code, good.node_id) == (SHARE_KEY, 0, on.gateway.nodes[LISTENER].node_id)
    assert {each.error_code for each in bad} == {ErrorCode.INVALID_REQUEST}
    assert all("group:topicId:partition" in (each.error_message or "") for each in bad)
    older = await ask(on, FIND_COORDINATOR, 5, FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[SHARE_KEY]))
    assert older.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_each_entry_is_listed_by_its_coordinator_alone() -> None:
    worlds = worlds_of(3)
    coordinators = {each.key: each.port for each in await found_by(worlds[0], GROUP, NAMES)}
    for number, world in enumerate(worlds):
        own = [name for name in NAMES if coordinators[name] == FIRST_PORT + number]
        assert await groups_of(world) == await transactions_of(world) == own


async def test_a_gateway_that_is_no_broker_of_the_client_lists_everything_for_it() -> None:
    """Its clients ask it alone; they would find nothing otherwise."""
    world = world_of(0, [presence(0), presence(1, "b")])
    assert await groups_of(world, "zone=b") == NAMES


async def test_gateways_behind_one_address_list_everything_of_that_broker() -> None:
    shared = [msgspec.structs.replace(presence(0), instance=name) for name in ("g1", "g2", "g3")]
    assert await groups_of(world_of(0, shared)) == NAMES


@pytest.mark.parametrize("age_ms", [0, NEWCOMER_MS - 1, NEWCOMER_MS, NEWCOMER_MS + CLOCKS_MS, 10 * NEWCOMER_MS])
async def test_a_new_gateway_leaves_no_gap_for_clients_that_know_it_and_for_those_that_do_not(age_ms: int) -> None:
    worlds = [world_of(number, []) for number in range(3)]
    now_ms = worlds[0].clock.now_ms()
    for world in worlds:
        for number, started_ms in enumerate((0, 0, now_ms - age_ms)):
            world.directory.put(presence(number, started_ms=started_ms))
    lists = [await groups_of(world) for world in worlds]
    counts = Counter(name for listed in lists for name in listed)
    assert set(counts) == set(NAMES)
    assert max(counts.values()) == (2 if age_ms == NEWCOMER_MS else 1), "twice only while clocks may differ"
    if age_ms < NEWCOMER_MS:  # a client may not know it yet
        assert {*lists[0], *lists[1]} == set(NAMES) and not lists[2]
    else:
        assert lists[2]


@given(
    starts_ms=st.lists(st.integers(0, 2 * NEWCOMER_MS), min_size=1, max_size=5),
    skews_ms=st.lists(st.integers(0, CLOCKS_MS), min_size=5, max_size=5),
    now_ms=st.integers(2 * NEWCOMER_MS, 4 * NEWCOMER_MS),
)
def test_no_entry_is_missing_though_clocks_differ(starts_ms: list[int], skews_ms: list[int], now_ms: int) -> None:
    presences = [presence(number, started_ms=start_ms) for number, start_ms in enumerate(starts_ms)]
    brokers = sorted(node_of("10.0.0.1", FIRST_PORT + number, ZONE) for number in range(len(starts_ms)))
    listed = set()
    for number, skew_ms in zip(range(len(starts_ms)), skews_ms, strict=False):
        since_ms = now_ms + skew_ms - NEWCOMER_MS
        for view_ms in (since_ms, since_ms - CLOCKS_MS):
            view = known_brokers(LISTENER, brokers, presences, view_ms)
            listed |= {name for name in NAMES if coordinator_for(name, view).port == FIRST_PORT + number}
    assert listed == set(NAMES)
