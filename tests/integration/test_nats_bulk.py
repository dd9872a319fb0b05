"""Large messages over NATS, between small ones: they arrive whole and in order for every split of the bytes."""

import asyncio
import random

import pytest

from penstock.runtime.nats.bulk_messages import BULK_BYTES_MIN, READ_BYTES, BulkTransport, OneCopyParser
from penstock.runtime.nats.patched_client import PatchedClient
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer

TIMEOUT_S = 120.0
SIZES = [0, 1, BULK_BYTES_MIN - 1, BULK_BYTES_MIN, READ_BYTES, 4 * 2**20 + 7, 8 * 2**20 - 100]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_messages_of_all_sizes_arrive_whole_and_in_order(shared_nats_server: NatsServer, kind: type) -> None:
    chance = random.Random(1)
    sent = [chance.randbytes(chance.choice(SIZES)) for _ in range(40)]
    received: list[bytes] = []
    async with asyncio.timeout(TIMEOUT_S):
        one = await connect_nats(shared_nats_server.url, name="one")
        other = await connect_nats(shared_nats_server.url, name="other")

        async def take(message: object) -> None:
            received.append(message.data)

        await other.bus.subscribe("bulk", take)
        await other.bus.flush()
        for data in sent:
            await one.bus.publish("bulk", kind(data))
        await one.bus.flush()
        await other.bus.flush()
        while len(received) < len(sent):
            await asyncio.sleep(0.001)
        await one.close()
        await other.close()
    assert received == sent
    assert all(type(data) is bytes for data in received)


async def test_concurrent_senders_do_not_mix_their_bytes(shared_nats_server: NatsServer) -> None:
    received: list[bytes] = []
    async with asyncio.timeout(TIMEOUT_S):
        connection = await connect_nats(shared_nats_server.url, name="many")

        async def echo(message: object) -> None:
            received.append(message.data)
            await message.respond(message.data)

        await connection.bus.subscribe("echo", echo)
        await connection.bus.flush()
        questions = [bytes([number]) * (2**20 if number % 3 else 10) for number in range(60)]
        answers = await asyncio.gather(*(connection.bus.request("echo", data, TIMEOUT_S) for data in questions))
        await connection.close()
    assert answers == questions


async def test_the_client_still_has_the_parts_that_are_replaced(shared_nats_server: NatsServer) -> None:
    client = PatchedClient()
    connection = await connect_nats(shared_nats_server.url, name="parts", client=client)
    assert type(client.transport) is BulkTransport
    assert type(client.parser) is OneCopyParser
    assert type(client.parser.buf[:0]) is bytes
    await connection.close()


async def test_the_replaced_parts_of_the_client_stay_after_a_restart_of_the_server(nats_server: NatsServer) -> None:
    client = PatchedClient()
    connection = await connect_nats(nats_server.url, name="parts", client=client)
    nats_server.kill()
    async with asyncio.timeout(TIMEOUT_S):
        while client.is_connected:
            await asyncio.sleep(0.01)
        nats_server.start()
        while not client.is_connected:
            await asyncio.sleep(0.01)
    assert type(client.transport) is BulkTransport
    await connection.bus.flush()
    await connection.close()
