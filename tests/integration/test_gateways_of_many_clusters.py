"""One gateway process for two virtual clusters: real clients see only that of their listener, server name or login."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import kafka
import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from penstock.cli.agent.hosted import hosted_agents
from penstock.cli.agent.roles import load_role
from penstock.clusters.hosting import HostingApp
from penstock.clusters.record import ClusterQuotas, ClusterRecord, ClusterState
from penstock.clusters.registry import ClusterRegistry
from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.error_codes import ErrorCode
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.process.config import HostingConfig
from penstock.segment.keys import segments_prefix
from penstock_compactor import __main__ as compactor
from penstock_compactor.config import CompactorConfig
from penstock_flusher import __main__ as flusher
from penstock_flusher.config import FlusherConfig
from penstock_gateway.config import GatewayConfig
from penstock_gateway.hosting import SharedGateway
from penstock_sequencer import __main__ as sequencer
from penstock_sequencer.config import SequencerConfig
from tests.testkit.raw_requests import ask
from tests.testkit.servers.certificates import Authority, tls_settings
from tests.testkit.servers.nats import NatsServer
from tests.testkit.waiting import until

HOST = "127.0.0.1"
TOPIC = "events"
SERVER_NAMES = {"a": "a.kafka.test", "b": "b.kafka.test"}  # by cluster
TENANTS = {"a": "acme", "b": "brown"}
TIMEOUT_S = 60


class Process:
    """Sequencers, flushers, compactors and gateways of all clusters in the registry, in the process of the test."""

    def __init__(
        self, folder: Path, server: NatsServer, store: ObjectStore, registry: ClusterRegistry, *, is_agent: bool
    ) -> None:
        self.store, self.registry = store, registry
        authority = Authority(folder / "ca")
        self.authority = str(authority.certificate)
        self.tls = authority.client_context()
        self.tls.check_hostname = False  # the certificate is for localhost
        common: dict[str, Any] = {
            "nats_url": server.url,
            "store_url": f"file://{folder}/objects",
            "clusters": "*",
            "drain_deadline_ms": 2_000,
        }
        gateways = GatewayConfig(
            instance="gateway-1",
            listeners=f"A://{HOST}:0,B://{HOST}:0,TLS://{HOST}:0,LOGIN://{HOST}:0",
            listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT,TLS:SSL,LOGIN:SASL_SSL",
            listener_clusters="A=a,B=b,LOGIN=login",
            sasl_enabled_mechanisms="SCRAM-SHA-256,PLAIN",
            **tls_settings(authority.issue("server")),  # type: ignore[arg-type]
            **common,
        )
        self.shared = SharedGateway(gateways)
        sequencers = SequencerConfig(instance="sequencer-1", nats_monitor_url=server.monitor_url, **common)
        flushers = FlusherConfig(instance="flusher-1", flush_interval_ms=20, **common)
        compactors = CompactorConfig(instance="compactor-1", plan_interval_ms=50, merge_flushed_count=2, **common)
        self._apps: list[Any] = []
        if is_agent:
            names = ("sequencer", "flusher", "compactor", "gateway")
            roles = [load_role(name) for name in names]
            roles[-1] = msgspec.structs.replace(roles[-1], hosted=lambda _: self.shared.hosted())
            hosted = hosted_agents(roles, [sequencers, flushers, compactors, gateways])
            self.gateway = HostingApp(HostingConfig(instance="agent-1", **common), "agent", hosted)
        else:
            services = [(sequencer, sequencers), (flusher, flushers), (compactor, compactors)]
            self._apps += [service.make_process(config) for service, config in services]
            self.gateway = HostingApp(gateways, "gateway", self.shared.hosted())
        self._apps.append(self.gateway)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for app in self._apps:
            await app.open()
            self._tasks.append(asyncio.create_task(app.run()))
        await until(lambda: self.serves("a") and self.serves("b"))

    def serves(self, cluster: str) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()
        gateway: HostingApp = self.gateway
        return cluster in gateway.hosted and gateway.hosted[cluster].state == "serving"

    async def stop(self) -> None:
        for app, task in zip(reversed(self._apps), reversed(self._tasks), strict=True):
            await app.drain()
            task.cancel()
            await asyncio.wait({task})
            await app.close()

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.shared.port(listener)}"

    async def until_merged(self) -> None:
        """Wait until segments of each cluster are merged."""
        for cluster in SERVER_NAMES:
            while not any("/1-" in item.key for item in await self.store.list(segments_prefix("", cluster))):
                await asyncio.sleep(0.05)

    async def alter(self, cluster: str, **changes: Any) -> None:
        """Change the record of a cluster."""
        found = await self.registry.find(cluster)
        assert found is not None
        await self.registry.replace(found, msgspec.structs.replace(found.record, **changes))


@pytest.fixture
async def process(tmp_path: Path, nats_server: NatsServer, request: pytest.FixtureRequest) -> AsyncIterator[Process]:
    """Single services, or an agent with all roles."""
    store = await open_store(f"file://{tmp_path}/objects")
    registry = ClusterRegistry(store)
    for name, server_name in SERVER_NAMES.items():
        names = {"server_names": (server_name,), "tenants": (TENANTS[name],)}
        await registry.create(ClusterRecord(name=name, created_id=name, created_ms=1, **names))
    started = Process(tmp_path, nats_server, store, registry, is_agent=getattr(request, "param", "") == "agent")
    await started.start()
    yield started
    await started.stop()
    await store.close()


def produce(address: str, value: str, **settings: Any) -> None:
    """Produce one record with a stock client."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": address} | settings)
    producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]


