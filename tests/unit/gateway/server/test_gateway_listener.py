"""ConnectionManager over real sockets: order, back-pressure, limits, bad input, and a drain that loses no answer.

All this holds with TLS as without it, so each test runs with both.
"""

import asyncio
import gc
import math
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from structlog.testing import capture_logs

from penstock.contracts import subjects
from penstock.contracts.codec import decode, encode
from penstock.contracts.errors import Invalid
from penstock.contracts.messages import ConfirmReply, ConfirmRequest
from penstock.kafkawire.api import API_TABLE, decode_response, encode_request
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.records import Record, build_batch
from penstock.runtime.clock import SystemClock
from penstock_gateway.config import GatewayConfig
from penstock_gateway.kafka.broker_view import node_of
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.security.tls_contexts import ListenerTls
from penstock_gateway.server.connection import Connection
from penstock_gateway.server.connection_manager import ConnectionManager
from penstock_gateway.server.limits import ConnectionLimits
from penstock_gateway.server.listener import Listener, open_socket
from tests.testkit.servers.certificates import Authority, Pair, tls_settings
from tests.testkit.waiting import TIMEOUT_S, until
from tests.unit.gateway.gateway_fakes import CLUSTER, LISTENER, ZONE, World, new_world
from tests.unit.gateway.gateway_wire import batch

HOST = "127.0.0.1"
MIB = 1024 * 1024
LIMITS = ConnectionLimits(stall_s=math.inf)  # tests make long waits short by the clock
ANSWERED = "penstock_gateway_request_seconds_count"


class Security:
    """The TLS of the listeners of this module, and of their clients; None without TLS."""

    def __init__(self) -> None:
        self.listener: ListenerTls | None = None
        self.client: ssl.SSLContext | None = None


SECURITY = Security()


