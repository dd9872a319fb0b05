"""Decoded memory: a request is decoded in its turn, a large one with a reservation, and Produce stays in order."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.kafkawire.api import encode_request
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock_gateway.kafka.client import Arrival, Client
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.server.dispatch import Dispatcher
from penstock_gateway.server.limits import DecodingLimits
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_fakes import new_client, new_world
from tests.unit.gateway.gateway_wire import request_frame

PRODUCE, METADATA = 0, 3
LIMITS = DecodingLimits(elements_steps=(4, 10, 100), element_bytes=1, reserved_bytes_max=100)


class Gateway:
    """A dispatcher whose handlers wait until they are released."""

    def __init__(self, limits: DecodingLimits = LIMITS) -> None:
        self.begun: list[int] = []  # the number of elements of each request, in the order in which handlers ran
        self.seen_large: list[bool] = []
        self.may_end = asyncio.Event()
        world = new_world()
        self.dispatcher = Dispatcher(world.gateway, {METADATA: self._metadata, PRODUCE: self._produce}, limits)

    async def _metadata(self, gateway: Any, client: Client, version: int, request: MetadataRequest) -> MetadataResponse:
        self.begun.append(len(request.topics or []))
        self.seen_large.append(client.has_large_request)
        await self.may_end.wait()
        return MetadataResponse()

    async def _produce(self, gateway: Any, client: Client, version: int, request: ProduceRequest) -> ProduceResponse:
        async with client.produce_order:
            self.begun.append(len(request.topic_data[0].partition_data))
        return ProduceResponse()

    async def answer(self, client: Client, frame: bytes) -> object:
        return await self.dispatcher.answer(client, memoryview(frame), Arrival(0.0, 0))

    def send(self, client: Client, frame: bytes) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.answer(client, frame))


def metadata(topics: int) -> bytes:
    request = MetadataRequest([MetadataRequestTopic(name=f"t{number}") for number in range(topics)])
    return request_frame(METADATA, 9, encode_request(METADATA, 9, request))


def produce(partitions: int) -> bytes:
    data = [PartitionProduceData(number, b"") for number in range(partitions)]
    request = ProduceRequest(None, -1, 1_000, [TopicProduceData("t", partition_data=data)])
    return request_frame(PRODUCE, 9, encode_request(PRODUCE, 9, request))


async def test_a_request_is_decoded_when_the_requests_before_it_are_answered() -> None:
    gateway, client = Gateway(), new_client()
    first = gateway.send(client, metadata(1))
    not_a_request = gateway.send(client, metadata(3)[:-5])
    await until(lambda: gateway.begun == [1])
    assert not not_a_request.done()
    gateway.may_end.set()
    assert await first
    with pytest.raises(CloseConnection, match="not a request"):
        await not_a_request


async def test_large_requests_wait_for_the_memory_of_others_and_small_ones_do_not() -> None:
    gateway = Gateway()
    first = gateway.send(new_client(), metadata(60))
    await until(lambda: gateway.begun == [60])
    second = gateway.send(new_client(), metadata(60))
    small = gateway.send(new_client(), metadata(4))
    await until(lambda: gateway.begun == [60, 4])
    assert not second.done()
    gateway.may_end.set()
    await asyncio.gather(first, second, small)
    assert gateway.begun == [60, 4, 60]
    assert gateway.seen_large == [True, False, True]


async def test_a_request_reserves_the_memory_of_its_size() -> None:
    gateway = Gateway()
    requests = [gateway.send(new_client(), metadata(count)) for count in (9, 9, 9, 9)]
    await until(lambda: len(gateway.begun) == 4)
    gateway.may_end.set()
    await asyncio.gather(*requests)


async def test_a_connection_that_ends_gives_its_memory_back() -> None:
    gateway = Gateway()
    first = gateway.send(new_client(), metadata(60))
    await until(lambda: gateway.begun == [60])
    queued, second = gateway.send(new_client(), metadata(60)), gateway.send(new_client(), metadata(70))
    await asyncio.sleep(0)
    for task in (queued, first):
        task.cancel()
    await until(lambda: gateway.begun == [60, 70])
    gateway.may_end.set()
    await second


async def test_a_large_request_without_an_answer_in_time_ends_its_connection_and_gives_its_memory_back() -> None:
    gateway = Gateway(msgspec.structs.replace(LIMITS, large_request_s_max=0.05))
    small = gateway.send(new_client(), metadata(4))
    await until(lambda: gateway.begun == [4])
    first, second = gateway.send(new_client(), metadata(60)), gateway.send(new_client(), metadata(70))
    for large in (first, second):
        with pytest.raises(CloseConnection, match="many elements took more than"):
            await asyncio.wait_for(large, 60)
    assert gateway.dispatcher.decoder.reserved_bytes == 0
    assert not small.done()
    gateway.may_end.set()
    await small


async def test_a_request_with_too_many_elements_ends_its_connection() -> None:
    gateway = Gateway()
    with pytest.raises(CloseConnection, match="too many"):
        await gateway.send(new_client(), metadata(101))
    gateway.may_end.set()
    await gateway.send(new_client(), metadata(100))


async def test_a_produce_request_does_not_overtake_a_large_one_that_waits_for_memory() -> None:
    gateway, client = Gateway(), new_client()
    other = gateway.send(new_client(), metadata(60))
    await until(lambda: gateway.begun == [60])
    requests = [gateway.send(client, produce(count)) for count in (1, 70, 2, 8, 3)]
    await until(requests[0].done)
    assert gateway.begun == [60, 1]
    gateway.may_end.set()
    await asyncio.gather(other, *requests)
    assert gateway.begun == [60, 1, 70, 2, 8, 3]
