"""A nats-server with deploy/nats/tls.conf: each service needs its certificate and its password."""

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.cli.credentials import ROLES
from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.bus.bus import Bus, Inbound
from penstock.runtime.nats.client import NatsLimits, connect_nats
from penstock.runtime.nats.server import MESSAGE_BYTES_MAX
from penstock.runtime.nats.tls import NatsTls
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.backend import LOOPBACK
from tests.testkit.servers.deployed import Credentials, DeployedNats, DeployedService, deployed_nats
from tests.testkit.waiting import until

PATIENT = NatsLimits(connect_deadline_s=30, connect_attempt_s=20)
READY_TIMEOUT_S = 60.0
SERVICE = "cacher"


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(tmp_path_factory.mktemp("credentials"), with_tls=True)


@pytest.fixture(scope="module")
def server(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedNats]:
    with deployed_nats(tmp_path_factory.mktemp("nats"), credentials, "tls.conf") as started:
        yield started


@contextlib.asynccontextmanager
async def connected(
    url: str, credentials: Credentials, role: str, tls: NatsTls, limits: NatsLimits = PATIENT
) -> AsyncIterator[Bus]:
    given = credentials.of(role)
    user, password = given["PENSTOCK_NATS_USER"], given["PENSTOCK_NATS_PASSWORD"]
    connection = await connect_nats(url, name="test", user=user, password=password, tls=tls, limits=limits)
    try:
        yield connection.bus
    finally:
        await connection.close()


@pytest.mark.parametrize("role", ROLES)
async def test_a_service_connects_with_its_certificate_and_its_password(
    server: DeployedNats, credentials: Credentials, role: str
) -> None:
    async with connected(server.url, credentials, role, credentials.tls(role)) as bus:
        await bus.flush()


