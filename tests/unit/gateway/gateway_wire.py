"""The client's side of a request: encodes the header and the body, and decodes the answer."""

import struct
from typing import Any

import msgspec

from penstock.kafkawire.api import API_TABLE, decode_response, encode_request, is_flexible, serves
from penstock.kafkawire.records import Record, build_batch
from penstock_gateway.kafka.client import Arrival, Client
from tests.unit.gateway.gateway_fakes import World, joined, new_client

CORRELATION_ID = 77


def request_frame(api_key: int, version: int, body: bytes, client_id: str | None = "test-client") -> bytes:
    """A request frame without its length."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if serves(api_key, version) and is_flexible(API_TABLE[api_key], version) else b""
    return struct.pack(">hhih", api_key, version, CORRELATION_ID, length) + name + tags + body


async def ask_raw(world: World, frame: bytes, client: Client | None = None) -> bytes:
    """Send a frame; return the whole answer with length and header, empty if there is none."""
    arrival = Arrival(world.clock.monotonic_s(), world.sequencer.seen_sequence)
    return joined(await world.dispatcher.answer(client or new_client(), memoryview(frame), arrival))


async def ask(world: World, api_key: int, version: int, request: msgspec.Struct, client: Client | None = None) -> Any:
    """Send one request; return the answer, None if there is none."""
    frame = request_frame(
        api_key, version, encode_request(api_key, version, request), (client or new_client()).client_id
    )
    data = await ask_raw(world, frame, client)
    if not data:
        return None
    length, correlation_id = struct.unpack_from(">ii", data)
    assert (length, correlation_id) == (len(data) - 4, CORRELATION_ID)
    is_tagged = api_key != 18 and is_flexible(API_TABLE[api_key], version)
    return decode_response(api_key, version, data[9 if is_tagged else 8 :])


def batch(count: int = 1, **options: Any) -> bytes:
    """A valid record batch."""
    return build_batch([Record(value=b"value", offset_delta=number) for number in range(count)], **options)
