"""The brokers of the cluster as one client sees them, and the entries that each of them lists (ADR 0062)."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from penstock.contracts.errors import Unavailable
from penstock_gateway.kafka.broker_view import Node, brokers_for, coordinator_for, known_brokers, leader_for
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasDirectory, HasNodes

# A client may use its list of brokers for five minutes, the default of all clients. So a new gateway lists nothing
# until every client asks it, too. Until then the older gateways list its share.
NEWCOMER_MS = 330_000
CLOCKS_MS = 10_000  # the wall clocks of gateways may differ by so much: for that time two gateways list the same entry


class ClusterView(msgspec.Struct, frozen=True):
    """The brokers for one client, and the one that leads every partition for it."""

    brokers: list[Node]
    leader: Node


class Needs(HasDirectory, HasNodes, Protocol):
    """The parts of the gateway that this module uses."""


def cluster_of(gateway: Needs, client: Client) -> ClusterView:
    """The brokers for this client and its leader; `Unavailable` if its pool has no gateway."""
    own = gateway.nodes[client.listener]
    brokers = brokers_for(client.listener, client.zone, client.pool, own, gateway.directory.live("gateway"))
    if not brokers:
        raise Unavailable(f"no gateway of the pool {client.pool!r} with a listener {client.listener} is live")
    return ClusterView(brokers, leader_for(f"{client.client_id}\0{client.host}", brokers))


class ListNeeds(HasClock, HasDirectory, HasNodes, Protocol):
    """The parts of the gateway that a listing uses."""


def coordinator_of(cluster: ClusterView, key: str) -> Node:
    """The broker that this client finds as coordinator of a group, a transactional id or a share partition."""
    return coordinator_for(key, cluster.brokers)


def listed_here(gateway: ListNeeds, client: Client) -> Callable[[str], bool]:
    """Whether this gateway lists a group or transactional id for this client, which asks all of its brokers.

    In doubt an entry is listed twice, and it is never missing. A client that does not see this gateway as a broker
    asks it alone. For such a client it lists everything.
    """
    own_id, brokers = gateway.nodes[client.listener].node_id, cluster_of(gateway, client).brokers
    if all(node.node_id != own_id for node in brokers):
        return lambda key: True
    live, since_ms = gateway.directory.live("gateway"), gateway.clock.now_ms() - NEWCOMER_MS
    now = known_brokers(client.listener, brokers, live, since_ms)
    lately = known_brokers(client.listener, brokers, live, since_ms - CLOCKS_MS)
    views = [now] if now == lately else [now, lately]
    return lambda key: any(coordinator_for(key, view).node_id == own_id for view in views)