def read(address: str, group: str = "readers", **login: Any) -> list[str]:
    """All records of the topic, read with a stock client that commits its offsets."""
    settings = {"bootstrap.servers": address, "group.id": group, "enable.partition.eof": True}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"} | login)
    consumer.subscribe([TOPIC])
    found = []
    try:
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            found.append(message.value().decode())
        assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, len(found))], asynchronous=False)
    finally:
        consumer.close()
    return found


def groups_of(address: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": address})  # its end would end the request
    return {group.group_id for group in admin.list_consumer_groups().result(TIMEOUT_S).valid}


def topic_id(address: str) -> bytes:
    """The id of the topic."""
    admin = AdminClient({"bootstrap.servers": address})
    (found,) = admin.describe_topics(TopicCollection([TOPIC])).values()
    uuid = found.result(TIMEOUT_S).topic_id
    halves = uuid.get_most_significant_bits(), uuid.get_least_significant_bits()
    return b"".join(half.to_bytes(8, "big", signed=True) for half in halves)


def check_by_listener(a: str, b: str) -> None:
    """The same names in both clusters are different things, and none is seen from the other side."""
    produce(a, "of a")
    produce(b, "of b")
    assert (read(a, "only-a"), read(b, "only-b")) == (["of a"], ["of b"])
    assert (groups_of(a), groups_of(b)) == ({"only-a"}, {"only-b"})
    metadata = {each: AdminClient({"bootstrap.servers": each}).list_topics(timeout=TIMEOUT_S) for each in (a, b)}
    assert [each.cluster_id for each in metadata.values()] == ["a", "b"]
    assert [{f"{node.host}:{node.port}" for node in each.brokers.values()} for each in metadata.values()] == [{a}, {b}]
    foreign = topic_id(a)
    assert foreign != topic_id(b)
    fetched = ask(
        b, 1, 13, FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=foreign, partitions=[FetchPartition(0)])])
    )
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    data = [TopicProduceData(topic_id=foreign, partition_data=[PartitionProduceData(0, b"")])]
    produced = ask(b, 0, 13, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data))
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def check_transactions(a: str, b: str) -> None:
    """A transactional id in one cluster fences no producer in the other."""
    producers = [Producer({"bootstrap.servers": each, "transactional.id": "t"}) for each in (a, b)]
    for producer in producers:
        producer.init_transactions(TIMEOUT_S)
    for producer in producers:
        producer.begin_transaction()
        producer.produce(TOPIC, "in a transaction")
        producer.commit_transaction(TIMEOUT_S)


@pytest.mark.parametrize("process", ["agent"], indirect=True)
async def test_clients_see_only_the_cluster_of_their_listener(process: Process) -> None:
    addresses = process.address("A"), process.address("B")
    await asyncio.to_thread(check_by_listener, *addresses)
    await asyncio.to_thread(check_transactions, *addresses)
    await process.until_merged()
    closed = await asyncio.open_connection(HOST, process.shared.port("B"))
    await process.alter("b", state=ClusterState.DELETED, deleted_ms=1, undelete_until_ms=2**50)
    assert await closed[0].read() == b""
    await until(lambda: "b" not in process.gateway.hosted)
    reader, writer = await asyncio.open_connection(HOST, process.shared.port("B"))
    assert await reader.read() == b""
    for each in (writer, closed[1]):
        each.close()
    assert await asyncio.to_thread(read, addresses[0]) == ["of a", "in a transaction"]


def named_client(process: Process, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of clients; all names are resolved to this machine."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **others: resolve(HOST if "test" in str(host) else host, *rest, **others),
    )
    return {"security_protocol": "SSL", "ssl_context": process.tls, "api_version": (2, 8)}


