"""The connections of listeners where the login chooses the cluster, until their logins: they belong to no cluster.

The same limits hold as for other connections before their login. These connections have their own share of the limits
of the process. So they cannot use up the part of a cluster.
"""

from typing import Any, NamedTuple, cast

from penstock.kafkawire.api.api_versions import API as API_VERSIONS
from penstock.kafkawire.api.sasl_authenticate import API as SASL_AUTHENTICATE
from penstock.kafkawire.api.sasl_handshake import API as SASL_HANDSHAKE
from penstock.runtime.clock import Clock
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_gateway.config import GatewayConfig
from penstock_gateway.handlers import Handler
from penstock_gateway.handlers.discovery import api_versions
from penstock_gateway.handlers.logins import sasl_authenticate, sasl_handshake
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import BrokerSettings
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.shared_limit import ClusterShares
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.login.tenant_logins import TenantLogins
from penstock_gateway.server.connection import Owner
from penstock_gateway.server.connection_manager import ConnectionManager
from penstock_gateway.server.dispatch import Dispatcher
from penstock_gateway.server.limits import ConnectionLimits

HANDLERS: dict[int, Handler] = {
    API_VERSIONS.key: api_versions.handle,
    SASL_HANDSHAKE.key: sasl_handshake.handle,
    SASL_AUTHENTICATE.key: sasl_authenticate.handle,
}


class _NoQuotas(NamedTuple):
    is_empty: bool = True


class _NoSequencer(NamedTuple):
    """ApiVersions lists the features of a cluster by its level, which is not known yet."""

    seen_sequence: int = 0
    seen_level: int | None = None


class _NoPendingMembers(NamedTuple):
    async def run(self) -> None:
        """A client joins no group before its login."""


class _NoTelemetry(NamedTuple):
    is_advertised: bool = False


class _Parts(NamedTuple):
    """The parts that the three requests before a login use."""

    clock: Clock
    logins: TenantLogins
    metrics: GatewayMetrics
    response_memory: ResponseMemory
    settings: BrokerSettings
    quotas: _NoQuotas = _NoQuotas()
    sequencer: _NoSequencer = _NoSequencer()
    telemetry: _NoTelemetry = _NoTelemetry()
    pending_members: _NoPendingMembers = _NoPendingMembers()
    traces: Traces = NO_TRACES


class ConnectionsBeforeLogin(ConnectionManager):
    """The owner of connections without a cluster."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        clock: Clock,
        logins: TenantLogins,
        metrics: GatewayMetrics,
        limits: ConnectionLimits,
        shares: ClusterShares,
    ) -> None:
        self._logins = logins
        settings = BrokerSettings(cluster="", zone=config.zone, pool=config.pool, share_groups=config.share_groups)
        own = _Parts(clock, logins, metrics, ResponseMemory(shares.unsent_bytes), settings)
        parts = cast(Any, own)  # no request before a login uses the other parts of a gateway
        super().__init__(
            gateway=parts,
            config=config,
            listeners=(),
            dispatcher=Dispatcher(parts, HANDLERS),
            limits=limits,
            shares=shares,
        )

    def owner_after_login(self, client: Client) -> Owner:
        return cast(Owner, self._logins.chosen(client))
