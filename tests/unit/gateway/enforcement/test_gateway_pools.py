"""Pools: a gateway refuses clients of another pool, and the kind of clients that it does not serve."""

from typing import Any

import pytest

from penstock.contracts.errors import Invalid
from penstock.kafkawire.api import fetch, list_offsets, metadata, produce, share_fetch
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.config import GatewayConfig
from penstock_gateway.enforcement.pools import within_pool
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.kafka.served_clients import ServedClients, parse_served
from tests.unit.gateway.gateway_fakes import World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask

PRODUCE = produce.ProduceRequest(
    acks=-1,
    timeout_ms=1_000,
    topic_data=[produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(3)])],
)
FETCH = fetch.FetchRequest(topics=[fetch.FetchTopic("t", partitions=[fetch.FetchPartition(3)])])
SHARE_FETCH = share_fetch.ShareFetchRequest(group_id="g", member_id="m")
LIST_OFFSETS = list_offsets.ListOffsetsRequest()
WITH_RECORDS = [(0, 9, PRODUCE), (1, 12, FETCH), (78, 1, SHARE_FETCH), (2, 5, LIST_OFFSETS)]
SERVED = "served"


def gateway_that(served: ServedClients) -> World:
    """A gateway of the pool p1 whose handlers end with an exception: they were reached."""

    async def reached(*_: Any) -> None:
        raise CloseConnection(SERVED)

    world = new_world(pool="p1")
    world.handlers.update(within_pool(dict.fromkeys(world.handlers, reached), served))
    return world


async def answer(world: World, request: tuple[int, int, Any], pool: str = "p1") -> Any:
    return await ask(world, *request, new_client(f"app,pool={pool}"))


@pytest.mark.parametrize("request_", WITH_RECORDS)
@pytest.mark.parametrize("served", ServedClients)
async def test_a_client_of_another_pool_gets_and_gives_no_records(
    request_: tuple[int, int, Any], served: ServedClients
) -> None:
    with pytest.raises(CloseConnection, match="the client is of the pool 'p2', and this gateway of 'p1'"):
        await answer(gateway_that(served), request_, "p2")


async def test_a_client_of_another_pool_may_ask_for_the_gateways_of_its_own() -> None:
    with pytest.raises(CloseConnection, match=SERVED):
        await answer(gateway_that(ServedClients.ALL), (3, 9, metadata.MetadataRequest()), "p2")


@pytest.mark.parametrize("request_", WITH_RECORDS)
async def test_by_default_all_clients_of_the_pool_are_served(request_: tuple[int, int, Any]) -> None:
    with pytest.raises(CloseConnection, match=SERVED):
        await answer(gateway_that(ServedClients.ALL), request_)


async def test_a_gateway_for_consumers_refuses_producers_and_says_why() -> None:
    world = gateway_that(ServedClients.CONSUMERS)
    (topic,) = (await answer(world, WITH_RECORDS[0])).responses
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code) == ("t", 3, ErrorCode.POLICY_VIOLATION)
    assert "serve no producers" in partition.error_message
    for request in WITH_RECORDS[1:]:
        with pytest.raises(CloseConnection, match=SERVED):
            await answer(world, request)


async def test_without_an_answer_the_connection_of_a_refused_producer_ends() -> None:
    unanswered = produce.ProduceRequest(acks=0, topic_data=PRODUCE.topic_data)
    with pytest.raises(CloseConnection, match="serve no producers"):
        await answer(gateway_that(ServedClients.CONSUMERS), (0, 9, unanswered))


async def test_a_gateway_for_producers_refuses_reads() -> None:
    world = gateway_that(ServedClients.PRODUCERS)
    (topic,) = (await answer(world, WITH_RECORDS[1])).responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (3, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ]
    assert (await answer(world, WITH_RECORDS[2])).error_code == ErrorCode.POLICY_VIOLATION
    for request in (WITH_RECORDS[0], WITH_RECORDS[3]):
        with pytest.raises(CloseConnection, match=SERVED):
            await answer(world, request)


def test_wrong_settings_are_rejected() -> None:
    assert parse_served("consumers") is ServedClients.CONSUMERS
    with pytest.raises(Invalid, match="served_clients must be all, producers or consumers: 'both'"):
        GatewayConfig(served_clients="both")
    with pytest.raises(Invalid, match="pool"):
        GatewayConfig(pool="a.b")
