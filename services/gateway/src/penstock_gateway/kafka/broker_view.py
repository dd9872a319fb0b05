"""The Kafka brokers that a client sees, the one that leads for it, and the client's zone and pool. Pure functions."""

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from penstock.contracts.ids import DEFAULT_POOL
from penstock.contracts.messages import Presence

# `zone=a` among the parts of a client id; systems that are similar to Penstock read `ws_az` and `diskless_az` there.
_ZONE = re.compile(r"(?:^|[,;\s])(?:zone|ws_az|diskless_az)=([A-Za-z0-9_-]{1,64})(?=$|[,;\s])")
_POOL = re.compile(r"(?:^|[,;\s])pool=([A-Za-z0-9_-]{1,64})(?=$|[,;\s])")


class Node(msgspec.Struct, frozen=True, order=True):
    """A gateway as Kafka clients see it: a broker."""

    node_id: int
    host: str
    port: int
    zone: str
    pool: str = DEFAULT_POOL


def zone_of(client_id: str, gateway_zone: str) -> str:
    """The zone that a client id names, else the gateway's."""
    return _named(_ZONE, client_id) or gateway_zone


def pool_of(client_id: str, gateway_pool: str) -> str:
    """The pool that a client id names, else the gateway's."""
    return _named(_POOL, client_id) or gateway_pool


def _named(part: re.Pattern[str], client_id: str) -> str:
    found = part.search(client_id) if "=" in client_id else None
    return found[1] if found else ""


def node_of(host: str, port: int, zone: str, pool: str = DEFAULT_POOL) -> Node:
    """The broker at an address; its id depends on the address only, and is from 1 to 2^31 - 1."""
    return Node(id_of(f"{host}:{port}"), host, port, zone, pool)


def id_of(name: str) -> int:
    """The id of a broker or of another instance, from 1 to 2^31 - 1."""
    digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % (2**31 - 1) + 1


def brokers_for(listener: str, zone: str, pool: str, own: Node, gateways: Iterable[Presence]) -> list[Node]:
    """The brokers for a client of `zone` and `pool`, at their addresses for clients of `listener`.

    They are the pool's gateways with such a listener: those of the zone, or of all zones if the zone has none.
    A pool without gateways has no brokers; the gateways of another pool never take its clients. Processes that share
    an address, as behind a proxy, are one broker. `own` counts even if its presence has not come back yet.
    """
    announced = [
        node_of(address.host, address.port, presence.zone, presence.pool)
        for presence in gateways
        for address in presence.listeners
        if address.name == listener
    ]
    nodes = [node for node in (own, *announced) if node.pool == pool]
    near = [node for node in nodes if node.zone == zone]
    brokers: dict[int, Node] = {}
    for node in near or nodes:
        brokers.setdefault(node.node_id, node)
    return sorted(brokers.values())


def leader_for(client: str, brokers: Sequence[Node]) -> Node:
    """The one broker that leads every partition for a client, by rendezvous hash: few clients move if one dies."""
    return max(brokers, key=lambda node: _weight_of(client, node))


def coordinator_for(key: str, brokers: Sequence[Node]) -> Node:
    """The one broker that coordinates a group, a transactional id or a share partition, by rendezvous hash."""
    return max(brokers, key=lambda node: _weight_of(key, node))


def known_brokers(listener: str, brokers: Sequence[Node], gateways: Iterable[Presence], started_ms: int) -> list[Node]:
    """Those of the brokers that started at `started_ms` or before; all of them if none did."""
    known = {
        node_of(address.host, address.port, presence.zone).node_id
        for presence in gateways
        for address in presence.listeners
        if address.name == listener and presence.started_ms <= started_ms
    }
    return [node for node in brokers if node.node_id in known] or list(brokers)


def broker_weight(client: str, host: str, port: int) -> bytes:
    """The weight of the broker at this address for a client; `leader_for` compares these."""
    return _weight_of(client, node_of(host, port, ""))


def _weight_of(client: str, node: Node) -> bytes:
    return rendezvous_weight(client, str(node.node_id))


def rendezvous_weight(key: str, choice: str) -> bytes:
    """The weight of `choice` for `key`; the choice with the greatest weight wins."""
    return hashlib.blake2b(f"{key}\0{choice}".encode(), digest_size=8).digest()
