"""All services with only their generated credentials, on a NATS and an S3 server that accept no others."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock import objectstore
from penstock.cli.credentials import AGENT, AGENT_ROLES, KEYS, OPERATORS, ROLES
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import new_segment_id
from penstock.objectstore import ObjectStore
from penstock.runtime.clock import SystemClock
from penstock.runtime.process.env_file import read_env_file, with_store_keys
from penstock.segment.keys import segment_key
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.backend import LOOPBACK
from tests.testkit.servers.deployed import Credentials, DeployedNats, DeployedService, deployed_nats, deployed_seaweed
from tests.testkit.servers.ports import free_ports

pytestmark = pytest.mark.slow

RECORDS = 200
HOUR_MS = 3_600_000
READY_TIMEOUT_S = 60.0
SERVICES = [role for role in ROLES if role not in (*OPERATORS, AGENT)]
BESIDE_AGENT = ["sequencer", *AGENT_ROLES, AGENT]
MODULES = {AGENT: ["penstock.cli", "agent"]}


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(tmp_path_factory.mktemp("credentials"))


@pytest.fixture(scope="module")
def nats_server(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedNats]:
    with deployed_nats(tmp_path_factory.mktemp("nats"), credentials) as started:
        yield started


def make_bucket(endpoint: str, credentials: Credentials) -> str:
    """Run `penstock bucket` as the container does; return its output."""
    environ = {
        "PENSTOCK_STORE_URL": store_url(endpoint),
        "PENSTOCK_ENV_FILE": str(credentials.env_file("bucket")),
    }
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", "bucket"], env=environ, capture_output=True, text=True, check=True
    ).stdout


def store_url(endpoint: str, bucket: str = "penstock") -> str:
    return f"s3://{bucket}/?endpoint={endpoint}&region=us-east-1"


@pytest.fixture(scope="module")
def endpoint(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server; its bucket is created while the server still starts."""
    with deployed_seaweed(tmp_path_factory.mktemp("s3"), credentials) as address:
        assert make_bucket(address, credentials) == "created bucket penstock\n"
        yield address


def address(name: str, endpoint: str, credentials: Credentials, bucket: str = "penstock") -> str:
    """The address of the store, with the key of a service."""
    return with_store_keys(store_url(endpoint, bucket), read_env_file(str(credentials.env_file(name))), {})


@contextlib.asynccontextmanager
async def store_of(role: str, endpoint: str, credentials: Credentials) -> AsyncIterator[ObjectStore]:
    store = await objectstore.open_store(address(role, endpoint, credentials))
    try:
        yield store
    finally:
        await store.close()


def test_an_existing_bucket_is_found(endpoint: str, credentials: Credentials) -> None:
    assert make_bucket(endpoint, credentials) == "found bucket penstock\n"


@pytest.mark.parametrize(("prefix", "limit"), [("", 2), ("other/", 1), ("default/journal/", 1)])
async def test_the_key_of_a_service_opens_the_bucket_and_lists_nothing_of_others(
    endpoint: str, credentials: Credentials, prefix: str, limit: int
) -> None:
    async with store_of("gateway", endpoint, credentials) as store:
        with pytest.raises(Invalid, match="AccessDenied"):
            await store.list(prefix, limit=limit)


@pytest.mark.parametrize("name", KEYS)
async def test_no_key_opens_another_bucket(endpoint: str, credentials: Credentials, name: str) -> None:
    url = address(name, endpoint, credentials, "other")
    with pytest.raises(Invalid, match="AccessDenied"):
        await objectstore.make_bucket(url)
    with pytest.raises(Invalid, match=r"NoSuchBucket|AccessDenied"):
        await objectstore.open_store(url)


@pytest.mark.parametrize("secret_of", ["no service", "the gateway"])
async def test_a_key_opens_nothing_without_its_secret(endpoint: str, credentials: Credentials, secret_of: str) -> None:
    secrets = {"no service": "nothing", "the gateway": credentials.of("gateway")["AWS_SECRET_ACCESS_KEY"]}
    keys = f"access_key=penstock-flusher&secret_key={secrets[secret_of]}"
    with pytest.raises(Invalid, match="SignatureDoesNotMatch"):
        await objectstore.open_store(f"{store_url(endpoint)}&{keys}")


class Rig:
    """One process of each service."""

    def __init__(
        self,
        folder: Path,
        credentials: Credentials,
        nats_server: DeployedNats,
        endpoint: str,
        services: Sequence[str] = SERVICES,
    ) -> None:
        self.kafka, self.kafka_of_agent = (f"{LOOPBACK}:{port}" for port in free_ports(2))
        self.is_stopped = False
        shared = {"NATS_URL": nats_server.url, "STORE_URL": store_url(endpoint), "LOG_LEVEL": "debug"}
        own = {
            "gateway": {"LISTENERS": f"PLAINTEXT://{self.kafka}"},
            AGENT: {"LISTENERS": f"PLAINTEXT://{self.kafka_of_agent}"},
            "sequencer": {"NATS_MONITOR_URL": nats_server.monitor_url},
            "janitor": {"SWEEP_INTERVAL_MS": "2000"},
        }
        self.services = {
            role: DeployedService(
                role,
                ["-m", *MODULES.get(role, [f"penstock_{role}"])],
                folder,
                credentials,
                **shared,
                **own.get(role, {}),
            )
            for role in services
        }

    def until_ready(self) -> None:
        for role, service in self.services.items():
            wait_until(service.is_ready, READY_TIMEOUT_S, f"the {role}")

    def stop(self) -> dict[str, int]:
        """Stop all services; return the exit codes by role."""
        self.is_stopped = True
        return {role: service.stop() for role, service in self.services.items()}


