"""Certificates are replaced while stock clients produce and consume: no request fails, no record is lost or doubled."""

import contextlib
import os
import signal
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509

from tests.testkit.clusters.cluster import running, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, add_user, secured_gateway
from tests.testkit.loads.secured_load import PARTITIONS, SecuredClients, SecuredLoad, secured_load
from tests.testkit.servers.certificates import CLIENT, Authority, Pair, tls_settings

pytestmark = pytest.mark.e2e

TOPIC, USER, PASSWORD = "rotated", "alice", "secret"
LISTENERS = ("SSL", "SASL_SSL")
TIMEOUT_S = 120.0
HANDSHAKES = "penstock_gateway_tls_handshakes_total"
RELOADS = "penstock_gateway_certificate_reloads_total"
CLOSED = "penstock_gateway_connections_closed_total"
REQUESTS = "penstock_gateway_request_seconds_count"


class World(NamedTuple):
    """A gateway whose listeners have the files in `folder`, and the settings of its clients."""

    folder: Path
    gateway: SecuredGateway
    clients: SecuredClients
    server: Pair
    trusted: Path  # the authorities of clients, as the gateway knows them

    def serials(self) -> set[int]:
        """The serial numbers of the certificates that new connections to all listeners get."""
        context = self.clients.context()
        return {
            wait_until(lambda address=address: shown_serial(address, context), TIMEOUT_S, "a handshake")
            for address in self.gateway.addresses.values()
        }

    def reloads(self, outcome: str) -> float:
        return self.gateway.metric(RELOADS, outcome=outcome)

    def has_stalled(self) -> bool:
        """Whether the machine was so slow that the gateway had to close connections."""
        return self.gateway.metric(CLOSED, cause="stalled") > 0 or "was not decided" in self.gateway.log()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "first", "First CA")


@pytest.fixture
def world(tmp_path: Path, authority: Authority) -> Iterator[World]:
    server, own = (Pair(tmp_path / f"{name}.pem", tmp_path / f"{name}.key") for name in ("server", "client"))
    by_gateway, by_clients = tmp_path / "trusted-by-gateway.pem", tmp_path / "trusted-by-clients.pem"
    install(authority.issue("server"), server)
    install(authority.issue("client", "CN=alice", usage=CLIENT), own)
    trust(by_gateway, authority)
    trust(by_clients, authority)
    settings = tls_settings(server, ssl_client_auth="required", ssl_truststore_certificates=by_gateway)
    with running(tmp_path / "data", "--flush-ms", "20") as cluster:
        add_user(cluster, USER, PASSWORD)
        with secured_gateway(cluster, "secured", *LISTENERS, **settings) as gateway:
            clients = SecuredClients(gateway.addresses, USER, PASSWORD, by_clients, own)
            create_topic(clients)
            yield World(tmp_path, gateway, clients, server, by_gateway)


def create_topic(clients: SecuredClients) -> None:
    """The client for it ends here: after a stall, it would connect again with its old authority."""
    admin = AdminClient(clients.confluent("SSL"))
    admin.create_topics([NewTopic(TOPIC, len(PARTITIONS))])[TOPIC].result(TIMEOUT_S)


def replace(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(data)
    os.replace(new, path)


def install(pair: Pair, place: Pair) -> int:
    """Rename a key and then its certificate over the files in use, and return the certificate's serial number."""
    replace(place.key, pair.key.read_bytes())
    replace(place.certificate, pair.certificate.read_bytes())
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes()).serial_number


def trust(path: Path, *authorities: Authority) -> None:
    """Replace a file of trusted authorities."""
    replace(path, b"".join(each.certificate.read_bytes() for each in authorities))


@contextlib.contextmanager
def connection(address: str, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as client,
    ):
        yield client


def serial(client: ssl.SSLSocket) -> int:
    """The serial number of the server's certificate."""
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def shown_serial(address: str, context: ssl.SSLContext) -> int | None:
    """The serial number that a new connection gets; None if a stall has broken it."""
    with contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLEOFError), connection(address, context) as client:
        return serial(client)
    return None


def is_served(client: ssl.SSLSocket) -> bool:
    """Whether a request over the connection gets its answer."""
    client.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))  # ApiVersions
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        data = client.recv(65_536)
        if not data:
            return False
        answer += data
    return answer[4:8] == struct.pack(">i", 7)


def is_alive(client: ssl.SSLSocket) -> bool:
    try:
        return is_served(client)
    except (ssl.SSLError, ConnectionError):
        return False


