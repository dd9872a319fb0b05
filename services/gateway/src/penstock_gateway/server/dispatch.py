"""Answers one frame: decodes it, runs its handler in the connection's order, and contains all errors of a request."""

import asyncio
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol

import msgspec
import structlog

from penstock.contracts.errors import Invalid, Unavailable
from penstock.kafkawire.api import API_TABLE, encode_response, serves
from penstock.kafkawire.api.api_versions import API as API_VERSIONS
from penstock.kafkawire.api.fetch import API as FETCH
from penstock.kafkawire.api.produce import API as PRODUCE
from penstock.kafkawire.api.sasl_authenticate import API as SASL_AUTHENTICATE
from penstock.kafkawire.api.sasl_handshake import API as SASL_HANDSHAKE
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.frame import LENGTH_BYTES, RequestHeader, read_request_header, response_frame
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.schema import has_more_elements
from penstock.runtime.concurrency.ending import to_the_end
from penstock_gateway.handlers import Handler
from penstock_gateway.handlers.discovery.api_versions import unsupported_version
from penstock_gateway.kafka.broker_view import pool_of, zone_of
from penstock_gateway.kafka.client import Arrival, Client
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.kafka.parts import HasClock, HasMetrics, HasSettings, HasTraces
from penstock_gateway.quotas.quota_cache import HasQuotas
from penstock_gateway.quotas.throttle import handle_within_quotas
from penstock_gateway.security.login.logins import HasLogins
from penstock_gateway.server.encoded_answers import EncodedAnswers
from penstock_gateway.server.limits import DecodingLimits, RejectionLogLimits
from penstock_gateway.server.rejection_log import shortened
from penstock_gateway.server.request_decoder import RequestDecoder

API_KEY_BYTES = 2
PRODUCE_KEY = PRODUCE.key.to_bytes(API_KEY_BYTES, "big")
# Before a login the user is unknown, so that no quota can be meant.
WITHOUT_QUOTAS = (SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key)
TRACED = {PRODUCE.key: "produce", FETCH.key: "fetch"}

log = structlog.get_logger()


class Needs(HasClock, HasLogins, HasMetrics, HasQuotas, HasSettings, HasTraces, Protocol):
    """The parts of the gateway that the dispatcher itself uses; handlers use more of them."""


def is_serial(frame: Buffer) -> bool:
    """Whether the request waits until all earlier requests except Produce are answered."""
    return frame[:API_KEY_BYTES] != PRODUCE_KEY


