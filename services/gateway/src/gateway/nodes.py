"""Which Kafka brokers a client is told of, which of them leads, and where the client runs; pure functions."""

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from penstock.contracts.messages import Presence

# `zone=a` among the parts of a client id; `ws_az` and `diskless_az` are what relatives of Penstock read there.
_ZONE = re.compile(r"(?:^|[,;\s])(?:zone|ws_az|diskless_az)=([A-Za-z0-9_-]{1,64})(?=$|[,;\s])")


class Node(msgspec.Struct, frozen=True, order=True):
    """A gateway as Kafka clients see it: a broker."""

    node_id: int
    host: str
    port: int
    zone: str


def zone_of(client_id: str, listener_zone: str) -> str:
    """The zone that a client id names, else the listener's."""
    if "=" not in client_id:
        return listener_zone
    found = _ZONE.search(client_id)
    return found[1] if found else listener_zone


def node_of(host: str, port: int, zone: str) -> Node:
    """The broker at an address; its id is the same wherever and whenever it is computed, from 1 to 2^31 - 1."""
    digest = hashlib.blake2b(f"{host}:{port}".encode(), digest_size=4).digest()
    return Node(int.from_bytes(digest, "big") % (2**31 - 1) + 1, host, port, zone)


def brokers_for(zone: str, own: Node, gateways: Iterable[Presence]) -> list[Node]:
    """The brokers that a client of `zone` is told of: its zone's, or everybody if there is none.

    Processes that share one port are one broker. `own` counts even if its announcement has not come back yet.
    """
    nodes = {own.node_id: own}
    for presence in gateways:
        node = node_of(presence.host, presence.port, presence.zone)
        nodes.setdefault(node.node_id, node)
    near = [node for node in nodes.values() if node.zone == zone]
    return sorted(near or nodes.values())


def leader_for(client: str, brokers: Sequence[Node]) -> Node:
    """The one broker that leads every partition for a client, by rendezvous hash: few clients move when one dies."""
    return max(brokers, key=lambda node: rendezvous_weight(client, str(node.node_id)))


def rendezvous_weight(key: str, choice: str) -> bytes:
    """How much `key` is drawn to `choice`; the heaviest choice wins."""
    return hashlib.blake2b(f"{key}\0{choice}".encode(), digest_size=8).digest()
