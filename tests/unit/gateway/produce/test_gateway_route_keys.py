"""The flusher of a connection: one for all connections of a client, unless it comes through a proxy."""

import asyncio
from typing import Any

import pytest

from penstock.contracts.messages import ListenerAddress, Presence
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.runtime.bus.local_first import SharedBus
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.unit.gateway.gateway_fakes import LISTENER, FakeFlusher, World, new_client, new_world, turns
from tests.unit.gateway.gateway_wire import ask, batch

OWN = ListenerAddress(LISTENER, "gateway-1.example", 9092)
OTHER = ListenerAddress(LISTENER, "gateway-2.example", 9092)
FLUSHERS, CONNECTIONS = 4, 20


async def flushers_used(world: World, *own: FakeFlusher, client_id: str = "app") -> int:
    """How many flushers get requests from several connections of one client, `own` among them."""
    world.sequencer.add_topic("t", 1)
    flushers = [*own, *[await world.add_flusher(f"f{number}") for number in range(FLUSHERS - len(own))]]
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch())])]
    running = asyncio.create_task(world.flush_router.run())
    await turns()
    for _ in range(CONNECTIONS):
        await ask(world, 0, 9, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), new_client(client_id))
    running.cancel()
    await asyncio.wait({running})
    return sum(bool(flusher.produces) for flusher in flushers)


def world_beside(*others: ListenerAddress, advertised: ListenerAddress | None, **options: Any) -> World:
    """A gateway beside others with these addresses; its own presence is in the directory, too."""
    world = new_world(advertised={} if advertised is None else {LISTENER: advertised}, **options)
    for number, address in enumerate((advertised or OWN, *others), 1):
        world.directory.put(Presence("gateway", "z1", f"g{number}", "1", listeners=(address,)))
    return world


@pytest.mark.parametrize(
    ("advertised", "other"), [(None, OTHER), (OWN, OTHER)], ids=["no advertised address", "each its own address"]
)
async def test_all_connections_of_a_client_use_one_flusher(
    advertised: ListenerAddress | None, other: ListenerAddress
) -> None:
    assert await flushers_used(world_beside(other, advertised=advertised)) == 1


async def test_behind_an_address_that_gateways_share_connections_use_all_flushers() -> None:
    assert await flushers_used(world_beside(OWN, advertised=OWN)) == FLUSHERS


async def agent(*gateways: ListenerAddress) -> tuple[World, FakeFlusher]:
    """A gateway with a flusher in its process, beside other gateways; it advertises `OWN`."""
    hub = MemoryHub()
    shared = SharedBus(hub.connect("process"))
    world = world_beside(*gateways, advertised=OWN, hub=hub, bus=shared.connect())
    return world, await world.add_flusher("own", bus=shared.connect())


async def test_connections_through_a_proxy_use_the_flusher_in_their_process() -> None:
    world, own = await agent(OWN)
    assert await flushers_used(world, own) == 1
    assert len(own.produces) == CONNECTIONS


async def test_the_flusher_in_the_process_does_not_matter_for_a_client_that_may_move_to_another_gateway() -> None:
    used = set()
    for number in range(8):
        world, own = await agent(OTHER)
        await flushers_used(world, own, client_id=f"app-{number}")
        used.add(len(own.produces))
    assert used == {0, CONNECTIONS}, "the client's name chooses one flusher for all gateways"


async def test_a_single_gateway_with_an_advertised_address_is_not_behind_a_proxy() -> None:
    assert await flushers_used(world_beside(advertised=OWN)) == 1