async def test_messages_of_the_largest_size_arrive_whole_in_both_directions(
    server: DeployedNats, credentials: Credentials
) -> None:
    subject, payload = "penstock.default.cache.z.f", bytes(range(256)) * (MESSAGE_BYTES_MAX // 256)

    async def echo(message: Inbound) -> None:
        await message.respond(message.data)

    async with (
        connected(server.url, credentials, "cacher", credentials.tls("cacher")) as cacher,
        connected(server.url, credentials, "gateway", credentials.tls("gateway")) as gateway,
    ):
        await cacher.subscribe(subject, echo)
        await cacher.flush()
        for _ in range(3):
            assert await gateway.request(subject, payload, 60) == payload


async def rejected(url: str, credentials: Credentials, tls: NatsTls, reason: str | None = None) -> None:
    limits = NatsLimits(connect_deadline_s=2, connect_attempt_s=2)
    with pytest.raises(Unavailable, match=reason):
        async with connected(url, credentials, "gateway", tls, limits):
            pass


async def test_no_client_connects_without_tls_or_with_a_certificate_of_another_authority(
    server: DeployedNats, credentials: Credentials, tmp_path: Path
) -> None:
    others = Credentials(tmp_path, with_tls=True).tls("gateway")
    own = credentials.tls("gateway")
    await rejected(server.url.replace("tls:", "nats:"), credentials, NatsTls())
    await rejected(server.url, credentials, NatsTls(own.ca))
    await rejected(server.url, credentials, NatsTls(own.ca, others.certificate, others.key))


async def test_a_client_sends_nothing_to_a_server_of_another_authority_or_another_name(
    server: DeployedNats, credentials: Credentials, tmp_path: Path
) -> None:
    own = credentials.tls("gateway")
    others = Credentials(tmp_path, with_tls=True).tls("gateway")
    await rejected(server.url, credentials, NatsTls(others.ca, own.certificate, own.key), "certificate verify failed")
    await rejected(server.url.replace(LOOPBACK, "127.1"), credentials, own, "not valid for")


def test_the_server_sends_nothing_before_the_handshake(server: DeployedNats) -> None:
    with socket.create_connection((LOOPBACK, server.port), timeout=30) as client:
        client.sendall(b"CONNECT {}\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert b"INFO" not in answer


async def test_addresses_without_tls_are_rejected_with_the_files_of_tls(credentials: Credentials) -> None:
    with pytest.raises(Invalid, match="must begin with tls://"):
        async with connected("tls://a:1,nats://b:2", credentials, "gateway", credentials.tls("gateway")):
            pass


async def test_an_unreadable_file_is_named(credentials: Credentials, tmp_path: Path) -> None:
    ca, certificate, key = (getattr(credentials.tls("gateway"), name) for name in ("ca", "certificate", "key"))
    missing = str(tmp_path / "missing.pem")
    for tls in (NatsTls(missing, certificate, key), NatsTls(ca, missing, key), NatsTls(ca, certificate, missing)):
        with pytest.raises(Invalid, match=r"missing\.pem"):
            async with connected("tls://127.0.0.1:1", credentials, "gateway", tls):
                pass
    with pytest.raises(Invalid, match="belong together"):
        async with connected("tls://127.0.0.1:1", credentials, "gateway", NatsTls(ca, certificate)):
            pass


async def test_after_the_rotation_of_the_authority_only_new_certificates_are_accepted(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "credentials", with_tls=True)
    role = tmp_path / "old"
    (credentials.folder / "gateway").rename(role)
    old = NatsTls(*(str(role / name) for name in ("ca.pem", "nats.pem", "nats-key.pem")))
    credentials.rotate("ca")
    new = credentials.tls("gateway")
    with deployed_nats(tmp_path, credentials, "tls.conf") as server:
        await rejected(server.url, credentials, NatsTls(new.ca, old.certificate, old.key))
        async with connected(server.url, credentials, "gateway", new) as bus:
            credentials.rotate("nats")
            server.reload(credentials)
            await until(lambda: "Reloaded server configuration" in server.log())
            await bus.flush()  # the old connection lives on
        async with connected(server.url, credentials, "gateway", new):
            pass


def tls_settings(credentials: Credentials, role: str) -> dict[str, str]:
    """The settings of a process for TLS to NATS."""
    tls = credentials.tls(role)
    return {"NATS_TLS_CA": tls.ca, "NATS_TLS_CERTIFICATE": tls.certificate, "NATS_TLS_KEY": tls.key}


def test_a_process_takes_the_files_from_its_settings(
    server: DeployedNats, credentials: Credentials, tmp_path: Path
) -> None:
    files = tls_settings(credentials, SERVICE)
    settings = {"NATS_URL": server.url, "STORE_URL": f"file://{tmp_path}/objects", **files}
    service = DeployedService(SERVICE, ["-m", f"penstock_{SERVICE}"], tmp_path, credentials, **settings)
    try:
        wait_until(service.is_ready, READY_TIMEOUT_S, "the service")
        assert service.stop() == 0
    finally:
        service.kill()


@pytest.mark.parametrize("settings", ["nats.conf", "tls.conf"])
def test_a_process_whose_secrets_are_replaced_ends_and_starts_again_with_its_new_files(
    tmp_path: Path, settings: str
) -> None:
    """Its container starts it again. Processes of other users keep their connections."""
    credentials = Credentials(tmp_path / "credentials", with_tls=settings == "tls.conf")
    with deployed_nats(tmp_path, credentials, settings) as server, contextlib.ExitStack() as stack:

        def start(role: str) -> DeployedService:
            given = {"NATS_URL": server.url, "STORE_URL": f"file://{tmp_path}/objects"}
            if settings == "tls.conf":
                given |= tls_settings(credentials, role)
            service = DeployedService(role, ["-m", f"penstock_{role}"], tmp_path, credentials, **given)
            stack.callback(service.kill)
            wait_until(service.is_ready, READY_TIMEOUT_S, f"the {role}")
            return service

        rotated, other = start(SERVICE), start("flusher")
        credentials.rotate(SERVICE)
        server.reload(credentials)
        assert rotated.process.wait(READY_TIMEOUT_S) == 1
        assert "authorization failed" in rotated.log()
        assert not [secret for secret in credentials.secrets() if secret in rotated.log()]
        start(SERVICE)
        assert other.is_ready()
        assert "nats_disconnected" not in other.log()
