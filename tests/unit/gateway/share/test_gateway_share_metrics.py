"""The metrics of a gateway about share groups."""

from tests.unit.gateway.gateway_read_world import World, batch_of
from tests.unit.gateway.gateway_share import ACCEPT, REJECT, RELEASE, joined_members, open_world


def counted(world: World, name: str, **labels: str) -> float:
    return world.registry.get_sample_value(f"penstock_gateway_share_{name}_total", labels) or 0.0


async def test_acquired_and_acknowledged_records_are_counted() -> None:
    world = World()
    topic_id = await open_world(world)
    one, two = await joined_members(world, topic_id, "m1", "m2")
    await world.produce(topic_id, {0: [batch_of(b"a", b"b", b"c", b"d")]})
    await one.fetch(0)
    await one.acknowledge({0: [(0, 1, ACCEPT), (2, 2, RELEASE), (3, 3, REJECT)]})
    assert counted(world, "acquired_records", delivery="first") == 4
    assert counted(world, "acknowledged_records", kind="accept") == 2
    assert counted(world, "acknowledged_records", kind="release") == 1
    assert counted(world, "acknowledged_records", kind="reject") == 1
    await two.fetch(0)
    assert counted(world, "acquired_records", delivery="again") == 1
    await one.acknowledge({0: [(2, 2, ACCEPT)]})
    assert counted(world, "acknowledged_records", kind="accept") == 2, "a rejected acknowledgement was counted"
    assert counted(world, "refused_acknowledgements", error="INVALID_RECORD_STATE") == 1
    await world.close()


async def test_the_bytes_of_acquired_records_are_counted_by_topic() -> None:
    world = World()
    topic_id = await open_world(world)
    (one,) = await joined_members(world, topic_id, "m1")
    data = batch_of(b"a", b"b", b"c", b"d")
    await world.produce(topic_id, {0: [data]})
    await one.fetch(0)
    read = world.registry.get_sample_value("penstock_gateway_topic_read_bytes_total", {"topic": "t"})
    assert read == len(data)
    await world.close()
