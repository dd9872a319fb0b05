"""The read path over a real bus and a real cacher: large answers, lost cachers, lost announcements."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from penstock.contracts.commands import PerItem, Tick
from penstock.contracts.ids import ENTROPY_BYTES, TopicId, new_segment_id
from penstock.contracts.rejections import Rejection
from penstock.objectstore import ObjectStore
from penstock.runtime.nats.client import NatsConnection
from penstock.segment.keys import segment_key
from penstock_cacher.app import Cacher
from penstock_cacher.config import CacherConfig
from penstock_cacher.metrics import CacherMetrics
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.segments.limits import HedgingLimits, SegmentLimits
from tests.testkit.loads.compaction import compacted, extents_of
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_read_world import (
    CLUSTER,
    START_MS,
    ZONE,
    World,
    asking,
    batch_of,
    partitions_of,
    values_of,
)

MIB = 1024 * 1024
LONG_MS = 60_000
# No hedges against a slow cacher: it shares a process with the gateway, and the machine with other tests.
NO_HEDGES = SegmentLimits(
    cacher_timeout_s=LONG_MS / 1000,
    hedging=HedgingLimits(timeout_s_min=LONG_MS / 1000, timeout_s_max=LONG_MS / 1000),
)


class NoWriters:
    """A directory in which a cacher finds no writer, so that it reads the store."""

    def get(self, instance: str) -> None:
        return None


@pytest.fixture
async def world(nats_server: NatsServer) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        gateway, sequencer = [await connected(stack, nats_server, name) for name in ("gateway", "sequencer")]
        made = World(gateway.bus, sequencer.bus, limits=GatewayLimits(segments=NO_HEDGES))
        await made.open()
        yield made
        assert made.tail.watched_partitions == 0
        await made.tail.close()


async def connected(stack: contextlib.AsyncExitStack, server: NatsServer, name: str) -> NatsConnection:
    connection = await connect_nats(server.url, name=name)
    stack.push_async_callback(connection.close)
    return connection


@contextlib.asynccontextmanager
async def running_cacher(server: NatsServer, store: ObjectStore, name: str, world: World) -> AsyncIterator[None]:
    config = CacherConfig(cluster=CLUSTER, zone=ZONE, instance=name)
    async with contextlib.AsyncExitStack() as stack:
        bus = (await connected(stack, server, name)).bus
        cacher = Cacher(
            config=config,
            bus=bus,
            store=store,
            directory=cast(Any, NoWriters()),
            clock=world.clock,
            metrics=CacherMetrics(CollectorRegistry()),
        )
        await cacher.open()
        await bus.flush()
        world.directory.change([*world.directory.cachers, name])
        stack.push_async_callback(cacher.close)
        stack.push_async_callback(cacher.drain)
        yield


def read_bytes(world: World, source: str) -> float:
    return world.registry.get_sample_value("penstock_gateway_read_bytes_total", {"source": source}) or 0


async def fetch_all(world: World, count: int) -> dict[int, bytes | None]:
    got: dict[int, bytes | None] = {}
    while len(got) < count:
        request = asking({0: len(got)}, max_wait_ms=LONG_MS, partition_max_bytes=12 * MIB)
        answer = partitions_of(await world.fetch(request))[0]
        assert answer.error_code == 0
        got |= values_of(answer)
    return got


async def test_records_larger_than_a_message_come_through_cachers_and_without_them(
    world: World, nats_server: NatsServer
) -> None:
    topic_id = b"t".ljust(16, b"\1")
    values = [bytes([number]) * (700_000 + number) for number in range(30)]
    for start in range(0, 30, 10):
        await world.produce(topic_id, {0: [batch_of(value) for value in values[start : start + 10]]})
    expected = dict(enumerate(values))
    async with running_cacher(nats_server, world.store, "c1", world):
        async with running_cacher(nats_server, world.store, "c2", world):
            assert await fetch_all(world, 30) == expected
            assert read_bytes(world, "store") == 0
        assert await fetch_all(world, 30) == expected  # c2 is gone, without a report
        assert read_bytes(world, "store") == 0
    assert await fetch_all(world, 30) == expected
    assert read_bytes(world, "store") >= sum(map(len, values))


async def test_the_middle_of_a_compacted_run_is_read_from_the_cachers_that_own_its_chunks(
    world: World, nats_server: NatsServer
) -> None:
    topic_id = b"t".ljust(16, b"\1")
    values = [bytes([number]) * 200_000 for number in range(80)]
    for start in range(0, 80, 20):
        await world.produce(topic_id, {0: [batch_of(value) for value in values[start : start + 20]]})
    await merge(world, topic_id)
    async with running_cacher(nats_server, world.store, "c1", world):
        async with running_cacher(nats_server, world.store, "c2", world):
            for offset in (79, 1, 40, 66, 13):
                answer = partitions_of(await world.fetch(asking({0: offset}, partition_max_bytes=MIB)))[0]
                got = values_of(answer)
                assert got == {number: values[number] for number in range(offset, min(offset + len(got), 80))}
                assert len(got) >= min(4, 80 - offset)
            assert read_bytes(world, "store") == 0
            assert read_bytes(world, "cache") < 12 * MIB, "more was read than the chunks of the record"
        assert await fetch_all(world, 80) == dict(enumerate(values))


async def merge(world: World, topic_id: TopicId) -> None:
    """Move all extents of partition 0 to one compacted segment, and delete the old segments."""
    extents = extents_of(world.sequencer.state, topic_id, 0)
    old = [segment_key("", CLUSTER, 0, extent.segment.segment_id) for extent in extents]
    data = {
        extent: await world.store.get_range(key, extent.position, extent.length)
        for key, extent in zip(old, extents, strict=True)
    }
    segment_id = new_segment_id(START_MS, bytes(ENTROPY_BYTES))
    made = compacted(segment_id, [(topic_id, 0, extents)], data.__getitem__, now_ms=START_MS, level=2)
    await world.store.put(segment_key("", CLUSTER, 2, segment_id), made.body)
    assert await world.commit([made.command]) == [PerItem([Rejection.NONE])]
    await world.store.delete(old)


async def test_a_waiting_fetch_gets_records_that_were_committed_while_the_bus_was_down(
    world: World, nats_server: NatsServer
) -> None:
    topic_id = b"t".ljust(16, b"\1")
    waiting = asyncio.create_task(world.fetch(asking({0: 0}, max_wait_ms=LONG_MS)))
    await until(lambda: world.tail.watched_partitions == 1)
    nats_server.kill()
    await until(lambda: not world.bus.is_connected)
    await world.produce(topic_id, {0: [batch_of(b"a")]}, announce=False)
    nats_server.start()
    await until(lambda: world.bus.is_connected and world.publisher.is_connected)
    await world.bus.flush()
    await world.commit([Tick(START_MS)])
    assert values_of(partitions_of(await waiting)[0]) == {0: b"a"}