def check_by_name(process: Process, settings: dict[str, Any]) -> None:
    for cluster, name in SERVER_NAMES.items():
        producer = kafka.KafkaProducer(bootstrap_servers=f"{name}:{process.shared.port('TLS')}", **settings)
        producer.send(TOPIC, f"of {cluster}".encode()).get(TIMEOUT_S)
        producer.close()
    for cluster, name in SERVER_NAMES.items():
        address = f"{name}:{process.shared.port('TLS')}"
        consumer = kafka.KafkaConsumer(
            TOPIC,
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            consumer_timeout_ms=TIMEOUT_S * 1000,
            **settings,
        )
        assert next(consumer).value == f"of {cluster}".encode()
        consumer.close()


async def handshake(process: Process, name: str | None) -> str:
    """The result of a handshake for a server name: "" or the alert."""
    try:
        _, writer = await asyncio.open_connection(
            HOST, process.shared.port("TLS"), ssl=process.tls, server_hostname=name or ""
        )
    except ssl.SSLError as error:
        return error.reason or str(error)
    writer.close()
    return ""


async def test_clients_see_only_the_cluster_of_their_server_name(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(check_by_name, process, named_client(process, monkeypatch))
    assert await handshake(process, "A.Kafka.Test") == ""
    for name in ("c.kafka.test", "kafka.test", "x.a.kafka.test", None):
        assert await handshake(process, name) == "TLSV1_UNRECOGNIZED_NAME", name
    await process.alter("b", server_names=("*.b.kafka.test",))
    await until(lambda: process.shared.choice.cluster_of("TLS", "x.b.kafka.test") == "b")
    assert await handshake(process, "x.b.kafka.test") == ""
    assert await handshake(process, "b.kafka.test") == "TLSV1_UNRECOGNIZED_NAME"


async def check_connections(process: Process) -> None:
    """A cluster may have fewer connections than the process."""
    await process.alter("a", quotas=ClusterQuotas(connections=2))
    open_connections: list[asyncio.StreamWriter] = []
    with contextlib.ExitStack() as stack:
        while True:
            reader, writer = await asyncio.open_connection(HOST, process.shared.port("A"))
            stack.callback(writer.close)
            open_connections.append(writer)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    assert await reader.read() == b""
                    break
            assert len(open_connections) < 200, "the quota holds"
        reader, writer = await asyncio.open_connection(HOST, process.shared.port("B"))
        stack.callback(writer.close)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await reader.read()


def failed_delivery(address: str) -> KafkaError | None:
    """Why a record of a stock client with idempotence is not stored; None if it is."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    producer.produce(TOPIC, b"x" * 5_000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0, "the client does not go on sending it"
    return errors[0]


def throttled(client: type[Producer] | type[Consumer], address: str, **settings: Any) -> list[float]:
    """Work for some seconds as a stock client; the times in seconds that the gateway makes it wait."""
    waits: list[float] = []
    common = {"bootstrap.servers": address, "throttle_cb": lambda event: waits.append(event.throttle_time)}
    made = client(common | settings)
    deadline_s = time.monotonic() + TIMEOUT_S
    if isinstance(made, Producer):
        while not any(waits):
            assert time.monotonic() < deadline_s, "the quota holds"
            made.produce(TOPIC, b"x" * 5_000)
            made.flush(TIMEOUT_S)
    else:
        made.subscribe([TOPIC])
        while not any(waits):
            assert time.monotonic() < deadline_s, "the quota holds"
            made.poll(1.0)
        made.close()
    return waits


def delete_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})  # its end would end the request
    admin.delete_topics([TOPIC])[TOPIC].result(TIMEOUT_S)


async def test_the_quotas_of_a_cluster_hold_for_stock_clients_and_for_no_other_cluster(process: Process) -> None:
    a, b = process.address("A"), process.address("B")
    assert await asyncio.to_thread(failed_delivery, a) is None
    await process.alter("a", quotas=ClusterQuotas(stored_bytes=5_000))

    async def until_delivered(*, wanted: bool) -> KafkaError | None:
        while ((found := await asyncio.to_thread(failed_delivery, a)) is None) is not wanted:
            await asyncio.sleep(0.5)
        return found

    error = await until_delivered(wanted=False)
    assert error is not None and error.code() == KafkaError.POLICY_VIOLATION
    assert await asyncio.to_thread(failed_delivery, b) is None
    assert await asyncio.to_thread(read, a), "consumers go on"
    await asyncio.to_thread(delete_topic, a)
    async with asyncio.timeout(TIMEOUT_S):
        await until_delivered(wanted=True)

    rate = 10_000
    await process.alter("a", quotas=ClusterQuotas(produced_bytes_per_s=rate, consumed_bytes_per_s=rate))
    assert await asyncio.to_thread(throttled, Producer, a)
    reader = {"group.id": "slow", "auto.offset.reset": "earliest"}
    assert await asyncio.to_thread(partial(throttled, Consumer, a, **reader))
    await check_connections(process)


def password(cluster: str) -> str:
    return f"secret of {cluster}"


def add_user(address: str, cluster: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(name, info, password(cluster).encode())
    admin.alter_user_scram_credentials([change])[name].result(TIMEOUT_S)


def with_login(process: Process, mechanism: str, name: str, secret: str) -> dict[str, str]:
    """The settings of a stock client for the listener where the login chooses the cluster."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": process.authority,
        "ssl.endpoint.identification.algorithm": "none",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": secret,
    }


