"""A flusher may commit a request without a producer id only while its client waits for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.contracts import subjects
from penstock.contracts.batches import BatchMeta
from penstock.contracts.codec import decode, encode
from penstock.contracts.messages import ConfirmReply, ConfirmRequest, FlushBatch
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import encode_request
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.produce.flush_router import first_number_at
from penstock_gateway.produce.limits import ProduceLimits
from penstock_gateway.produce.producer_route import Flushed, ProducerRoute
from tests.testkit.cancelling import turns
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_fakes import CLUSTER, FakeFlusher, World, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask_raw, batch, request_frame

PRODUCE = 0
LEASE_MS = 100


@asynccontextmanager
async def opened() -> AsyncIterator[World]:
    limits = ProduceLimits(commit_lease_s=LEASE_MS / 1000, answer_timeout_s_min=60.0)
    world = new_world(limits=GatewayLimits(produce=limits))
    await world.flush_router.open()
    async with with_flushes(world):
        yield world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


@pytest.fixture
async def flusher(world: World) -> FakeFlusher:
    flusher = await world.add_flusher("f1")
    flusher.answers_at_once = False
    return flusher


def submit(world: World, route: ProducerRoute | None = None, timeout_s: float = 30.0) -> "asyncio.Future[Flushed]":
    route = route or world.flush_router.open_route(lambda: None)
    meta = BatchMeta(100, 1, 0, -1, -1, -1, 0)
    return route.submit([FlushBatch(bytes(16), 0, meta)], [b"x" * 100], timeout_s, needs_confirmation=True)


async def leases_ms(world: World, *requests: int) -> list[int]:
    question = encode(ConfirmRequest(list(requests)))
    return decode(await world.bus.request(subjects.confirm(CLUSTER, "g1"), question, 60.0), ConfirmReply).leases_ms


async def test_a_request_is_confirmed_until_it_is_answered(world: World, flusher: FakeFlusher) -> None:
    future = submit(world)
    await turns()
    assert [produce.needs_confirmation for produce in flusher.produces] == [True]
    assert await leases_ms(world, 1) == [LEASE_MS]
    await flusher.answer_all()
    await future
    await turns()
    assert await leases_ms(world, 1, 99) == [0, 0]


async def test_a_gateway_that_starts_again_under_its_name_confirms_no_request_of_its_earlier_process() -> None:
    now_ms, served = 1_700_000_000_000, 100_000
    world = new_world(first_number=first_number_at(now_ms + 1_000))
    await world.flush_router.open()
    submit(world)
    earlier = first_number_at(now_ms)
    assert await leases_ms(world, earlier, earlier + 1, earlier + served) == [0, 0, 0]
    assert await leases_ms(world, first_number_at(now_ms + 1_000)) != [0]


async def test_a_request_of_a_closed_connection_is_not_confirmed(world: World, flusher: FakeFlusher) -> None:
    closed = world.flush_router.open_route(lambda: None)
    submit(world, closed), submit(world)
    await turns()
    closed.close()
    assert await leases_ms(world, 1, 2) == [0, LEASE_MS]


async def test_a_lease_ends_with_the_time_that_the_client_waits(world: World, flusher: FakeFlusher) -> None:
    submit(world, timeout_s=10)
    await turns()
    world.clock.now_s += 9.96
    assert 0 < (await leases_ms(world, 1))[0] <= 40
    world.clock.now_s += 1
    assert await leases_ms(world, 1) == [0]


async def test_the_time_that_a_request_waits_in_the_gateway_is_a_part_of_the_clients(
    world: World, flusher: FakeFlusher
) -> None:
    """Otherwise a draining gateway confirms a request after its client has sent it again elsewhere."""
    world.sequencer.add_topic("t")
    world.sequencer.hold = asyncio.Event()
    data = TopicProduceData("t", partition_data=[PartitionProduceData(0, batch())])
    body = encode_request(PRODUCE, 9, ProduceRequest(None, -1, 10_000, [data]))
    asked = asyncio.create_task(ask_raw(world, request_frame(PRODUCE, 9, body)))
    await turns()
    world.clock.now_s += 9.96
    world.sequencer.hold.set()
    await until(lambda: flusher.produces)
    assert 0 < (await leases_ms(world, 1))[0] <= 40
    world.clock.now_s += 1
    assert await leases_ms(world, 1) == [0]
    await flusher.answer_all()
    await asked


async def test_a_gateway_that_stood_still_confirms_nothing(world: World, flusher: FakeFlusher) -> None:
    submit(world)
    await turns()
    world.flush_router.has_stalled = lambda: True
    assert await leases_ms(world, 1) == [0]


@in_virtual_time
async def test_a_flusher_that_is_gone_is_given_up_when_its_leases_have_ended() -> None:
    async with opened() as world:
        (await world.add_flusher("f1")).answers_at_once = False
        confirmed, other = submit(world), submit(world)
        await turns()
        await leases_ms(world, 1)
        world.directory.drop("f1")
        await turns()
        assert not confirmed.done()
        assert await leases_ms(world, 1) == [0], "no lease begins any more"
        async with asyncio.timeout(60):
            await confirmed
    assert confirmed.result().results[0].rejection == Rejection.OUTCOME_UNKNOWN
    assert other.result().results[0].rejection == Rejection.OUTCOME_UNKNOWN
