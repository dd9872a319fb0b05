"""A listener where the login chooses the cluster: over real sockets, with two clusters behind it."""

import asyncio
import contextvars
import math
from types import TracebackType
from typing import Any, Self

import pytest
import structlog
from prometheus_client import CollectorRegistry

from penstock.clusters.record import ClusterRecord
from penstock.kafkawire.api import decode_response, encode_request
from penstock.kafkawire.api.api_versions import ApiVersionsRequest
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock.kafkawire.api.sasl_authenticate import SaslAuthenticateRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.config import GatewayConfig
from penstock_gateway.kafka.broker_view import node_of
from penstock_gateway.kafka.cluster_choice import BY_LOGIN, ClusterChoice
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.login.failure_delays import DelayLimits, FailureDelays
from penstock_gateway.security.login.login_setup import make_tenant_logins
from penstock_gateway.security.login.logins import LoginLimits
from penstock_gateway.server.before_login import ConnectionsBeforeLogin
from penstock_gateway.server.cluster_listeners import ClusterListeners, SharedMetrics
from penstock_gateway.server.connection_manager import ConnectionManager
from penstock_gateway.server.limits import ConnectionLimits
from penstock_gateway.server.listener import open_socket
from tests.testkit.waiting import until
from tests.unit.gateway.gateway_fakes import ZONE, CountingEntropy, World, new_world
from tests.unit.gateway.security.gateway_logins import FakeUsers, ScramClient
from tests.unit.gateway.security.test_gateway_logins import authenticate, handshake, is_served, log_in
from tests.unit.gateway.server.test_gateway_listener import HOST, RawClient

LOGIN, PLAIN, SCRAM = "LOGIN", "PLAIN", "SCRAM-SHA-256"
LIMITS = ConnectionLimits(stall_s=math.inf)
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
TENANTS = {"acme": "a", "brown": "b"}