def failure(process: Process, mechanism: str, name: str, secret: str) -> str:
    """Why a login fails, as the client reports it; without the time that it took."""
    errors: list[KafkaError] = []
    client = Producer(
        {"bootstrap.servers": process.address("LOGIN"), "error_cb": errors.append}
        | with_login(process, mechanism, name, secret)
    )
    while not errors:
        client.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    return errors[0].str().partition("SASL authentication error")[2].partition(" (after")[0]


def check_by_login(process: Process) -> None:
    address = process.address("LOGIN")
    for cluster in TENANTS:
        add_user(process.address(cluster.upper()), cluster, "alice")
    add_user(process.address("B"), "b", "bob")
    for cluster, tenant in TENANTS.items():
        login = with_login(process, "SCRAM-SHA-256", f"{tenant}/alice", password(cluster))
        produce(address, f"of {cluster}", **login)
    for cluster, tenant in TENANTS.items():
        login = with_login(process, "PLAIN", f"{tenant}/alice", password(cluster))
        assert read(address, **login) == [f"of {cluster}"]
        metadata = AdminClient({"bootstrap.servers": address} | login).list_topics(timeout=TIMEOUT_S)
        assert metadata.cluster_id == cluster
        assert {f"{node.host}:{node.port}" for node in metadata.brokers.values()} == {address}
        consumer = kafka.KafkaConsumer(
            TOPIC,
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            consumer_timeout_ms=TIMEOUT_S * 1000,
            security_protocol="SASL_SSL",
            ssl_context=process.tls,
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username=f"{tenant}/alice",
            sasl_plain_password=password(cluster),
        )
        assert next(consumer).value == f"of {cluster}".encode()
        consumer.close()
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        refused = [("acme/alice", password("b")), ("acme/bob", password("b")), ("nobody/alice", password("a"))]
        found = {failure(process, mechanism, name, secret) for name, secret in refused}
        assert len(found) == 1 and f"invalid credentials with SASL mechanism {mechanism}" in found.pop()


async def test_clients_see_only_the_cluster_of_the_tenant_of_their_login(process: Process) -> None:
    await asyncio.to_thread(check_by_login, process)


def users_of(address: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": address})
    return set(admin.describe_user_scram_credentials().result(TIMEOUT_S))


def bindings_of(address: str) -> set[str]:
    """The principals of all access control lists."""
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient({"bootstrap.servers": address})
    return {each.principal for each in admin.describe_acls(every).result(TIMEOUT_S)}


def check_administration(a: str, b: str) -> None:
    """Users and access control lists of one cluster are not seen, changed or deleted from the other one."""
    add_user(a, "a", "alice")
    assert (users_of(a), users_of(b)) == ({"alice"}, set())
    add_user(b, "b", "alice")
    add_user(b, "b", "bob")
    binding = [
        AclBinding(
            ResourceType.TOPIC,
            TOPIC,
            ResourcePatternType.LITERAL,
            f"User:{name}",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for name in ("alice", "bob")
    ]
    admins = [AdminClient({"bootstrap.servers": each}) for each in (a, b)]
    for made in admins[0].create_acls(binding).values():
        made.result(TIMEOUT_S)
    assert (bindings_of(a), bindings_of(b)) == ({"User:alice", "User:bob"}, set())
    for made in admins[1].create_acls(binding[1:]).values():
        made.result(TIMEOUT_S)
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    (deleted,) = admins[0].delete_acls([every]).values()
    assert len(deleted.result(TIMEOUT_S)) == 2
    assert (bindings_of(a), bindings_of(b)) == (set(), {"User:bob"})
    gone = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    admins[0].alter_user_scram_credentials([gone])["alice"].result(TIMEOUT_S)
    assert (users_of(a), users_of(b)) == (set(), {"alice", "bob"})


async def test_users_and_access_control_lists_belong_to_one_cluster(process: Process) -> None:
    addresses = process.address("A"), process.address("B")
    await asyncio.to_thread(check_administration, *addresses)
