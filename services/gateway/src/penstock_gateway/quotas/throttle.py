"""Throttles clients that exceed a quota: counts each request, and puts the time to wait in its answer (KIP-219).

As in Kafka the gateway answers at once, and then reads nothing from the connection for that time. So a client that
does not wait by itself must wait too. A Fetch of a client that must wait gets no records.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Protocol

import msgspec

from penstock.contracts.configs.quotas import CONNECTION_RATE, FETCH_RATE, MUTATION_RATE, PRODUCE_RATE, REQUEST_TIME
from penstock.kafkawire.api.fetch import FetchRequest, FetchResponse
from penstock.kafkawire.api.share_fetch import ShareFetchResponse
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.frame import RequestHeader, read_request_header
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasMetrics
from penstock_gateway.quotas.quota_cache import HasQuotas
from penstock_gateway.quotas.rate_meter import BURST_S

PRODUCE, FETCH = 0, 1
SHARE_FETCH = 78
MUTATIONS = (19, 20, 37)  # CreateTopics, DeleteTopics, CreatePartitions: counted in partition_mutation_quota.py
PRODUCE_KEY = PRODUCE.to_bytes(2, "big")
PER_CENT = 100.0

Response = msgspec.Struct | None
Handle = Callable[[Client, RequestHeader, Any], Coroutine[Any, Any, Response]]


class Needs(HasClock, HasMetrics, HasQuotas, Protocol):
    """The parts of the gateway that this module uses."""


async def handle_within_quotas(
    gateway: Needs,
    client: Client,
    header: RequestHeader,
    request: Any,
    handle: Handle,
) -> Response:
    """The answer of `handle`, with the time to wait in it. The connection waits from now on."""
    now_s = gateway.clock.monotonic_s
    quotas = gateway.quotas
    waits: dict[str, float] = {}  # in seconds, by quota
    fetched = quotas.meters(FETCH_RATE, client.user, client.client_id) if header.api_key == FETCH else {}
    if fetched:
        waits = {name: meter.wait_s(now_s()) for name, meter in fetched.items()}
        if any(waits.values()):
            return _throttled(gateway, client, await _without_records(client, header, request, handle), waits)
        request = _bounded(request, int(min(meter.rate for meter in fetched.values()) * BURST_S))
    timed = Timed(handle(client, header, request), now_s)
    response = await timed
    if header.api_key == PRODUCE:  # counted on arrival
        produced = quotas.meters(PRODUCE_RATE, client.user, client.client_id)
        waits |= {name: meter.wait_s(now_s()) for name, meter in produced.items()}
    if header.api_key == SHARE_FETCH:  # counted afterwards only: its acknowledgements must not wait
        fetched = quotas.meters(FETCH_RATE, client.user, client.client_id)
    if fetched and isinstance(response, FetchResponse | ShareFetchResponse):
        size_bytes = fetched_bytes(response)
        waits |= {name: meter.use(size_bytes, now_s()) for name, meter in fetched.items()}
    if header.api_key in MUTATIONS:
        mutations = quotas.meter(MUTATION_RATE, client.user, client.client_id)
        if mutations is not None:
            waits[MUTATION_RATE] = mutations.wait_s(now_s())
    used_time = quotas.meter(REQUEST_TIME, client.user, client.client_id)
    if used_time is not None:
        waits[REQUEST_TIME] = used_time.use(timed.used_s * PER_CENT, now_s())
    return _throttled(gateway, client, response, waits) if any(waits.values()) else response


async def _without_records(
    client: Client, header: RequestHeader, request: FetchRequest, handle: Handle
) -> FetchResponse:
    """The answer to a Fetch that gets no records. One in a session counts there, so that the session continues."""
    if request.session_epoch <= 0:
        return FetchResponse()
    client.fetches_nothing = True
    try:
        response = await handle(client, header, request)
    finally:
        client.fetches_nothing = False
    assert isinstance(response, FetchResponse), f"unexpected answer to a Fetch: {response}"
    return response


def count_produce(gateway: Needs, client: Client, frame: memoryview) -> None:
    """Count a produce request on arrival: a client may send many requests before the first answer.

    If the quota is exceeded now, the requests behind this one do not start until the wait is over.
    """
    if gateway.quotas.is_empty or frame[:2] != PRODUCE_KEY:
        return
    try:
        header, _ = read_request_header(frame)
    except DecodeError:
        return  # the dispatcher reports this error
    now_s = gateway.clock.monotonic_s()
    for meter in gateway.quotas.meters(PRODUCE_RATE, client.user, header.client_id or "").values():
        if waits_s := meter.use(len(frame), now_s):
            client.muted_until_s = max(client.muted_until_s, now_s + waits_s)


def connection_delay_s(gateway: Needs, address: str) -> float:
    """How long to delay a new connection before it is closed, because its address opened too many; 0: accept it."""
    if gateway.quotas.is_empty:
        return 0.0
    meter = gateway.quotas.connection_meter(CONNECTION_RATE, address)
    return 0.0 if meter is None else meter.use_if_any(1, gateway.clock.monotonic_s())


def fetched_bytes(response: FetchResponse | ShareFetchResponse) -> int:
    """The bytes of records in an answer."""
    total = 0
    for topic in response.responses:
        for partition in topic.partitions:
            records = partition.records
            if records is not None:
                total += sum(map(len, records)) if isinstance(records, list) else len(records)
    return total


def _bounded(request: FetchRequest, bytes_max: int) -> FetchRequest:
    """The request for at most the bytes that the quota allows in one second."""
    return msgspec.structs.replace(request, max_bytes=max(min(request.max_bytes, bytes_max), 1))


def _throttled(gateway: Needs, client: Client, response: Response, waits: Mapping[str, float]) -> Response:
    """The answer with the longest of the times to wait, which are by quota."""
    quota, waits_s = max(waits.items(), key=lambda each: each[1])
    gateway.metrics.throttled.labels(quota).inc()
    client.muted_until_s = max(client.muted_until_s, gateway.clock.monotonic_s() + waits_s)
    present_ms = getattr(response, "throttle_time_ms", None)
    if response is None or present_ms is None:
        return response
    throttle_ms = max(int(waits_s * 1000), 1, present_ms)
    return msgspec.structs.replace(response, throttle_time_ms=throttle_ms)


class Timed(Awaitable[Response]):
    """Runs a coroutine, and measures how long it occupies the event loop; without the tasks that it starts."""

    def __init__(self, coroutine: Coroutine[Any, Any, Response], now_s: Callable[[], float]) -> None:
        self._coroutine = coroutine
        self._now_s = now_s
        self.used_s = 0.0

    def __await__(self) -> Generator[Any, Any, Response]:
        step: Callable[[Any], Any] = self._coroutine.send
        argument: Any = None
        while True:
            began_s = self._now_s()
            try:
                waits_for = step(argument)
            except StopIteration as end:
                response: Response = end.value
                return response
            finally:
                self.used_s += self._now_s() - began_s
            try:
                argument = yield waits_for
                step = self._coroutine.send
            except BaseException as error:  # noqa: BLE001  the coroutine itself handles a cancellation
                step, argument = self._coroutine.throw, error
