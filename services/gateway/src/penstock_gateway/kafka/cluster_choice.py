"""Chooses the virtual cluster of a connection: by its listener, its server name of TLS, or its login's tenant. Pure."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from penstock.clusters.record import ClusterRecord
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import check_token
from penstock.contracts.messages import ListenerAddress
from penstock_gateway.kafka.listener_config import ListenerSpec

LISTENER_CLUSTERS = "listener_clusters"
BY_LOGIN = "login"  # in place of a cluster
ANY_LABEL = "*."  # at the start of a server name


def parse_listener_clusters(text: str, listeners: Sequence[str]) -> dict[str, str]:
    """The cluster of each listener that has one of its own; `Invalid` with one sentence if the setting is wrong."""
    found: dict[str, str] = {}
    for item in (each.strip() for each in text.split(",") if each.strip()):
        name, equals, cluster = (part.strip() for part in item.partition("="))
        name = name.upper()
        if not equals:
            raise Invalid(f"{LISTENER_CLUSTERS} must be NAME=cluster, separated by commas: {item!r}")
        if name not in listeners:
            raise Invalid(f"{LISTENER_CLUSTERS}: {name} is no listener; there are {', '.join(listeners)}")
        if name in found:
            raise Invalid(f"{LISTENER_CLUSTERS} must have different names: {name} occurs twice")
        check_token(f"the cluster of the listener {name}", cluster)
        found[name] = cluster
    return found


def listeners_by_login(text: str, listeners: Sequence[str]) -> list[str]:
    """The listeners where the login chooses the cluster."""
    return [name for name, cluster in parse_listener_clusters(text, listeners).items() if cluster == BY_LOGIN]


class ClusterChoice:
    """The clusters of a process as connections find them."""

    def __init__(self, by_listener: Mapping[str, str], records: Callable[[], Mapping[str, ClusterRecord]]) -> None:
        """`records` returns the active clusters of the registry, by name."""
        self._by_listener = by_listener
        self._records = records

    def is_by_name(self, listener: str) -> bool:
        """Whether the server name of TLS chooses the cluster."""
        return listener not in self._by_listener

    def is_by_login(self, listener: str) -> bool:
        """Whether the tenant of the login chooses the cluster."""
        return self._by_listener.get(listener) == BY_LOGIN

    def cluster_of(self, listener: str, server_name: str) -> str | None:
        """The cluster of a connection where no login chooses it; None if there is none for it."""
        return self._by_listener.get(listener) or self._named(server_name.lower())

    def spec_for(self, spec: ListenerSpec, cluster: str) -> ListenerSpec | None:
        """A listener as the clients of a cluster see it; None if it is not for them.

        Tenants may change at any time, so each cluster has the listeners where the login chooses.

        Where the server name chooses, clients get the first name of the cluster as the address of its gateways.
        """
        if not self.is_by_name(spec.name):
            return spec if self._by_listener[spec.name] in (cluster, BY_LOGIN) else None
        record = self._records().get(cluster)
        names = [name for name in record.server_names if not name.startswith(ANY_LABEL)] if record else []
        if not names:
            return None
        port = spec.advertised.port if spec.advertised is not None else spec.port
        return msgspec.structs.replace(spec, advertised=ListenerAddress(spec.name, names[0], port))

    def cluster_of_tenant(self, tenant: str) -> str | None:
        """The cluster of the logins of a tenant; None for an unknown one."""
        return _oldest([record for record in self._records().values() if tenant in record.tenants])

    def _named(self, server_name: str) -> str | None:
        label, _, rest = server_name.partition(".")
        wanted = {server_name, f"{ANY_LABEL}{rest}"} if label and rest else {server_name}
        records = [record for record in self._records().values() if wanted & set(record.server_names)]
        exact = [record for record in records if server_name in record.server_names]
        return _oldest(exact or records)


def _oldest(records: Sequence[ClusterRecord]) -> str | None:
    """The name of the cluster that was created first."""
    first = min(records, key=lambda record: (record.created_ms, record.name), default=None)
    return first.name if first is not None else None