class Dispatcher:
    """Decodes requests, runs their handlers, encodes the answers."""

    def __init__(self, gateway: Needs, handlers: Mapping[int, Handler], limits: DecodingLimits | None = None) -> None:
        self._gateway = gateway
        self._respond = self._traced if gateway.traces.is_on else self._answered
        self._handlers = handlers
        self._limits = limits or DecodingLimits()
        self._decoder = RequestDecoder(self._limits)
        self._encoding_turn = asyncio.Lock()
        self._encoded = EncodedAnswers(self._limits.kept_answers_max, self._limits.kept_answer_bytes_max)

    async def answer(self, client: Client, frame: memoryview, arrival: Arrival) -> list[Buffer]:
        """The answer's frame as buffers to send, empty if there is no answer; raises only `CloseConnection`.

        This is the boundary that contains the errors of one request.
        """
        try:
            return await self._answer(client, frame, arrival)
        except CloseConnection:
            raise
        except DecodeError as error:
            raise CloseConnection(f"not a request: {error}") from error
        except Unavailable as error:
            raise CloseConnection(f"cannot answer now: {error}") from error
        except Invalid as error:
            raise CloseConnection(f"cannot be sent to the sequencers: {error}") from error
        except Exception as error:  # noqa: BLE001  the one boundary: a bug ends the connection of its request only
            bug = error
        client_id = shortened(client.client_id, RejectionLogLimits().client_id_max)
        log.error("request_failed", peer=client.host, client_id=client_id, exc_info=bug)
        raise CloseConnection(f"{type(bug).__name__} in a handler") from bug

    @property
    def decoder(self) -> RequestDecoder:
        """The memory of large requests."""
        return self._decoder

    async def _answer(self, client: Client, frame: memoryview, arrival: Arrival) -> list[Buffer]:
        gateway = self._gateway
        began_s = gateway.clock.monotonic_s()
        if client.needs_login and gateway.logins.sends_raw_tokens(client):
            return _raw_frame(await gateway.logins.take_raw_token(client, bytes(frame)))
        header, position = read_request_header(frame)
        self._record_client(client, header)
        if not serves(header.api_key, header.api_version):
            return _reject_version(header)
        async with AsyncExitStack() as held:
            if header.api_key == PRODUCE.key:
                # A large request may wait for memory, and a later one must not overtake it. The handler waits for its
                # place in `produce_order` before anything else, so the requests stay in order.
                async with client.decode_order:
                    self._check_login(client, header)
                    request, _ = await self._decoder.decode(held, header, frame, position)
                client.produce_arrived_s = arrival.at_s  # the handler takes it before it waits for anything
                return await self._respond(client, header, request, began_s)
            # Decoded only in its turn, because decoded requests take much more memory than their frames.
            await held.enter_async_context(client.serial_order)
            await client.takes_answers.wait()
            self._check_login(client, header)
            client.begin_request(arrival)
            request, client.has_large_request = await self._decoder.decode(held, header, frame, position)
            return await self._respond(client, header, request, began_s)

    async def _traced(self, client: Client, header: RequestHeader, request: Any, began_s: float) -> list[Buffer]:
        name = TRACED.get(header.api_key)
        if name is None:
            return await self._answered(client, header, request, began_s)
        with self._gateway.traces.root(name, began_s, client_id=client.client_id):
            return await self._answered(client, header, request, began_s)

    async def _answered(self, client: Client, header: RequestHeader, request: Any, began_s: float) -> list[Buffer]:
        gateway = self._gateway
        if gateway.quotas.is_empty or header.api_key in WITHOUT_QUOTAS:
            response = await self._handle(client, header, request)
        else:
            response = await handle_within_quotas(gateway, client, header, request, self._handle)
        gateway.metrics.request_seconds[header.api_key].observe(gateway.clock.monotonic_s() - began_s)
        gateway.metrics.requests[header.api_key, header.api_version].inc()
        if response is None:
            return []
        body = await self._encode(header, request, response)
        return response_frame(header.api_key, header.api_version, header.correlation_id, body)

    async def _encode(self, header: RequestHeader, request: Any, response: msgspec.Struct) -> list[Buffer]:
        """The encoded response. A thread encodes large ones, one at a time: the event loop serves other clients."""
        if not has_more_elements(response, self._limits.encoded_at_once_max):
            return encode_response(header.api_key, header.api_version, response)
        async with self._encoding_turn:
            return await to_the_end(asyncio.to_thread(self._encoded.encode, header, request, response))

    async def _handle(self, client: Client, header: RequestHeader, request: Any) -> msgspec.Struct | None:
        return await self._handlers[header.api_key](self._gateway, client, header.api_version, request)

    def _check_login(self, client: Client, header: RequestHeader) -> None:
        """Raise `CloseConnection` for a request that the client may not send before its login or behind its session."""
        if client.needs_login or client.session_end_s != math.inf:
            self._gateway.logins.check(client, header.api_key, API_TABLE[header.api_key].name)

    def _record_client(self, client: Client, header: RequestHeader) -> None:
        client_id = header.client_id or ""
        if client_id != client.client_id:
            client.client_id = client_id
            client.zone = zone_of(client_id, self._gateway.settings.zone)
            client.pool = pool_of(client_id, self._gateway.settings.pool)


def _raw_frame(token: bytes) -> list[Buffer]:
    return [len(token).to_bytes(LENGTH_BYTES), token]


def _reject_version(header: RequestHeader) -> list[Buffer]:
    if header.api_key == API_VERSIONS.key:  # KIP-511: a newer client asks again with a version of this answer
        body = encode_response(API_VERSIONS.key, 0, unsupported_version())
        return response_frame(API_VERSIONS.key, 0, header.correlation_id, body)
    api = API_TABLE.get(header.api_key)
    name = api.name if api else f"api {header.api_key}"
    raise CloseConnection(f"{name} version {header.api_version} is not served")
