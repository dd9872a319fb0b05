"""The brokers of the cluster as one client sees them."""

from typing import Protocol

import msgspec

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
    """The brokers for this client and its leader."""
    own = gateway.nodes[client.listener]
    brokers = brokers_for(client.listener, client.zone, own, gateway.directory.live("gateway"))
    return ClusterView(brokers, leader_for(f"{client.client_id}\0{client.host}", brokers))