@pytest.fixture(autouse=True, scope="module", params=["plain", "tls"])
def _security(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if request.param == "tls":
        authority = Authority(tmp_path_factory.mktemp("ca"))
        SECURITY.listener = listener_tls(authority.issue("server"))
        SECURITY.client = authority.client_context()
    yield
    SECURITY.listener = SECURITY.client = None


def listener_tls(pair: Pair, **others: str) -> ListenerTls:
    """The TLS of a listener with this certificate, and with other settings."""
    settings = GatewayConfig(listeners=f"SSL://{HOST}:0", **tls_settings(pair, **others))  # type: ignore[arg-type]
    return ListenerTls(settings.listener_securities()["SSL"], SystemClock())


class Kafka:
    """A gateway's listeners with fakes behind them, and clients of them."""

    def __init__(
        self,
        *names: str,
        limits: ConnectionLimits = LIMITS,
        tls: ListenerTls | None = None,
        world_limits: GatewayLimits | None = None,
        **options: Any,
    ) -> None:
        tls = tls or SECURITY.listener
        self._listeners = {name: Listener(name, open_socket(HOST, 0), tls) for name in names or (LISTENER,)}
        nodes = {name: node_of(HOST, listener.port, ZONE) for name, listener in self._listeners.items()}
        self.world: World = new_world(nodes=nodes, limits=world_limits, **options)
        self.connections = ConnectionManager(
            gateway=self.world.gateway,
            config=self.world.config,
            listeners=list(self._listeners.values()),
            dispatcher=self.world.dispatcher,
            limits=limits,
        )
        self.world.sequencer.add_topic("t", 4)
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[RawClient] = []

    async def __aenter__(self) -> "Kafka":
        self._tasks = [asyncio.create_task(self.world.flush_router.run()), asyncio.create_task(self.connections.run())]
        return self

    async def __aexit__(self, *error: object) -> None:
        for client in self._clients:
            await client.close()
        await self.connections.close()
        for listener in self._listeners.values():
            listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def port(self, name: str = LISTENER) -> int:
        return self._listeners[name].port

    async def connect(self, name: str = LISTENER, tls: ssl.SSLContext | None = None) -> "RawClient":
        reader, writer = await asyncio.open_connection(HOST, self.port(name), ssl=tls or SECURITY.client)
        client = RawClient(reader, writer)
        self._clients.append(client)
        return client

    async def until_refused(self, name: str = LISTENER) -> None:
        """Connect, and return when the gateway has closed the connection without an answer."""
        try:
            client = await self.connect(name)
        except ConnectionResetError:  # during the handshake
            return
        assert await client.until_closed() == b""


class RawClient:
    """A client that sends the given requests and reads whole answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, api_key: int, version: int, body: bytes, correlation_id: int) -> None:
        head = struct.pack(">hhih", api_key, version, correlation_id, 4) + b"test"
        head += b"\0" if version >= API_TABLE[api_key].flexible_since else b""
        self.writer.write(struct.pack(">i", len(head) + len(body)) + head + body)

    def ask_versions(self, correlation_id: int) -> None:
        self.send(18, 0, b"", correlation_id)

    def produce(self, correlation_id: int, records: bytes, acks: int = -1) -> None:
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, records)])]
        self.send(0, 7, encode_request(0, 7, ProduceRequest(None, acks, 30_000, data)), correlation_id)

    async def next_correlation_id(self) -> int:
        (correlation_id,) = struct.unpack_from(">i", await self._next_frame())
        return int(correlation_id)

    async def next_body(self) -> bytes:
        return (await self._next_frame())[4:]

    async def _next_frame(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def until_closed(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            return


@pytest.fixture
async def kafka() -> AsyncIterator[Kafka]:
    async with Kafka() as kafka:
        yield kafka


async def test_pipelined_requests_are_answered_in_order(kafka: Kafka) -> None:
    client = await kafka.connect()
    for number in range(300):
        client.ask_versions(number)
    assert [await client.next_correlation_id() for _ in range(300)] == list(range(300))


async def test_answers_wait_for_a_produce_before_them_but_the_work_does_not(kafka: Kafka) -> None:
    flusher = await kafka.world.add_flusher("f1")
    flusher.answers_at_once = False
    client = await kafka.connect()
    client.produce(1, batch())
    client.ask_versions(2)
    client.produce(3, batch())
    await until(lambda: len(flusher.produces) == 2)
    client.ask_versions(4)
    await flusher.answer_all()
    assert [await client.next_correlation_id() for _ in range(4)] == [1, 2, 3, 4]


async def test_a_frame_may_come_byte_by_byte(kafka: Kafka) -> None:
    client = await kafka.connect()
    for value in struct.pack(">ihhihi", 14, 18, 0, 9, 4, 0x74657374):
        client.writer.write(bytes([value]))
        await client.writer.drain()
    assert await client.next_correlation_id() == 9


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 3, 9, 1, -1),
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    ],
)
async def test_bad_input_closes_its_connection_with_one_log_line_after_earlier_answers(
    kafka: Kafka, garbage: bytes
) -> None:
    bystander, client = await kafka.connect(), await kafka.connect()
    with capture_logs() as logs:
        client.ask_versions(1)
        client.writer.write(garbage)
        client.ask_versions(2)
        assert await client.next_correlation_id() == 1
        assert await client.until_closed() == b""
    rejections = [line for line in logs if line["event"] == "connection_refused"]
    assert len(rejections) == 1 and rejections[0]["reason"]
    bystander.ask_versions(3)
    assert await bystander.next_correlation_id() == 3


async def test_a_frame_that_is_cut_off_leaves_nothing_behind(kafka: Kafka) -> None:
    client = await kafka.connect()
    client.writer.write(struct.pack(">i", 1_000) + b"x" * 500)
    await until(lambda: kafka.connections.budget.held_bytes == 504)
    await client.close()
    await until(lambda: kafka.connections.budget.held_bytes == 0)


async def test_acks_0_gets_no_answer_and_the_next_request_gets_its_own(kafka: Kafka) -> None:
    await kafka.world.add_flusher("f1")
    client = await kafka.connect()
    client.produce(1, batch(), acks=0)
    client.ask_versions(2)
    assert await client.next_correlation_id() == 2


async def test_batches_sent_with_acks_0_are_stored_though_the_client_has_closed(kafka: Kafka) -> None:
    """Kafka, too, serves the requests of a client that closed in good order."""
    flusher = await kafka.world.add_flusher("f1")
    sequencer = kafka.world.sequencer
    sequencer.hold = asyncio.Event()  # the topic is not cached yet
    client = await kafka.connect()
    count = kafka.world.config.requests_in_flight_max + 3
    for number in range(count):
        client.produce(number, batch(), acks=0)
    await client.writer.drain()
    closing = asyncio.create_task(client.close())  # with TLS it waits for the gateway's last bytes
    await until(lambda: sequencer.queries)
    sequencer.hold.set()
    await until(lambda: len(flusher.produces) == count)
    await closing
    await until(lambda: kafka.world.metric("penstock_gateway_connections") == 0)
    assert kafka.connections.budget.held_bytes == 0


async def test_a_client_that_closes_before_its_answer_is_removed(kafka: Kafka) -> None:
    sequencer = kafka.world.sequencer
    sequencer.hold = asyncio.Event()
    client = await kafka.connect()
    client.produce(1, batch())
    await until(lambda: sequencer.queries)
    await client.close()
    await until(lambda: kafka.world.metric("penstock_gateway_connections") == 0)


async def test_a_closed_connection_leaves_memory_without_the_garbage_collector(kafka: Kafka) -> None:
    """It may have a large incomplete frame in its buffer."""
    await kafka.world.add_flusher("f1")
    client = await kafka.connect()
    client.produce(1, batch())
    assert await client.next_correlation_id() == 1
    client.writer.write(struct.pack(">i", MIB) + b"x" * 500)
    await until(lambda: kafka.connections.budget.held_bytes == 504)
    gc.collect()  # connections of other tests
    connections = [weakref.ref(each) for each in gc.get_objects() if isinstance(each, Connection)]
    gc.disable()
    try:
        await client.close()
        await until(lambda: kafka.world.metric("penstock_gateway_connections") == 0)
        await until(lambda: not any(each() for each in connections))
    finally:
        gc.enable()


async def test_acks_0_with_a_bad_batch_closes_the_connection(kafka: Kafka) -> None:
    client = await kafka.connect()
    client.produce(1, b"not a batch", acks=0)
    assert await client.until_closed() == b""


async def test_one_connection_too_many_is_closed() -> None:
    async with Kafka(connections_max=2) as kafka:
        first, second = await kafka.connect(), await kafka.connect()
        second.ask_versions(1)
        assert await second.next_correlation_id() == 1
        with capture_logs() as logs:
            await kafka.until_refused()
        assert [line["reason"] for line in logs] == ["more than 2 connections"]
        await first.close()
        await until(lambda: kafka.world.metric("penstock_gateway_connections") == 1)
        fourth = await kafka.connect()
        fourth.ask_versions(4)
        assert await fourth.next_correlation_id() == 4


async def test_a_flood_of_rejected_connections_writes_a_few_lines_and_a_count() -> None:
    async with Kafka(connections_max=1) as kafka:
        await kafka.connect()
        await until(lambda: kafka.connections.open_connections == 1)
        limits = LIMITS.rejection_log
        with capture_logs() as logs:
            for _ in range(limits.lines_max + 5):
                await kafka.until_refused()
            kafka.world.clock.now_s += limits.interval_s
            kafka.connections.sweep()
        assert [line["event"] for line in logs] == ["connection_refused"] * limits.lines_max + ["connections_refused"]
        assert logs[-1]["more"] == 5


async def test_a_long_client_id_and_a_long_reason_are_cut_in_the_log(kafka: Kafka) -> None:
    client = await kafka.connect()
    with capture_logs() as logs:
        head = struct.pack(">hhih", 3, 9, 1, 32_767) + b"c" * 32_767 + b"\0"
        client.writer.write(struct.pack(">i", len(head) + 1) + head + b"\xff")
        assert await client.until_closed() == b""
    assert len(logs) == 1
    assert len(str(logs[0])) < 1_000
    assert "(32767 characters)" in logs[0]["client_id"]


async def test_listeners_share_one_limit_of_connections_and_one_byte_budget() -> None:
    async with Kafka("INTERNAL", "EXTERNAL", connections_max=2, held_bytes_max=MIB) as kafka:
        inside, outside = await kafka.connect("INTERNAL"), await kafka.connect("EXTERNAL")
        for number, client in enumerate((inside, outside)):
            client.ask_versions(number)
            assert await client.next_correlation_id() == number
        with capture_logs() as logs:
            await kafka.until_refused("EXTERNAL")
        assert [line["reason"] for line in logs] == ["more than 2 connections"]
        inside.writer.write(struct.pack(">i", 50 * MIB) + b"x" * MIB)
        await until(lambda: kafka.connections.budget.is_spent)
        outside.ask_versions(7)  # each connection may overshoot by one receive
        assert await outside.next_correlation_id() == 7
        outside.ask_versions(8)
        await until_steady(lambda: kafka.world.metric(ANSWERED, api="ApiVersions"))
        assert kafka.world.metric(ANSWERED, api="ApiVersions") == 3, "bytes held by one listener stop all listeners"
        await inside.close()
        assert await outside.next_correlation_id() == 8


async def test_the_listeners_drain_together_under_one_deadline() -> None:
    async with Kafka("INTERNAL", "EXTERNAL") as kafka:
        flusher = await kafka.world.add_flusher("f1")
        flusher.answers_at_once = False
        clients = [await kafka.connect(name) for name in ("INTERNAL", "EXTERNAL")]
        for client in clients:
            client.produce(1, batch())
        await until(lambda: len(flusher.produces) == 2)
        with capture_logs() as logs:
            await kafka.connections.drain(0.05)
        assert logs == [{"event": "drain_cut_short", "connections": 2, "log_level": "warning"}]
        for name, client in zip(("INTERNAL", "EXTERNAL"), clients, strict=True):
            assert await client.until_closed() == b""
            with pytest.raises(ConnectionRefusedError):
                await kafka.connect(name)


async def test_clients_get_the_address_of_the_listener_that_accepted_them() -> None:
    async with Kafka("INTERNAL", "EXTERNAL") as kafka:
        for name in ("INTERNAL", "EXTERNAL"):
            client = await kafka.connect(name)
            client.send(3, 1, encode_request(3, 1, MetadataRequest(topics=[])), 1)
            metadata = decode_response(3, 1, await client.next_body())
            assert [(broker.host, broker.port) for broker in metadata.brokers] == [(HOST, kafka.port(name))]


async def test_an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not(kafka: Kafka) -> None:
    flusher = await kafka.world.add_flusher("f1")
    flusher.answers_at_once = False
    idle, waiting = await kafka.connect(), await kafka.connect()
    waiting.produce(1, batch())
    await until(lambda: flusher.produces)
    kafka.world.clock.now_s += 601
    kafka.connections.sweep()
    assert await idle.until_closed() == b""
    await flusher.answer_all()
    assert await waiting.next_correlation_id() == 1


async def test_a_full_window_stops_reading_and_everything_is_answered_later(kafka: Kafka) -> None:
    """The socket holds back a client that sends without end; its requests do not fill the memory."""
    flusher = await kafka.world.add_flusher("f1", budget_bytes=MIB)
    flusher.answers_at_once = False
    client = await kafka.connect()
    records = build_batch([Record(value=b"x" * 300_000)])
    count = 100
    for number in range(count):
        client.produce(number, records)
    await until(lambda: flusher.produces)
    sending = asyncio.create_task(client.writer.drain())
    await until_steady(lambda: kafka.connections.budget.held_bytes)
    assert kafka.connections.budget.held_bytes < 8 * MIB < count * len(records)
    assert len(flusher.produces) <= 4
    flusher.answers_at_once = True
    await flusher.answer_all()
    assert [await client.next_correlation_id() for _ in range(count)] == list(range(count))
    await sending
    assert kafka.connections.budget.held_bytes == 0


async def test_the_clients_time_begins_when_its_bytes_come_also_if_the_request_begins_later() -> None:
    async with Kafka(requests_in_flight_max=2) as kafka:
        await kafka.world.flush_router.open()
        flusher = await kafka.world.add_flusher("f1")
        flusher.answers_at_once = False
        client = await kafka.connect()
        for number in range(3):
            client.produce(number, batch())
        await until(lambda: len(flusher.numbers) == 2)
        kafka.world.clock.now_s += 31  # the client waits for 30 s
        await flusher.answer_all()
        await until(lambda: len(flusher.numbers) == 3)
        question = encode(ConfirmRequest(flusher.numbers[2:]))
        answer = await kafka.world.bus.request(subjects.confirm(CLUSTER, "g1"), question, 60.0)
        assert decode(answer, ConfirmReply).leases_ms == [0]


async def until_steady(measure: Any) -> None:
    """Return when a measured value has not changed for 200 checks."""
    last, same = measure(), 0
    async with asyncio.timeout(TIMEOUT_S):
        while same < 200:
            await asyncio.sleep(0.001)
            now = measure()
            last, same = now, same + 1 if now == last else 0


async def test_requests_of_a_client_that_does_not_take_its_answers_do_not_run() -> None:
    async with Kafka() as kafka:
        for number in range(1_000):
            kafka.world.sequencer.add_topic(f"a-topic-with-quite-a-long-name-{number}", 8)
        client = await kafka.connect()
        body = encode_request(3, 8, MetadataRequest(topics=None))
        count = 80
        for number in range(count):
            client.send(3, 8, body, number)
        asked = kafka.world.sequencer.queries
        await until(lambda: asked)
        await until_steady(lambda: len(asked))
        assert len(asked) < count
        assert [await client.next_correlation_id() for _ in range(count)] == list(range(count))


async def test_answers_that_wait_for_an_earlier_one_do_not_pile_up() -> None:
    async with Kafka() as kafka:
        flusher = await kafka.world.add_flusher("f1")
        flusher.answers_at_once = False
        kafka.world.sequencer.add_topic("large", 50_000)
        client = await kafka.connect()
        client.produce(0, batch())
        await until(lambda: flusher.produces)
        count = 40
        for number in range(1, count):
            client.send(3, 8, encode_request(3, 8, MetadataRequest(topics=None)), number)
        asked = kafka.world.sequencer.queries
        await until(lambda: len(asked) > 2)
        await until_steady(lambda: len(asked))
        assert len(asked) < count / 2
        await flusher.answer_all()
        assert [await client.next_correlation_id() for _ in range(count)] == list(range(count))


async def test_produce_answers_that_wait_for_a_request_do_not_keep_it_from_running() -> None:
    async with Kafka(limits=ConnectionLimits(unsent_bytes_max=10)) as kafka:
        flusher = await kafka.world.add_flusher("f1")
        client = await kafka.connect()
        body = encode_request(3, 8, MetadataRequest(topics=None))
        client.produce(2, batch())
        assert await client.next_correlation_id() == 2
        kafka.world.sequencer.hold = asyncio.Event()
        client.send(3, 8, body, 3)
        client.send(3, 8, body, 4)
        for number in range(5, 15):
            client.produce(number, batch())
        await until(lambda: len(flusher.produces) == 11)
        kafka.world.sequencer.hold.set()
        assert [await client.next_correlation_id() for _ in range(12)] == list(range(3, 15))


async def test_when_all_connections_hold_too_much_none_is_read_until_answers_leave() -> None:
    async with Kafka(held_bytes_max=MIB) as kafka:
        flusher = await kafka.world.add_flusher("f1")
        flusher.answers_at_once = False
        clients = [await kafka.connect() for _ in range(8)]
        records = build_batch([Record(value=b"x" * 400_000)])
        for client in clients:
            for number in range(4):
                client.produce(number, records)
        await until(lambda: kafka.connections.budget.is_spent)
        await until_steady(lambda: kafka.connections.budget.held_bytes)
        assert kafka.connections.budget.held_bytes < 5 * MIB, "each connection may overshoot by one receive"
        flusher.answers_at_once = True
        await flusher.answer_all()
        for client in clients:
            assert [await client.next_correlation_id() for _ in range(4)] == [0, 1, 2, 3]


async def test_a_budget_full_of_incomplete_frames_ends_the_connection_with_the_largest() -> None:
    async with Kafka(held_bytes_max=MIB) as kafka:
        largest, other = await kafka.connect(), await kafka.connect()
        largest.writer.write(struct.pack(">i", 50 * MIB) + b"x" * MIB)
        await until(lambda: kafka.connections.budget.is_spent)
        other.ask_versions(1)
        kafka.world.clock.now_s += LIMITS.partial_frame_s_max + 1
        kafka.connections.sweep()
        assert await other.next_correlation_id() == 1
        assert await largest.until_closed() == b""


async def test_large_unfinished_frames_leave_memory_to_all_other_clients() -> None:
    """Also while a Fetch waits; no time passes here."""
    async with Kafka(held_bytes_max=4 * MIB) as kafka:
        flusher = await kafka.world.add_flusher("f1")
        attackers = [await kafka.connect() for _ in range(3)]
        for attacker in attackers:
            attacker.writer.write(struct.pack(">i", 2 * MIB - 100) + b"x" * (2 * MIB - 1_000))
        budget = kafka.connections.budget
        await until(lambda: budget.is_contended and budget.held_bytes > MIB)
        await until_steady(lambda: budget.held_bytes)
        assert budget.held_bytes < 3 * MIB
        client = await kafka.connect()
        for number in range(50):
            client.produce(number, build_batch([Record(value=b"x" * 60_000)]))
            assert await client.next_correlation_id() == number
        assert len(flusher.produces) == 50
        for _ in range(2):  # in the first time many bytes came
            kafka.world.clock.now_s += LIMITS.contended_frame_s_max
            kafka.connections.sweep()
        await until(lambda: kafka.connections.open_connections == 3)


async def test_a_client_that_sends_its_large_frame_steadily_is_served_while_others_wait() -> None:
    async with Kafka(held_bytes_max=4 * MIB) as kafka:
        steady, waiting = await kafka.connect(), await kafka.connect()
        head = struct.pack(">hhih", 3, 99, 1, -1)
        steady.writer.write(struct.pack(">i", 2 * MIB - 4) + head)
        sent = len(head)
        budget = kafka.connections.budget
        await until(lambda: budget.reserved_bytes)
        waiting.writer.write(struct.pack(">i", MIB) + head)
        await until(lambda: budget.is_contended)
        while sent < MIB:
            steady.writer.write(bytes(256 * 1024))
            sent += 256 * 1024
            await until(lambda expected=sent: budget.held_bytes >= expected)
            kafka.world.clock.now_s += LIMITS.contended_frame_s_max
            kafka.connections.sweep()
        assert kafka.connections.open_connections == 2


async def test_a_client_that_takes_no_answers_does_not_keep_the_memory_of_its_large_frame() -> None:
    """It is not read then, so its frame makes no progress."""
    async with Kafka(held_bytes_max=4 * MIB) as kafka:
        await kafka.world.add_flusher("f1")
        attacker = await kafka.connect()
        attacker.writer.write(struct.pack(">ihhih", 2 * MIB - 100, 0, 7, 1, -1) + bytes(1_000))
        budget = kafka.connections.budget
        await until(lambda: budget.reserved_bytes)
        (stuck,) = kafka.connections.all
        stuck.pause_writing()  # as its transport does
        client = await kafka.connect()
        client.produce(1, build_batch([Record(value=b"x" * MIB)]))
        await until(lambda: budget.is_contended)
        for _ in range(2):
            kafka.world.clock.now_s += LIMITS.contended_frame_s_max
            kafka.connections.sweep()
        assert await attacker.until_closed() == b""
        assert await client.next_correlation_id() == 1


async def test_a_throttled_client_does_not_keep_the_memory_of_a_complete_frame() -> None:
    async with Kafka(held_bytes_max=2 * MIB) as kafka:
        flusher = await kafka.world.add_flusher("f1")
        kafka.world.sequencer.set_quota("producer_byte_rate", "1", client_id="test")
        await kafka.world.gateway.quotas.refresh()
        throttled, client = await kafka.connect(), await kafka.connect()
        throttled.produce(1, build_batch([Record(value=b"x" * 600_000)]))
        await until(lambda: flusher.produces)
        client.send(18, 0, bytes(600_000), 2)
        assert await client.next_correlation_id() == 2
        await kafka.connections.close()  # the throttled client is not read, also at its end


async def test_a_large_request_is_not_received_before_its_turn() -> None:
    """Some large requests behind a Fetch that waits for minutes would hold all memory."""
    async with Kafka() as kafka:
        sequencer = kafka.world.sequencer
        sequencer.hold = asyncio.Event()
        client = await kafka.connect()
        client.send(3, 8, encode_request(3, 8, MetadataRequest(topics=None)), 1)
        await until(lambda: sequencer.queries)
        client.send(18, 0, bytes(10 * MIB), 2)
        budget = kafka.connections.budget
        await until(lambda: budget.held_bytes > 1_000)
        await until_steady(lambda: budget.held_bytes)
        assert budget.held_bytes < MIB
        sequencer.hold.set()
        assert [await client.next_correlation_id() for _ in range(2)] == [1, 2]


async def test_a_drain_answers_what_is_in_flight_and_closes_every_connection(kafka: Kafka) -> None:
    flusher = await kafka.world.add_flusher("f1")
    flusher.answers_at_once = False
    idle, busy = await kafka.connect(), await kafka.connect()
    busy.produce(1, batch())
    await until(lambda: flusher.produces)
    draining = asyncio.create_task(kafka.connections.drain(TIMEOUT_S))
    assert await idle.until_closed() == b""
    assert not draining.done()
    await flusher.answer_all()
    assert await busy.next_correlation_id() == 1
    assert await busy.until_closed() == b""
    await draining
    with pytest.raises(ConnectionRefusedError):
        await kafka.connect()


async def test_a_drain_wakes_the_fetches_that_wait_for_records(kafka: Kafka) -> None:
    with kafka.world.gateway.tail.watch({(bytes(16), 0)}) as watch:
        await kafka.connections.drain(TIMEOUT_S)
        assert await watch.until(asyncio.get_running_loop().time())


async def test_a_drain_ends_in_time_with_connections_left(kafka: Kafka) -> None:
    flusher = await kafka.world.add_flusher("f1")
    flusher.answers_at_once = False
    client = await kafka.connect()
    client.produce(1, batch())
    await until(lambda: flusher.produces)
    await kafka.connections.drain(0.05)
    assert await client.until_closed() == b""


async def test_requests_of_a_connection_that_closes_are_cancelled(kafka: Kafka) -> None:
    kafka.world.sequencer.hold = asyncio.Event()
    client = await kafka.connect()
    client.send(3, 8, encode_request(3, 8, MetadataRequest(topics=None)), 1)
    await until(lambda: kafka.world.sequencer.queries)
    await client.close()
    await until(lambda: kafka.world.metric("penstock_gateway_connections") == 0)
    assert kafka.connections.budget.complete_bytes == 0


def test_an_address_that_cannot_be_bound_is_an_error_of_one_sentence() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Invalid, match=f"cannot listen on {HOST}:{port}: .*in use"):
            open_socket(HOST, port)
    with pytest.raises(Invalid, match="cannot listen on"):
        open_socket("host.invalid.", 1)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5))
def test_random_bytes_of_some_clients_stop_no_other_client(streams: list[bytes]) -> None:
    async def attempt() -> None:
        async with Kafka() as kafka:
            for stream in streams:
                attacker = await kafka.connect()
                attacker.writer.write(stream)
            client = await kafka.connect()
            client.ask_versions(5)
            assert await client.next_correlation_id() == 5

    asyncio.run(attempt())


async def test_answers_that_clients_do_not_take_are_counted_and_end_the_connection_when_too_many() -> None:
    # The limit is below the size at which writing pauses. So it does not matter how much of an answer the kernel takes.
    async with Kafka(unsent_bytes_max=LIMITS.write_buffer_bytes_max // 2) as kafka:
        kafka.world.sequencer.add_topic("large", 100_000)
        slow = await kafka.connect()
        for number in range(20):
            slow.send(3, 8, encode_request(3, 8, MetadataRequest(topics=None)), number)
        await until(lambda: kafka.connections.response_memory.is_spent)
        kafka.connections.sweep()
        assert kafka.connections.open_connections == 1, "it may be slow for a while"

        def is_ended_later() -> bool:
            kafka.world.clock.now_s += LIMITS.stuck_s_max + 1
            kafka.connections.sweep()
            return not kafka.connections.open_connections

        await until(is_ended_later)
        assert not kafka.connections.response_memory.held_bytes