class Tenants:
    """Two clusters whose users alice have different passwords; the iterations of all passwords are unusual."""

    def __init__(self, *, first_s: float = 0.0, connections_max: int = 0, **settings: Any) -> None:
        config = GatewayConfig(
            listeners=f"{LOGIN}://{HOST}:0",
            listener_security_protocol_map=f"{LOGIN}:SASL_PLAINTEXT",
            listener_clusters=f"{LOGIN}={BY_LOGIN}",
            sasl_enabled_mechanisms=f"{SCRAM},PLAIN",
            sasl_plain_without_tls=True,
            **settings,
        )
        delays, process = FailureDelays(DelayLimits(first_s=first_s)), config.process_limits()
        self.worlds: dict[str, World] = {}
        self.gateways: dict[str, ConnectionManager] = {}
        self.contexts: dict[str, contextvars.Context] = {}
        records = {
            cluster: ClusterRecord(name=cluster, created_id=cluster, created_ms=1, tenants=(tenant,))
            for tenant, cluster in TENANTS.items()
        }
        records["c"] = ClusterRecord(name="c", created_id="c", created_ms=1, tenants=("starts",))
        metrics = SharedMetrics(CollectorRegistry())
        world = None
        for cluster in ("a", "b"):
            users = FakeUsers()
            users.add("alice", f"secret of {cluster}", iterations=5_000)
            users.add(f"only-{cluster}", "secret", iterations=5_000)
            own = {"sasl_enabled_mechanisms": f"{SCRAM},PLAIN", "sasl_plain_without_tls": True, **settings}
            own["sasl_login_secret"] = f"a secret of the cluster {cluster}"  # all have the same name here
            world = new_world(
                nodes={LOGIN: node_of(HOST, 9092, ZONE)},
                logins={LOGIN: False},
                users=users,
                by_tenant=[LOGIN],
                delays=delays,
                **own,
            )
            self.worlds[cluster] = world
            # As in a process that hosts clusters.
            self.contexts[cluster] = contextvars.copy_context()
            self.contexts[cluster].run(structlog.contextvars.bind_contextvars, cluster=cluster)
            self.gateways[cluster] = self.contexts[cluster].run(
                ConnectionManager,
                gateway=world.gateway,
                config=world.config,
                listeners=(),
                dispatcher=world.dispatcher,
                limits=LIMITS,
                shares=process.join(),
                connections_max=lambda: connections_max,
            )
        assert world is not None
        self.clock = world.clock
        for each in self.worlds.values():
            each.clock.now_s = self.clock.now_s
        self.listeners = ClusterListeners(
            {LOGIN: open_socket(HOST, 0)},
            {},
            choice=ClusterChoice({LOGIN: BY_LOGIN}, lambda: records),
            connections=process.connections,
            metrics=metrics,
            monotonic_s=self.clock.monotonic_s,
            limits=LIMITS,
        )
        own_metrics = GatewayMetrics(CollectorRegistry())
        logins = make_tenant_logins(
            config.logins(),
            config.login_listeners(),
            find=self.listeners.gateway_of,
            served=self.listeners.verifiers,
            clock=self.clock,
            entropy=CountingEntropy(),
            metrics=own_metrics,
            delays=delays,
            limits=LoginLimits(),
        )
        self.before = ConnectionsBeforeLogin(
            config, clock=self.clock, logins=logins, metrics=own_metrics, limits=LIMITS, shares=process.join()
        )
        self.listeners.before_login = self.before
        for cluster, gateway in self.gateways.items():
            self.listeners.add(cluster, gateway)
        self._clients: list[RawClient] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(each.run()) for each in (self.before, self.listeners)]
        for cluster, gateway in self.gateways.items():
            self._tasks.append(asyncio.create_task(gateway.run(), context=self.contexts[cluster]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.close()
        for owner in (self.before, *self.gateways.values()):
            await owner.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def connect(self) -> RawClient:
        client = RawClient(*await asyncio.open_connection(HOST, self.listeners.port(LOGIN)))
        self._clients.append(client)
        return client

    def open_connections(self) -> list[int]:
        """The connections without a cluster, and those of each cluster."""
        return [owner.open_connections for owner in (self.before, *self.gateways.values())]


async def refusal(clusters: Tenants, mechanism: str, user: str, password: str = "guess") -> Any:
    """The last answer to a login that fails; the connection then closes."""
    client = await clusters.connect()
    if mechanism == PLAIN:
        await handshake(client, mechanism)
        answer = await authenticate(client, f"\0{user}\0{password}".encode())
    else:
        answer = await log_in(client, user, password, mechanism)
    assert await client.until_closed() == b""
    return answer


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", [SCRAM, PLAIN])
async def test_a_login_binds_the_connection_to_the_cluster_of_its_tenant(mechanism: str, version: int) -> None:
    async with Tenants() as clusters:
        for number, (tenant, cluster) in enumerate(TENANTS.items(), 1):
            client = await clusters.connect()
            user, password = f"{tenant}/alice", f"secret of {cluster}"
            await until(lambda: clusters.open_connections()[0] == 1)
            if version == 0 and mechanism == PLAIN:
                await handshake(client, mechanism, 0)
                token = f"\0{user}\0{password}".encode()
                client.writer.write(len(token).to_bytes(4) + token)
                assert await client.reader.readexactly(4) == bytes(4)
            elif mechanism == PLAIN:
                await handshake(client, mechanism)
                assert (await authenticate(client, f"\0{user}\0{password}".encode())).error_code == ErrorCode.NONE
            else:
                assert (await log_in(client, user, password)).error_code == ErrorCode.NONE
            assert await is_served(client)
            assert clusters.open_connections() == [0, 1, int(number == 2)]
            (connection,) = clusters.gateways[cluster].all
            assert connection.client.user == "alice"
            gateway = clusters.gateways[cluster]
            assert (gateway.budget.held_bytes, gateway.budget.complete_bytes) == (0, 0)
        assert (clusters.before.budget.held_bytes, clusters.before.budget.complete_bytes) == (0, 0)


@pytest.mark.parametrize("mechanism", [SCRAM, PLAIN])
async def test_a_tenant_that_does_not_exist_is_refused_as_a_wrong_password_and_as_an_unknown_user(
    mechanism: str,
) -> None:
    async with Tenants() as clusters:
        names = ("acme/alice", "acme/mallory", "acme/only-b", "nobody/alice", "alice", "acme/", "/alice", "a/alice")
        answers = [await refusal(clusters, mechanism, name) for name in names]
        answers.append(await refusal(clusters, mechanism, "acme/alice", "secret of b"))
        assert {answer.error_code for answer in answers} == {FAILED}
        assert len({answer.error_message for answer in answers}) == 1
        assert clusters.open_connections() == [0, 0, 0]


async def salt_and_iterations(clusters: Tenants, user: str) -> tuple[bytes, int]:
    scram, client = ScramClient(SCRAM, user, "guess"), await clusters.connect()
    await handshake(client, SCRAM)
    scram.final((await authenticate(client, scram.first)).auth_bytes)
    return scram.salt, scram.iterations


async def test_the_users_of_unknown_tenants_get_salts_like_those_of_unknown_users() -> None:
    async with Tenants() as clusters:
        names = [f"{tenant}/{user}" for tenant in ("acme", "brown", "nobody", "none") for user in ("mallory", "eve")]
        found = [await salt_and_iterations(clusters, name) for name in names]
        assert {iterations for _, iterations in found} == {5_000}
        assert len({salt for salt, _ in found}) == len(names), "each user of each tenant has a salt of its own"
        assert {len(salt) for salt, _ in found} <= set(range(20, 27))
        assert found == [await salt_and_iterations(clusters, name) for name in names], "and keeps it"


async def test_the_delays_of_failures_grow_over_all_tenants_together() -> None:
    """A delay that began anew at each tenant would reveal the tenants that exist."""
    async with Tenants(first_s=0.01) as clusters:
        loop = asyncio.get_running_loop()
        took_s = []
        for user in ("acme/alice", "nobody/alice", "brown/alice", "none/alice", "acme/mallory", "brown/eve"):
            began_s = loop.time()
            await refusal(clusters, SCRAM, user)
            took_s.append(loop.time() - began_s)
        for number, each_s in enumerate(took_s):
            assert each_s >= 0.01 * 2**number


@pytest.mark.parametrize("api_key", [0, 1, 3, 50])
async def test_a_connection_without_a_cluster_may_only_log_in(api_key: int) -> None:
    async with Tenants() as clusters:
        client = await clusters.connect()
        client.send(18, 3, encode_request(18, 3, ApiVersionsRequest()), 1)
        versions = decode_response(18, 3, (await client.next_body()))
        assert versions.error_code == ErrorCode.NONE
        assert versions.finalized_features_epoch == -1, "the features are those of no cluster"
        client.send(api_key, 8, b"", 2)
        assert await client.until_closed() == b""


async def test_requests_behind_the_last_token_of_a_login_are_served_by_the_cluster() -> None:
    async with Tenants() as clusters:
        client = await clusters.connect()
        await handshake(client, PLAIN)
        clusters.worlds["b"].sequencer.seen_sequence = 7
        seen = []
        handlers = clusters.worlds["b"].handlers
        original = handlers[3]

        async def handle(gateway: Any, caller: Any, version: int, request: Any) -> Any:
            seen.append((caller.user, caller.seen_sequence))
            return await original(gateway, caller, version, request)

        handlers[3] = handle
        token = encode_request(36, 1, SaslAuthenticateRequest(b"\0brown/alice\0secret of b"))
        client.send(36, 1, token, 5)
        client.send(3, 8, encode_request(3, 8, MetadataRequest([])), 6)
        assert [await client.next_correlation_id() for _ in range(2)] == [5, 6]
        assert seen == [("alice", 7)], "it follows all changes that the gateway knew at the login"


async def test_a_connection_without_a_login_keeps_the_limits_and_closes_after_ten_seconds() -> None:
    async with Tenants() as clusters:
        client, large = await clusters.connect(), await clusters.connect()
        large.writer.write((64 * 1024 + 1).to_bytes(4))
        assert await large.until_closed() == b""
        clusters.clock.now_s += 11
        clusters.before.sweep()
        assert await client.until_closed() == b""


async def test_the_quota_of_connections_counts_from_the_login_on() -> None:
    async with Tenants(connections_max=1) as clusters:
        waiting = [await clusters.connect() for _ in range(3)]
        assert (await log_in(waiting[0], "acme/alice", "secret of a")).error_code == ErrorCode.NONE
        assert (await log_in(waiting[1], "brown/alice", "secret of b")).error_code == ErrorCode.NONE
        scram = ScramClient(SCRAM, "acme/alice", "secret of a")
        await handshake(waiting[2], SCRAM)
        waiting_final = scram.final((await authenticate(waiting[2], scram.first)).auth_bytes)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await authenticate(waiting[2], waiting_final)
        assert await is_served(waiting[0])
        await until(lambda: clusters.open_connections() == [0, 1, 1])


async def test_a_login_again_may_not_change_the_tenant() -> None:
    async with Tenants(connections_max_reauth_ms=60_000) as clusters:
        client = await clusters.connect()
        assert (await log_in(client, "acme/alice", "secret of a")).session_lifetime_ms == 60_000
        clusters.worlds["a"].clock.now_s += 30
        assert (await log_in(client, "acme/alice", "secret of a")).session_lifetime_ms == 60_000
        clusters.worlds["a"].clock.now_s += 30
        await handshake(client, SCRAM)
        scram = ScramClient(SCRAM, "brown/alice", "secret of b")
        assert (await authenticate(client, scram.first)).error_code == FAILED
        assert await client.until_closed() == b""


async def test_the_clients_of_a_tenant_whose_cluster_is_not_served_yet_connect_again() -> None:
    """A failed login would end them."""
    async with Tenants() as clusters:
        client = await clusters.connect()
        await handshake(client, SCRAM)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await authenticate(client, ScramClient(SCRAM, "starts/alice", "secret").first)


async def test_a_login_in_progress_does_not_reach_a_cluster_that_ends() -> None:
    """The next cluster of the same name has other users."""
    async with Tenants() as clusters:
        scram, client = ScramClient(SCRAM, "acme/alice", "secret of a"), await clusters.connect()
        await handshake(client, SCRAM)
        final = scram.final((await authenticate(client, scram.first)).auth_bytes)
        clusters.listeners.remove("a")
        await clusters.gateways["a"].drain(1)
        clusters.listeners.add("a", clusters.gateways["b"])
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await authenticate(client, final)
        await until(lambda: clusters.open_connections() == [0, 0, 0])


def fail(_gateway: Any, _client: Any, _version: int, _request: Any) -> Any:
    raise LookupError("a bug")


async def logged_of_clusters(clusters: Tenants) -> list[tuple[str, str | None]]:
    """The warnings about a connection without a login, and about one of each cluster, with their fields `cluster`."""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        client = await clusters.connect()
        client.send(3, 8, b"", 1)
        assert await client.until_closed() == b""
        for tenant, cluster in TENANTS.items():
            clusters.worlds[cluster].handlers[3] = fail
            client = await clusters.connect()
            assert (await log_in(client, f"{tenant}/alice", f"secret of {cluster}")).error_code == ErrorCode.NONE
            client.send(3, 8, encode_request(3, 8, MetadataRequest([])), 2)
            assert await client.until_closed() == b""
    return [(line["event"], line.get("cluster")) for line in lines if line["log_level"] in ("warning", "error")]


async def test_log_lines_about_connections_name_the_cluster() -> None:
    async with Tenants() as clusters:
        assert await logged_of_clusters(clusters) == [
            ("connection_refused", None),
            ("request_failed", "a"),
            ("connection_refused", "a"),
            ("request_failed", "b"),
            ("connection_refused", "b"),
        ]


async def test_the_log_line_of_a_stall_names_the_cluster_also_if_a_connection_detects_it() -> None:
    async with Tenants() as clusters:
        await clusters.connect()
        clusters.gateways["a"].limits = ConnectionLimits(stall_s=1.0)
        clusters.worlds["a"].clock.now_s += 2.0
        with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
            clusters.gateways["a"].wake()  # in the context of no cluster, as a socket does
        assert [(line["event"], line["cluster"]) for line in lines] == [("process_stalled", "a")]
