"""Builds one process that is the gateway of several virtual clusters; no other module does this.

Each cluster has a `GatewayApp` of its own, with all its caches, and nothing of another cluster. They share the sockets
of the listeners, the connection to NATS, and the limits of the process (ADR 0061).
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Any, cast

import structlog
from prometheus_client import CollectorRegistry

from penstock.clusters.hosting import HostedRole, HostingApp, ProcessParts
from penstock.clusters.record import ClusterQuotas, ClusterRecord
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import Clock, SystemClock, SystemEntropy
from penstock.runtime.process.config import ALL_CLUSTERS
from penstock.runtime.process.garbage import PolicyOfAnother, ScheduledPolicy
from penstock.runtime.process.life import App
from penstock_gateway.app import GatewayApp
from penstock_gateway.config import GatewayConfig
from penstock_gateway.kafka.cluster_choice import LISTENER_CLUSTERS, ClusterChoice, parse_listener_clusters
from penstock_gateway.kafka.listener_config import ListenerSpec, parse_listeners
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.security.login.failure_delays import FailureDelays
from penstock_gateway.security.login.login_setup import make_tenant_logins
from penstock_gateway.security.tls_contexts import ListenerTls, TlsReloader
from penstock_gateway.server.before_login import ConnectionsBeforeLogin
from penstock_gateway.server.cluster_listeners import ClusterListener, ClusterListeners, SharedMetrics
from penstock_gateway.server.listener import Listener, open_socket

ROLE = "gateway"

log = structlog.get_logger()


def make_process(config: GatewayConfig) -> App:
    """A gateway, or several in one process, each for another cluster; `Invalid` if a listener cannot be used."""
    if config.clusters:
        return HostingApp(config, ROLE, hosted(config))
    if config.listener_clusters:
        raise Invalid(f"{LISTENER_CLUSTERS} needs the setting clusters, with the clusters that it names")
    return GatewayApp(config)


def hosted(config: GatewayConfig) -> HostedRole:
    """The gateways of many clusters, which share their listeners."""
    return SharedGateway(config).hosted()


class SharedGateway:
    """The parts of the process that the gateways of all clusters share."""

    def __init__(self, config: GatewayConfig, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._config = config
        self._specs = parse_listeners(config.listeners, config.advertised_listeners)
        by_listener = parse_listener_clusters(config.listener_clusters, [spec.name for spec in self._specs])
        self._clusters: Callable[[], Mapping[str, ClusterRecord]] = dict  # until the registry is read
        self.choice = ClusterChoice(by_listener, lambda: self._clusters())
        self._limits = config.process_limits()
        tls = {
            name: ListenerTls(security, clock)
            for name, security in config.listener_securities().items()
            if security.tls is not None
        }
        for spec in self._specs:
            if spec.name not in by_listener and spec.name not in tls:
                raise Invalid(f"the listener {spec.name} has no TLS, so {LISTENER_CLUSTERS} must name its cluster")
        self._registry = CollectorRegistry()
        metrics = SharedMetrics(self._registry)
        self._delays = FailureDelays(GatewayLimits().logins.delays)
        self._before_login: ConnectionsBeforeLogin | None = None
        self._reloader = TlsReloader(list(tls.values()), metrics)
        self._listeners = ClusterListeners(
            {spec.name: open_socket(spec.host, spec.port) for spec in self._specs},
            tls,
            choice=self.choice,
            connections=self._limits.connections,
            metrics=metrics,
            monotonic_s=clock.monotonic_s,
            limits=GatewayLimits().connections,
        )
        if config.tenant_listeners():
            self._before_login = self._listeners.before_login = self._make_before_login(clock, metrics)

    def _make_before_login(self, clock: Clock, metrics: SharedMetrics) -> ConnectionsBeforeLogin:
        config, listeners, limits = self._config, self._config.login_listeners(), GatewayLimits()
        own = GatewayMetrics(CollectorRegistry(), topics_max=0)
        for used in (own.logins, own.connections, own.connections_closed):
            self._registry.register(used)
        logins = make_tenant_logins(
            config.logins(),
            {name: listeners[name] for name in config.tenant_listeners()},
            find=self._listeners.gateway_of,
            served=self._listeners.verifiers,
            clock=clock,
            entropy=SystemEntropy(),
            metrics=own,
            delays=self._delays,
            limits=limits.logins,
        )
        return ConnectionsBeforeLogin(
            config,
            clock=clock,
            logins=logins,
            metrics=own,
            limits=limits.connections,
            shares=self._limits.join(),
        )

    def hosted(self) -> HostedRole:
        """The gateways of all clusters."""
        return HostedRole(make=self.make, upkeep=self.run, garbage=ScheduledPolicy())

    def port(self, listener: str) -> int:
        """The port of a listener, as it is bound."""
        return self._listeners.port(listener)

    async def run(self, parts: ProcessParts) -> None:
        """Accept connections until cancelled."""
        self._clusters = lambda: self._hosted(parts.watch.clusters)
        parts.registry.register(self._registry)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reloader.reload_soon)
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._before_login is not None:
                    tasks.create_task(self._before_login.run())
                tasks.create_task(self._listeners.run())
                tasks.create_task(self._reloader.run())
        finally:
            if self._before_login is not None:
                await self._before_login.close()

    def _hosted(self, records: Mapping[str, ClusterRecord]) -> Mapping[str, ClusterRecord]:
        """The records of the clusters that this process serves, or will serve soon."""
        if self._config.clusters == ALL_CLUSTERS:
            return records
        return {name: records[name] for name in self._config.cluster_names if name in records}

    def make(self, config: GatewayConfig, *, quotas: Callable[[], ClusterQuotas], **parts: Any) -> GatewayApp:
        """The gateway of one cluster."""

        def make_listener(spec: ListenerSpec, _tls: ListenerTls | None) -> Listener:
            return cast(Listener, ClusterListener(spec.name, config.cluster, self._listeners))

        def specs() -> list[ListenerSpec]:
            seen = (self.choice.spec_for(self._bound(spec), config.cluster) for spec in self._specs)
            found = [spec for spec in seen if spec is not None]
            if not found:
                log.warning(
                    "cluster_without_listener", hint=f"give it a server name, or a listener in {LISTENER_CLUSTERS}"
                )
            return found

        return GatewayApp(
            config,
            **parts,
            make_listener=make_listener,
            own_specs=specs,
            shares=self._limits.join(),
            connections_max=lambda: quotas().connections,
            delays=self._delays,
            garbage=PolicyOfAnother(),
        )

    def _bound(self, spec: ListenerSpec) -> ListenerSpec:
        """The listener with its port, also if the setting was any free one."""
        return ListenerSpec(spec.name, spec.host, self.port(spec.name), spec.advertised)
