"""The flusher of a connection: one for all connections of a client, unless it comes through a proxy."""

import asyncio
from typing import Any

from penstock.contracts.messages import ListenerAddress, Presence
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.runtime.bus.local_first import SharedBus
from penstock_gateway.kafka.broker_view import leader_for, node_of
from tests.testkit.cancelling import turns
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.unit.gateway.gateway_fakes import LISTENER, FakeFlusher, World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask, batch

OWN = ListenerAddress(LISTENER, "gateway-1.example", 9092)
OTHER = ListenerAddress(LISTENER, "gateway-2.example", 9092)
FLUSHERS, CONNECTIONS = 4, 20


async def flushers_used(world: World, *flushers: FakeFlusher, client_id: str = "app") -> int:
    """How many of these flushers, or of four new ones, get requests from several connections of one client."""
    world.sequencer.add_topic("t", 1)
    flushers = flushers or tuple([await world.add_flusher(f"f{number}") for number in range(FLUSHERS)])
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch())])]
    running = asyncio.create_task(world.flush_router.run())
    await turns()
    for _ in range(CONNECTIONS):
        await ask(world, 0, 9, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), new_client(client_id))
    running.cancel()
    await asyncio.wait({running})
    return sum(bool(flusher.produces) for flusher in flushers)


def world_beside(*others: ListenerAddress, **options: Any) -> World:
    """The gateway `a1-gateway` at `OWN` beside others with these addresses; all are in the directory."""
    world = new_world(instance="a1-gateway", nodes={LISTENER: node_of(OWN.host, OWN.port, "z1")}, **options)
    for number, address in enumerate((OWN, *others), 1):
        world.directory.put(Presence("gateway", "z1", f"a{number}-gateway", "1", listeners=(address,)))
    return world


async def test_all_connections_of_a_client_use_one_flusher() -> None:
    assert await flushers_used(world_beside(OTHER)) == 1


async def test_behind_an_address_that_gateways_share_connections_use_all_flushers() -> None:
    assert await flushers_used(world_beside(OWN)) == FLUSHERS


async def agent(*gateways: ListenerAddress) -> tuple[World, FakeFlusher]:
    """A gateway with a flusher in its process, beside other gateways."""
    hub = MemoryHub()
    shared = SharedBus(hub.connect("process"))
    world = world_beside(*gateways, hub=hub, bus=shared.connect())
    return world, await world.add_flusher("a1-flusher", bus=shared.connect())


async def test_connections_through_a_shared_address_use_the_flusher_in_their_process() -> None:
    world, own = await agent(OWN)
    others = [await world.add_flusher(f"f{number}") for number in range(FLUSHERS)]
    assert await flushers_used(world, own, *others) == 1
    assert len(own.produces) == CONNECTIONS


async def test_a_client_uses_the_flusher_beside_its_leader_whichever_gateway_it_is_connected_to() -> None:
    """If it moves from one of these gateways to the other, its requests stay in order."""
    leaders = set()
    for number in range(8):
        client_id = f"app-{number}"
        world, _ = await agent(OTHER)
        beside = [await world.add_flusher("a2-flusher")]
        client = new_client(client_id)
        nodes = [node_of(each.host, each.port, "z1") for each in (OWN, OTHER)]
        is_own = leader_for(f"{client_id}\0{client.host}", nodes) == nodes[0]
        assert await flushers_used(world, *beside, client_id=client_id) == int(not is_own)
        leaders.add(is_own)
    assert leaders == {True, False}


async def test_the_flusher_of_a_gateway_without_this_listener_counts_by_its_name() -> None:
    internal = ListenerAddress("INTERNAL", "gateway-2.example", 9093)
    used = set()
    for number in range(8):
        world, _ = await agent(internal)
        another, _ = await agent()
        there = [await each.add_flusher("a2-flusher") for each in (world, another)]
        client_id = f"app-{number}"
        counts = [
            await flushers_used(each, flusher, client_id=client_id)
            for each, flusher in zip((world, another), there, strict=True)
        ]
        assert counts[0] == counts[1]
        used.update(counts)
    assert used == {0, 1}


async def test_a_single_gateway_is_not_behind_a_shared_address() -> None:
    assert await flushers_used(world_beside()) == 1
