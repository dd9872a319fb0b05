"""TLS of listeners over real sockets: versions, client certificates and users, limits of handshakes, new files."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from structlog.testing import capture_logs

from penstock.kafkawire.api import encode_request
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock_gateway.security.tls_contexts import ListenerTls, ReloadLimits, TlsReloader
from penstock_gateway.server.limits import ConnectionLimits, HandshakeLimits
from tests.testkit.servers.certificates import CLIENT, Authority, Pair
from tests.testkit.waiting import TIMEOUT_S, until
from tests.unit.gateway.gateway_wire import batch
from tests.unit.gateway.server.test_gateway_listener import HOST, LIMITS, MIB, Kafka, RawClient, listener_tls

HANDSHAKES = "penstock_gateway_tls_handshakes_total"
OPEN = "penstock_gateway_tls_handshakes_open"
HOUR_S = 3_600.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def limited(**limits: Any) -> ConnectionLimits:
    return ConnectionLimits(stall_s=LIMITS.stall_s, handshakes=HandshakeLimits(**limits))


def outcomes(kafka: Kafka, outcome: str) -> float:
    return kafka.world.metric(HANDSHAKES, outcome=outcome)


async def is_served(kafka: Kafka, context: ssl.SSLContext) -> bool:
    """Whether a client with this context gets an answer; False if TLS fails on either side."""
    try:
        client = await kafka.connect(tls=context)
        client.ask_versions(1)
        return await client.next_correlation_id() == 1
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False


def only(version: ssl.TLSVersion, context: ssl.SSLContext) -> ssl.SSLContext:
    """The context with one version of TLS; OpenSSL makes old ones only at its lowest security level."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
        context.minimum_version = version
    if version < ssl.TLSVersion.TLSv1_2:
        context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@pytest.mark.parametrize(
    ("setting", "version", "is_accepted"),
    [
        ("TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_3, True),
        ("TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_2, True),
        ("TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_1, False),
        ("TLSv1.3", ssl.TLSVersion.TLSv1_2, False),
        ("TLSv1.2", ssl.TLSVersion.TLSv1_3, False),
    ],
)
async def test_a_listener_speaks_the_enabled_versions_and_no_older_one(
    authority: Authority, setting: str, version: ssl.TLSVersion, is_accepted: bool
) -> None:
    tls = listener_tls(authority.issue("server"), ssl_enabled_protocols=setting)
    async with Kafka(tls=tls) as kafka:
        with capture_logs() as logs:
            assert await is_served(kafka, only(version, authority.client_context())) == is_accepted
            await until(lambda: outcomes(kafka, "completed" if is_accepted else "failed"))
        reasons = [line["reason"] for line in logs if line["event"] == "connection_refused"]
        assert (reasons == []) == is_accepted
        assert all("TLS: " in reason and "protocol" in reason for reason in reasons)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("client_auth", "shown", "user"),
    [
        ("none", "", "ANONYMOUS"),
        ("none", "alice", "ANONYMOUS"),
        ("none", "stranger", "ANONYMOUS"),
        ("requested", "", "ANONYMOUS"),
        ("requested", "alice", "CN=alice,OU=Payments,C=DE"),
        ("requested", "stranger", None),
        ("required", "", None),
        ("required", "alice", "CN=alice,OU=Payments,C=DE"),
        ("required", "stranger", None),
        ("required", "expired", None),
        ("required", "server", None),
    ],
)
async def test_the_user_of_a_client_is_the_name_in_its_certificate(
    tmp_path: Path,
    authority: Authority,
    version: ssl.TLSVersion,
    client_auth: str,
    shown: str,
    user: str | None,
) -> None:
    own = authority.issue("server")
    name = "CN=alice,OU=Payments,C=DE"
    known: dict[str, Callable[[], Pair]] = {
        "alice": lambda: authority.issue("alice", name, usage=CLIENT),
        "expired": lambda: authority.issue("expired", name, usage=CLIENT, days=-1),
        "server": lambda: authority.issue("other", name),  # its usage is for servers only
        "stranger": lambda: Authority(tmp_path / "other").issue("stranger", name, usage=CLIENT),
    }
    context = authority.client_context(known[shown]() if shown else None)
    tls = listener_tls(own, ssl_client_auth=client_auth, ssl_truststore_certificates=str(authority.certificate))
    async with Kafka(tls=tls) as kafka:
        with capture_logs() as logs:
            assert await is_served(kafka, only(version, context)) == (user is not None)
            await until(lambda: outcomes(kafka, "failed" if user is None else "completed"))
        assert users(kafka) == ([] if user is None else [user])
        if user is None:
            (reason,) = [line["reason"] for line in logs if line["event"] == "connection_refused"]
            assert "certificate" in reason


def users(kafka: Kafka) -> list[str]:
    return [client.user for client in kafka.connections.clients()]


@pytest.mark.parametrize(
    ("rules", "user"),
    [("RULE:^CN=([^,]*),OU=Payments.*$/$1/U", "ALICE"), ("RULE:^CN=([^,]*),OU=Other.*$/$1/", None)],
)
async def test_rules_make_the_user_and_a_client_without_a_rule_is_rejected(
    authority: Authority, rules: str, user: str | None
) -> None:
    alice = authority.issue("alice", "CN=alice,OU=Payments", usage=CLIENT)
    tls = listener_tls(
        authority.issue("server"),
        ssl_client_auth="required",
        ssl_truststore_certificates=str(authority.certificate),
        ssl_principal_mapping_rules=rules,
    )
    async with Kafka(tls=tls) as kafka:
        assert await is_served(kafka, authority.client_context(alice)) == (user is not None)
        await until(lambda: outcomes(kafka, "failed" if user is None else "completed"))
        assert users(kafka) == ([] if user is None else [user])


async def test_the_quota_of_a_user_holds_for_its_certificate_and_for_no_other(authority: Authority) -> None:
    tls = listener_tls(
        authority.issue("server"),
        ssl_client_auth="required",
        ssl_truststore_certificates=str(authority.certificate),
        ssl_principal_mapping_rules="RULE:^CN=([^,]*).*$/$1/",
    )
    throttled = {"quota": "producer_byte_rate"}
    async with Kafka(tls=tls) as kafka:
        await kafka.world.add_flusher("f1")
        kafka.world.sequencer.set_quota("producer_byte_rate", "1", user="alice")
        await kafka.world.gateway.quotas.refresh()
        for name, count in (("bob", 0), ("alice", 1)):
            pair = authority.issue(name, f"CN={name},OU=Payments", usage=CLIENT)
            client = await kafka.connect(tls=authority.client_context(pair))
            client.produce(1, batch())
            assert await client.next_correlation_id() == 1
            assert kafka.world.metric("penstock_gateway_throttled_total", **throttled) == count
            client.writer.transport.abort()  # a throttled client would wait for the end of TLS


async def test_a_resumed_session_keeps_its_user(authority: Authority) -> None:
    alice = authority.issue("alice", "CN=alice", usage=CLIENT)
    tls = listener_tls(
        authority.issue("server"),
        ssl_client_auth="required",
        ssl_truststore_certificates=str(authority.certificate),
    )
    context = only(ssl.TLSVersion.TLSv1_3, authority.client_context(alice))
    async with Kafka(tls=tls) as kafka:

        def twice() -> bool:
            with ask_versions(kafka.port(), context, None) as first:
                session = first.session
            with ask_versions(kafka.port(), context, session) as second:
                return second.session_reused or False

        assert await asyncio.to_thread(twice), "the session is resumed"
        await until(lambda: not kafka.connections.open_connections)
        with_users: list[str] = []

        def again() -> None:
            with ask_versions(kafka.port(), context, None) as first:
                session = first.session
            with ask_versions(kafka.port(), context, session):
                with_users.extend(users(kafka))

        await asyncio.to_thread(again)
        assert with_users[-1] == "CN=alice"


@contextlib.contextmanager
def ask_versions(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> Any:
    """A connection of a blocking client that has got one answer."""
    plain = socket.create_connection((HOST, port), timeout=TIMEOUT_S)
    with context.wrap_socket(plain, server_hostname="localhost", session=session) as client:
        client.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        assert client.recv(4)
        yield client


async def test_a_client_that_does_not_trust_the_certificate_ends_the_handshake(
    tmp_path: Path, authority: Authority
) -> None:
    async with Kafka(tls=listener_tls(authority.issue("server"))) as kafka:
        with capture_logs() as logs:
            assert not await is_served(kafka, Authority(tmp_path / "other").client_context())
            await until(lambda: outcomes(kafka, "failed") + outcomes(kafka, "closed"))
        assert not kafka.connections.open_connections
        assert all("alert" in line["reason"] for line in logs)


@settings(max_examples=40)
@given(st.lists(st.binary(min_size=1, max_size=400), min_size=1, max_size=5))
def test_random_bytes_in_place_of_a_handshake_stop_no_other_client(streams: list[bytes]) -> None:
    async def attempt(authority: Authority) -> None:
        async with Kafka(tls=listener_tls(authority.issue("server"))) as kafka:
            for stream in streams:
                _, writer = await asyncio.open_connection(HOST, kafka.port())
                writer.write(b"\x16\x03\x01" + stream if len(stream) % 2 else stream)
                writer.close()
            assert await is_served(kafka, authority.client_context())
            await until(lambda: not kafka.world.metric(OPEN))

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(attempt(Authority(Path(folder))))


async def test_a_client_without_tls_is_rejected_with_one_line(authority: Authority) -> None:
    async with Kafka(tls=listener_tls(authority.issue("server"))) as kafka:
        with capture_logs() as logs:
            reader, writer = await asyncio.open_connection(HOST, kafka.port())
            writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
            assert len(await reader.read()) < 20, "at most an alert of TLS"
            writer.close()
            await until(lambda: outcomes(kafka, "failed"))
        assert [line["reason"] for line in logs] == ["the client does not use TLS"]


async def test_a_large_answer_of_a_slow_client_is_encrypted_as_it_is_taken(authority: Authority) -> None:
    """And a client that takes it later gets it whole."""
    async with Kafka(tls=listener_tls(authority.issue("server"))) as kafka:
        kafka.world.sequencer.add_topic("large", 400_000)
        client = await kafka.connect(tls=authority.client_context())
        body = encode_request(3, 8, MetadataRequest(topics=None))
        for number in range(2):
            client.send(3, 8, body, number)
        await until(lambda: kafka.connections.response_memory.held_bytes > 4 * MIB)
        for number in range(2):
            assert await client.next_correlation_id() == number
        client.ask_versions(7)
        assert await client.next_correlation_id() == 7
        assert not kafka.connections.response_memory.held_bytes


async def test_a_client_that_half_closes_during_a_large_answer_gets_it(authority: Authority) -> None:
    async with Kafka(tls=listener_tls(authority.issue("server"))) as kafka:
        kafka.world.sequencer.add_topic("large", 100_000)

        def ask() -> int:
            plain = socket.create_connection((HOST, kafka.port()), timeout=TIMEOUT_S)
            with authority.client_context().wrap_socket(plain, server_hostname="localhost") as client:
                body = encode_request(3, 8, MetadataRequest(topics=None))
                client.sendall(struct.pack(">ihhih", 10 + len(body), 3, 8, 1, -1) + body)
                head = client.recv(4)
                plain_socket = socket.socket(fileno=os.dup(client.fileno()))
                plain_socket.shutdown(socket.SHUT_WR)  # an end without a close_notify
                plain_socket.close()
                left = int.from_bytes(head, "big")
                while left:
                    received = len(client.recv(min(left, MIB)))
                    assert received
                    left -= received
                return len(head)

        assert await asyncio.to_thread(ask) == 4


async def test_more_handshakes_than_the_limit_are_closed_and_served_clients_stay(authority: Authority) -> None:
    async with Kafka(tls=listener_tls(authority.issue("server")), limits=limited(handshakes_max=50)) as kafka:
        context = authority.client_context()
        client = await kafka.connect(tls=context)
        with capture_logs() as logs:
            idle = [await asyncio.open_connection(HOST, kafka.port()) for _ in range(50)]
            await until(lambda: kafka.world.metric(OPEN) == 50)
            assert not await is_served(kafka, context)
            client.ask_versions(1)
            assert await client.next_correlation_id() == 1
        assert [line["reason"] for line in logs] == ["too many TLS handshakes in progress"]
        assert outcomes(kafka, "refused") == 1
        for _, writer in idle:
            writer.close()
        await until(lambda: not kafka.world.metric(OPEN))
        assert outcomes(kafka, "closed") == 50
        assert await is_served(kafka, context)


async def test_a_flood_of_handshakes_takes_turns_and_all_complete(authority: Authority) -> None:
    """With a turn of no time, each iteration of the event loop does one step."""
    async with Kafka(tls=listener_tls(authority.issue("server")), limits=limited(turn_s_max=0.0)) as kafka:
        context = authority.client_context()
        clients = await asyncio.gather(*(kafka.connect(tls=context) for _ in range(100)))
        for number, client in enumerate(clients):
            client.ask_versions(number)
            assert await client.next_correlation_id() == number
        assert outcomes(kafka, "completed") == 100


async def test_a_handshake_is_cut_at_its_time_limit(authority: Authority) -> None:
    async with Kafka(tls=listener_tls(authority.issue("server")), limits=limited(handshake_s_max=0.1)) as kafka:
        with capture_logs() as logs:
            reader, writer = await asyncio.open_connection(HOST, kafka.port())
            writer.write(b"\x16\x03\x01\x02")  # the first bytes of a ClientHello
            async with asyncio.timeout(TIMEOUT_S):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
        assert [line["reason"] for line in logs] == ["the TLS handshake takes too long"]
        assert outcomes(kafka, "timeout") == 1
        assert not kafka.world.metric(OPEN)


@pytest.mark.parametrize("end", ["stall", "drain", "close"])
async def test_a_stall_or_the_end_of_the_gateway_ends_handshakes_in_progress(authority: Authority, end: str) -> None:
    limits = ConnectionLimits(stall_s=2.0)
    async with Kafka(tls=listener_tls(authority.issue("server")), limits=limits) as kafka:
        reader, writer = await asyncio.open_connection(HOST, kafka.port())
        await until(lambda: kafka.world.metric(OPEN) == 1)
        if end == "stall":
            kafka.world.clock.now_s += 2.1
        elif end == "drain":
            await kafka.connections.drain(10)
        else:
            await kafka.connections.close()
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        assert outcomes(kafka, "stopped") == 1


async def test_a_client_over_its_quota_of_connections_gets_no_handshake(authority: Authority) -> None:
    async with Kafka(tls=listener_tls(authority.issue("server"))) as kafka:
        kafka.world.sequencer.set_quota("connection_creation_rate", "1", ip=HOST)
        await kafka.world.gateway.quotas.refresh()
        results = [await is_served(kafka, authority.client_context()) for _ in range(12)]
        assert results[0] and not results[-1]
        assert outcomes(kafka, "connection_rate") == results.count(False)
        assert outcomes(kafka, "completed") == results.count(True)


@contextlib.asynccontextmanager
async def reloading(kafka: Kafka, tls: ListenerTls) -> AsyncIterator[TlsReloader]:
    """A reloader that looks at files all the time."""
    reloader = TlsReloader([tls], kafka.world.gateway.metrics, ReloadLimits(poll_s=0.01))
    running = asyncio.create_task(reloader.run())
    yield reloader
    running.cancel()
    await asyncio.wait({running})


def reloads(kafka: Kafka, outcome: str) -> float:
    return kafka.world.metric("penstock_gateway_certificate_reloads_total", outcome=outcome)


async def serial_of(kafka: Kafka, authority: Authority) -> str:
    """The serial number of the certificate that a new connection gets."""
    client = await kafka.connect(tls=authority.client_context())
    certificate = client.writer.get_extra_info("peercert")
    return str(certificate["serialNumber"])


async def test_a_certificate_is_replaced_under_load_without_a_failed_request(authority: Authority) -> None:
    """Old connections stay, and connections that begin during the change get the old or the new certificate."""
    tls = listener_tls(authority.issue("server"))
    async with Kafka(tls=tls) as kafka, reloading(kafka, tls):
        old = await serial_of(kafka, authority)
        veteran = await kafka.connect(tls=authority.client_context())
        ended = asyncio.Event()
        answered = 0

        async def load(connect: Callable[[], Awaitable[RawClient]]) -> None:
            nonlocal answered
            while not ended.is_set():
                client = await connect()
                client.ask_versions(answered)
                assert await client.next_correlation_id() >= 0
                answered += 1

        async def same() -> RawClient:
            return veteran

        loads = [
            asyncio.create_task(load(same)),
            *(asyncio.create_task(load(lambda: kafka.connect(tls=authority.client_context()))) for _ in range(3)),
        ]
        for number in range(5):
            before = reloads(kafka, "completed")
            authority.issue("server", f"CN=server{number}")
            await until(lambda before=before: reloads(kafka, "completed") > before)
            await until(lambda goal=answered + 10: answered >= goal)
        ended.set()
        await asyncio.gather(*loads)
        assert await serial_of(kafka, authority) != old
        assert outcomes(kafka, "failed") == 0


async def test_wrong_new_files_keep_the_old_certificate_and_right_ones_later_replace_it(authority: Authority) -> None:
    pair = authority.issue("server")
    tls = listener_tls(pair)
    async with Kafka(tls=tls) as kafka, reloading(kafka, tls):
        old = await serial_of(kafka, authority)
        with capture_logs() as logs:
            pair.certificate.write_text("rubbish")
            await until(lambda: reloads(kafka, "failed"))
            pair.certificate.unlink()
            await until(lambda: reloads(kafka, "failed") >= 2)
        assert await serial_of(kafka, authority) == old
        errors = [line["error"] for line in logs if line["event"] == "certificate_reload_failed"]
        assert "no valid PEM certificate" in errors[0]
        assert "No such file" in errors[-1]
        authority.issue("server", days=3)
        await until(lambda: reloads(kafka, "completed"))
        assert await serial_of(kafka, authority) != old
        expiry = kafka.world.metric("penstock_gateway_certificate_expiry_seconds", listener="SSL")
        assert expiry == tls.not_after_ms / 1000


async def test_a_signal_reads_files_that_seem_unchanged(authority: Authority) -> None:
    tls = listener_tls(authority.issue("server"))
    async with Kafka(tls=tls) as kafka:
        reloader = TlsReloader([tls], kafka.world.gateway.metrics, ReloadLimits(poll_s=HOUR_S))
        running = asyncio.create_task(reloader.run())
        reloader.reload_soon()
        await until(lambda: reloads(kafka, "completed") == 1)
        running.cancel()
        await asyncio.wait({running})


async def test_other_client_authorities_hold_for_new_connections_also_for_resumed_ones(
    tmp_path: Path, authority: Authority
) -> None:
    alice = authority.issue("alice", "CN=alice", usage=CLIENT)
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.certificate.read_bytes())
    tls = listener_tls(authority.issue("server"), ssl_client_auth="required", ssl_truststore_certificates=str(trusted))
    context = only(ssl.TLSVersion.TLSv1_3, authority.client_context(alice))
    async with Kafka(tls=tls) as kafka, reloading(kafka, tls):
        session = await asyncio.to_thread(session_of, kafka.port(), context)
        trusted.write_bytes(Authority(tmp_path / "other", "Other CA").certificate.read_bytes())
        await until(lambda: reloads(kafka, "completed"))
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            await asyncio.to_thread(session_of, kafka.port(), context, session)
        await until(lambda: outcomes(kafka, "failed"))


def session_of(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSession | None:
    with ask_versions(port, context, session) as client:
        found: ssl.SSLSession | None = client.session
    return found
