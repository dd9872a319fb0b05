"""The listeners of a process with several virtual clusters: each connection is handed to the gateway of its cluster.

A gateway of one cluster gets `ClusterListener`s in place of sockets of its own. The sockets stay open while clusters
come and go. A connection without a cluster is closed, and counted.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter

from penstock.contracts.errors import Unavailable
from penstock.runtime.concurrency.beat import until_beat
from penstock_gateway.kafka.cluster_choice import ClusterChoice
from penstock_gateway.kafka.shared_limit import SharedLimit
from penstock_gateway.metrics import TlsMetrics
from penstock_gateway.security.login.credentials import Verifiers
from penstock_gateway.security.login.logins import HasLogins
from penstock_gateway.security.tls_contexts import ListenerTls
from penstock_gateway.server.connection import Connection, Owner
from penstock_gateway.server.connection_manager import ConnectionManager
from penstock_gateway.server.handshakes import Handshakes
from penstock_gateway.server.limits import ConnectionLimits
from penstock_gateway.server.listener import BACKLOG
from penstock_gateway.server.rejection_log import RejectionLog
from penstock_gateway.server.tls_connection import RECEIVE_BYTES, TlsConnection


class ClusterOwner(Owner, HasLogins, Protocol):
    """The gateway of one cluster, for its connections and logins."""


class SharedMetrics(TlsMetrics):
    """The metrics of listeners that clusters share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.unserved_connections = Counter(
            "penstock_gateway_unserved_connections",
            "Connections without TLS that were closed: the cluster of their listener is not served, or there are too "
            "many connections.",
            registry=registry,
        )


class ClusterListeners:
    """The open sockets of a process, and the gateways behind them."""

    admits = False

    def __init__(
        self,
        sockets: Mapping[str, socket.socket],
        tls: Mapping[str, ListenerTls],
        *,
        choice: ClusterChoice,
        connections: SharedLimit,
        metrics: SharedMetrics,
        monotonic_s: Callable[[], float],
        limits: ConnectionLimits,
    ) -> None:
        """`sockets` by listener; `tls` of those with TLS; `connections` counts those of all clusters."""
        self._sockets = sockets
        self._tls = tls
        self._choice = choice
        self._connections = connections
        self._metrics = metrics
        self._limits = limits
        self.handshakes = Handshakes(metrics, monotonic_s, limits.handshakes)
        self._rejections = RejectionLog(monotonic_s, limits.rejection_log)
        self._owners: dict[str, ClusterOwner] = {}  # by cluster
        self._verifiers: Sequence[Verifiers] = ()
        self.before_login: ConnectionManager | None = None  # of connections whose login chooses the cluster
        self._servers: list[asyncio.Server] = []
        self._buffer = memoryview(bytearray(RECEIVE_BYTES if tls else 0))
        for listener, own in tls.items():
            if choice.is_by_name(listener):
                own.accepts_name = lambda name, listener=listener: self._owner(listener, name) is not None

    async def run(self) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            for name, listening in self._sockets.items():
                make = lambda name=name: self._new_connection(name)  # noqa: E731
                self._servers.append(await loop.create_server(make, sock=listening, backlog=BACKLOG))
            while True:
                await until_beat(self._limits.sweep_interval_s)
                self._rejections.flush()
        finally:
            for server in self._servers:
                server.close()
            self.handshakes.give_up_all()

    def port(self, listener: str) -> int:
        """The port of a listener, as it is bound."""
        return int(self._sockets[listener].getsockname()[1])

    def gateway_of(self, tenant: str) -> ClusterOwner | None:
        """The gateway of a tenant; None if there is no such tenant, `Unavailable` if its cluster is not served now."""
        cluster = self._choice.cluster_of_tenant(tenant)
        if cluster is None:
            return None
        if cluster not in self._owners:
            raise Unavailable(f"the cluster {cluster} of the tenant {tenant} is not served now")
        return self._owners[cluster]

    def verifiers(self) -> Sequence[Verifiers]:
        """The verifiers of the users of each cluster, in the order of the clusters' names."""
        return self._verifiers

    def add(self, cluster: str, owner: ClusterOwner) -> None:
        """Hand the connections of a cluster to its gateway from now on."""
        self._owners[cluster] = owner
        self._sort_verifiers()

    def remove(self, cluster: str) -> None:
        """Refuse the connections of a cluster: its gateway is about to end."""
        self._owners.pop(cluster, None)
        self._sort_verifiers()

    def _sort_verifiers(self) -> None:
        found = (self._owners[cluster].logins.verifiers for cluster in sorted(self._owners))
        self._verifiers = [each for each in found if each is not None]

    def _owner(self, listener: str, server_name: str = "") -> Owner | None:
        if self._choice.is_by_login(listener):
            return self.before_login
        cluster = self._choice.cluster_of(listener, server_name)
        return self._owners.get(cluster) if cluster is not None else None

    def _new_connection(self, listener: str) -> asyncio.BaseProtocol:
        tls = self._tls.get(listener)
        if tls is not None:
            return TlsConnection(self, listener, tls, self._buffer)
        owner = self._owner(listener)
        if owner is None or self.refusal():
            reason = self.refusal() or f"the cluster of the listener {listener} is not served now"
            return _Refused(partial(self._refused, listener, reason))
        return Connection(owner, listener)

    # ---- the owner of handshakes

    def owner_of(self, listener: str, server_name: str) -> Owner | None:
        """The gateway that gets a connection after its handshake."""
        return self._owner(listener, server_name)

    def refusal(self) -> str:
        is_full = self._connections.used >= self._connections.limit
        return f"more than {self._connections.limit} connections" if is_full else ""

    def wake(self) -> bool:
        """The gateways of clusters look for stalls of the process themselves."""
        return False

    def delay_s(self, host: str) -> float:
        """The quotas of new connections are those of a cluster, which checks them after the handshake."""
        return 0.0

    def log_handshake(self, host: str, reason: str) -> None:
        self._rejections.record(reason, peer=host, client_id="")

    def _refused(self, listener: str, reason: str, host: str) -> None:
        """Log and count a connection that got no gateway."""
        cluster = None if self._choice.is_by_login(listener) else self._choice.cluster_of(listener, "")
        facts = {"cluster": cluster} if cluster is not None else {}
        self._rejections.record(reason, peer=host, client_id="", **facts)
        self._metrics.unserved_connections.inc()


class ClusterListener:
    """A listener as the gateway of one cluster has it."""

    def __init__(self, name: str, cluster: str, shared: ClusterListeners) -> None:
        self.name = name
        self._cluster = cluster
        self._shared = shared

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._shared.port(self.name)

    async def accept(self, owner: ClusterOwner) -> None:
        """Get connections from now on."""
        self._shared.add(self._cluster, owner)

    def stop(self) -> None:
        """Get no more connections."""
        self._shared.remove(self._cluster)

    def close(self) -> None:
        """The socket stays open for other clusters."""


class _Refused(asyncio.Protocol):
    """A connection that is closed at once."""

    def __init__(self, report: Callable[[str], None]) -> None:
        """`report` takes the address of the client."""
        self._report = report

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self._report(peer[0] if peer else "")
        transport.close()