def is_accepted(address: str, context: ssl.SSLContext) -> bool:
    """Whether a client with this context is served; with TLS 1.3 it learns that after its handshake."""
    try:
        with connection(address, context) as client:
            return is_served(client)
    except (ssl.SSLError, ConnectionError):
        return False


def until_new(world: World, wanted: int, load: SecuredLoad) -> None:
    wait_until(lambda: load.failures or world.serials() == {wanted}, TIMEOUT_S, f"the certificate {wanted}", 0.2)
    load.progress()


def until_reloaded(
    world: World,
    load: SecuredLoad,
    change: Callable[[], None],
    outcome: str = "completed",
    listeners: int = len(LISTENERS),
) -> None:
    """Make a change, and return when so many listeners have read it and the load has made progress."""
    goal = world.reloads(outcome) + listeners
    change()
    wait_until(lambda: load.failures or world.reloads(outcome) >= goal, TIMEOUT_S, f"reloads: {outcome}", 0.2)
    load.progress()


def check(world: World, load: SecuredLoad, replacements: int, caplog: pytest.LogCaptureFixture) -> None:
    """Print the numbers of a load that has ended, and check that nothing failed."""
    gateway = world.gateway
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("aiokafka")]
    refused = {outcome: gateway.metric(HANDSHAKES, outcome=outcome) for outcome in ("failed", "timeout", "refused")}
    print(
        f"{replacements} replacements, {gateway.metric(REQUESTS):.0f} requests, {sum(load.acknowledged)} records, "
        f"{load.lives} clients, {gateway.metric(HANDSHAKES, outcome='completed'):.0f} handshakes, "
        f"{len(load.failures)} failed"
    )
    assert not load.failures
    reasons = [line for line in gateway.log().splitlines() if "TLS" in line]
    assert not any(refused.values()), (refused, reasons)
    assert gateway.metric("penstock_gateway_logins_total", outcome="failed") == 0
    if not world.has_stalled():
        assert not load.interruptions + logged


def test_a_certificate_is_replaced_under_load_and_no_request_fails(
    world: World, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    gateway, replacements = world.gateway, 0
    with (
        connection(gateway.addresses["SSL"], world.clients.context()) as old,
        secured_load(world.clients, TOPIC) as load,
    ):
        load.progress()
        for _ in range(4):
            new = install(authority.issue("next"), world.server)
            until_new(world, new, load)
            replacements += 1
        new = install(authority.issue("next"), world.server)
        until_reloaded(world, load, lambda: gateway.process.send_signal(signal.SIGHUP))
        assert world.serials() == {new}
        replacements += 1
        until_reloaded(world, load, lambda: gateway.process.send_signal(signal.SIGHUP))  # the same files again

        good = world.server.certificate.read_bytes()
        until_reloaded(world, load, lambda: replace(world.server.certificate, b"broken"), "failed")
        assert world.serials() == {new}
        assert "certificate_reload_failed" in gateway.log()
        assert f"ssl_keystore_certificate_chain '{world.server.certificate}' has no valid PEM" in gateway.log()
        other = authority.issue("other")
        until_reloaded(world, load, lambda: replace(world.server.key, other.key.read_bytes()), "failed")
        assert world.serials() == {new}
        replace(world.server.certificate, good)
        new = install(other, world.server)
        until_new(world, new, load)
        replacements += 1

        assert is_alive(old) or world.has_stalled(), "an old connection lives on"
    check(world, load, replacements, caplog)


def test_the_authority_is_replaced_under_load_and_no_request_fails(
    world: World, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The steps of the security page: trust both, change the certificates of servers and clients, trust the new one."""
    second, clients = Authority(world.folder / "second", "Second CA"), world.clients
    first_context = clients.context()
    with secured_load(clients, TOPIC) as load:
        load.progress()
        until_reloaded(world, load, lambda: trust(world.trusted, authority, second), listeners=1)
        trust(clients.trusted, authority, second)
        load.renew()
        new = install(second.issue("server"), world.server)
        until_new(world, new, load)
        install(second.issue("client", "CN=alice", usage=CLIENT), clients.own)
        load.renew()
        until_reloaded(world, load, lambda: trust(world.trusted, second), listeners=1)
        trust(clients.trusted, second)
        load.renew()
    check(world, load, 1, caplog)
    address = world.gateway.addresses["SSL"]
    with pytest.raises(ssl.SSLCertVerificationError), connection(address, first_context):
        pytest.fail("a client that trusts the first authority only has accepted the new certificate")
    first_context.load_verify_locations(second.certificate)
    assert not is_accepted(address, first_context), "its certificate is of the first authority"
    wait_until(lambda: is_accepted(address, clients.context()), TIMEOUT_S, "a client of the second authority")
