"""The landing store at a real nats-server: its bound, its durability, and its errors; tests/contract has the rest."""

import asyncio

import msgspec
import pytest

from penstock.contracts.errors import Invalid, Unavailable
from penstock.objectstore import AlreadyExists, Full, NotFound, ObjectStore, RetryLimits, StoreLimits, open_store
from penstock.objectstore.limits import JetStreamLimits
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.waiting import known

SOON = StoreLimits(
    jetstream=JetStreamLimits(put_timeout_s=0.5, ask_timeout_s=0.5, create_timeout_s=2.0),
    retry=RetryLimits(deadline_s=1.0, attempt_s=1.0),
)
MIB = 1024 * 1024


def url(server: NatsServer, options: str = "") -> str:
    return f"jetstream://{server.url.removeprefix('nats://')}/objects{options}"


async def test_a_full_store_rejects_puts_keeps_its_objects_and_has_room_after_deletes(nats_server: NatsServer) -> None:
    store = await open_store(url(nats_server, f"?bytes_max={MIB}"))
    stored = []
    with pytest.raises(Full, match="full"):
        for number in range(20):
            await store.put(f"k/{number}", [bytes(100_000)])
            stored.append(f"k/{number}")
    assert 5 < len(stored) < 12
    assert [each.key for each in await store.list("")] == sorted(stored)
    await store.delete(stored)
    await store.put("k/again", [bytes(100_000)])
    assert await store.list("", after="k/0", limit=1) != []
    await store.close()


async def test_an_object_that_is_larger_than_a_message_has_no_room(nats_server: NatsServer) -> None:
    store = await open_store(url(nats_server))
    with pytest.raises(Full, match="too large"):
        await store.put("large", [bytes(5 * MIB), bytes(4 * MIB)])
    with pytest.raises(Full, match="too large"):
        await store.begin_parts("large", 5 * MIB)
    with pytest.raises(NotFound):
        await store.get("large")
    await store.close()


async def test_objects_survive_a_killed_server(nats_server: NatsServer) -> None:
    store = await open_store(url(nats_server))
    for number in range(50):
        await store.put(f"a.b/{number:02}", [b"x" * number])
    nats_server.kill()
    nats_server.start()
    assert [each.size_bytes for each in await listed(store)] == list(range(50))
    assert await store.get("a.b/49") == b"x" * 49
    with pytest.raises(AlreadyExists):
        await store.put("a.b/49", [b"other"])
    await store.close()


async def listed(store: ObjectStore) -> list[object]:
    async with asyncio.timeout(30):
        while True:
            try:
                return [*await store.list("")]
            except Unavailable:
                await asyncio.sleep(0.05)


async def opened_with_an_object(server: NatsServer) -> ObjectStore:
    """A store with limits for an absent server."""
    patient = await open_store(url(server))
    await patient.put("a", [b"bytes"])
    await patient.close()
    return await known(lambda: open_store(url(server), limits=SOON))


async def test_without_a_server_calls_end_as_unavailable(nats_server: NatsServer) -> None:
    store = await opened_with_an_object(nats_server)
    nats_server.kill()
    for call in (store.get("a"), store.put("b", [b""]), store.list(""), store.delete(["a"])):
        with pytest.raises(Unavailable):
            await call
    await store.close()


async def test_a_stream_that_vanished_is_unavailable_and_not_empty(nats_server: NatsServer) -> None:
    """A janitor that takes a lost stream for an empty one would call its segments deleted."""
    store = await opened_with_an_object(nats_server)
    connection = await connect_nats(nats_server.url, name="test")
    await connection.bus.request("$JS.API.STREAM.DELETE.penstock-landing-objects", b"", 5.0)
    await connection.close()
    for call in (store.get("a"), store.put("b", [b""]), store.list(""), store.delete(["a"])):
        with pytest.raises(Unavailable):
            await call
    await store.close()


async def test_a_stream_that_may_lose_objects_is_no_landing_store(nats_server: NatsServer) -> None:
    connection = await connect_nats(nats_server.url, name="test")
    name = "penstock-landing-objects"
    made = {"name": name, "subjects": ["penstock-landing.objects.>"], "storage": "memory", "discard": "new"}
    await connection.bus.request(f"$JS.API.STREAM.CREATE.{name}", msgspec.json.encode(made), 5.0)
    await connection.close()
    with pytest.raises(Invalid, match="is no landing store: its storage is 'memory' instead of 'file'"):
        await open_store(url(nats_server))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("jetstream://127.0.0.1:1/", "name of a landing store"),
        ("jetstream://127.0.0.1:1/a.b", "name of a landing store"),
        ("jetstream://127.0.0.1:1/x?region=y", "no jetstream option 'region'"),
    ],
)
async def test_an_address_that_is_wrong_is_rejected_with_the_reason(address: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        await open_store(address)


async def test_a_bound_that_is_no_number_is_rejected(nats_server: NatsServer) -> None:
    with pytest.raises(Invalid, match="bytes_max must be a whole number above 0"):
        await open_store(url(nats_server, "?bytes_max=4GiB"))
