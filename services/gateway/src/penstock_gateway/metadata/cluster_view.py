"""The brokers of the cluster as one client sees them."""

from typing import Protocol

import msgspec

from penstock.contracts.errors import Unavailable
from penstock_gateway.kafka.broker_view import Node, brokers_for, leader_for
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasDirectory, HasNodes


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