@pytest.fixture(scope="module")
def rigs(
    credentials: Credentials, nats_server: DeployedNats, endpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Rig]]:
    """A function that builds a rig, or another one if a test stopped it: the order of the tests is open."""
    built: list[Rig] = []

    def get() -> Rig:
        if not built or built[-1].is_stopped:
            built.append(Rig(tmp_path_factory.mktemp("rig"), credentials, nats_server, endpoint))
            built[-1].until_ready()
        return built[-1]

    try:
        yield get
    finally:
        for service in (each for rig in built for each in rig.services.values()):
            service.kill()


@pytest.fixture
def rig(rigs: Callable[[], Rig]) -> Rig:
    return rigs()


def produce(kafka: str, values: list[bytes], topic: str = "events", client_id: str = "producer") -> None:
    settings = {"bootstrap.servers": kafka, "client.id": client_id}
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def consume(kafka: str, count: int, topic: str = "events", group: str = "readers") -> list[bytes]:
    """Read as a member of a group, and commit."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, f"only {len(found)} of {count} records came"
            assert message.error() is None, message.error()
            found.append(message.value())
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def test_no_secret_is_on_a_page_or_in_a_command_line(rig: Rig, credentials: Credentials) -> None:
    secrets = credentials.secrets()
    for role, service in rig.services.items():
        seen = "".join(service.page(path) for path in ("health", "ready", "metrics"))
        for name in ("cmdline", "environ"):
            seen += Path(f"/proc/{service.process.pid}/{name}").read_text()
        assert role in seen
        assert not [secret for secret in secrets if secret in seen], role


async def test_the_janitor_deletes_an_orphan_and_explains_it(
    rig: Rig, nats_server: DeployedNats, endpoint: str, credentials: Credentials
) -> None:
    now_ms = SystemClock().now_ms()
    old, young = (
        segment_key("", "default", 0, new_segment_id(now_ms - age_ms, bytes(10))) for age_ms in (2 * HOUR_MS, 0)
    )
    environ = {"PENSTOCK_ENV_FILE": str(credentials.env_file("janitor")), "PENSTOCK_NATS_URL": nats_server.url}
    async with store_of("agent", endpoint, credentials) as store:  # a flusher lists nothing
        for key in (old, young):
            await store.put(key, [b"bytes"])
        janitor = rig.services["janitor"]
        while await store.list(old):  # the test has a time-out
            assert janitor.process.poll() is None, janitor.log()
            await asyncio.sleep(0.1)
        for key, word in ((old, "absent"), (young, "young")):
            command = [sys.executable, "-m", "penstock.cli", "janitor", "explain", "--json", key]
            done = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            assert json.loads(done.stdout)["verdict"] == word


def test_records_are_produced_and_consumed_and_no_service_is_denied_anything(
    rig: Rig, nats_server: DeployedNats, credentials: Credentials
) -> None:
    values = [b"%d" % number * 100 for number in range(RECORDS)]
    produce(rig.kafka, values)
    assert consume(rig.kafka, RECORDS) == values

    from_writer = 'penstock_cacher_loads_total{source="writer"}'
    loads = [line for line in rig.services["cacher"].page("metrics").splitlines() if line.startswith(from_writer)]
    assert loads, "the cacher did not load bytes from the flusher over NATS"
    assert loads[0] != f"{from_writer} 0.0"

    assert rig.stop() == dict.fromkeys(SERVICES, 0)
    check_logs(rig, nats_server, credentials)


def check_logs(rig: Rig, nats_server: DeployedNats, credentials: Credentials) -> None:
    """Check that the nats-server denied nothing, and that no log has a secret."""
    logs = {role: service.log() for role, service in rig.services.items()} | {"nats": nats_server.log()}
    for name, log in logs.items():
        assert not re.search("violation|denied", log, re.IGNORECASE), name
        assert not [secret for secret in credentials.secrets() if secret in log], f"the log of {name} has a secret"


def test_an_agent_works_beside_separate_services_and_is_denied_nothing(
    credentials: Credentials, nats_server: DeployedNats, endpoint: str, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, credentials, nats_server, endpoint, BESIDE_AGENT)
    try:
        rig.until_ready()
        for number in range(10):  # the client id chooses the gateway and the flusher
            produce(rig.kafka_of_agent, [b"%d" % number], "beside", f"producer-{number}")
        for group, kafka in (("first", rig.kafka), ("second", rig.kafka_of_agent)):
            assert sorted(consume(kafka, 10, "beside", group)) == [b"%d" % number for number in range(10)]
        assert rig.stop() == dict.fromkeys(BESIDE_AGENT, 0)
    finally:
        for service in rig.services.values():
            service.kill()
    check_logs(rig, nats_server, credentials)
