"""The place of one gateway among the brokers of each listener: the addresses that clients get for it."""

import socket
from collections.abc import Sequence

import structlog

from penstock.runtime.process.own_address import LOOPBACK, own_address
from penstock_gateway.config import GatewayConfig
from penstock_gateway.kafka.broker_view import Node, node_of
from penstock_gateway.kafka.listener_config import ListenerSpec, advertised_address, host_and_port
from penstock_gateway.server.listener import Listener

log = structlog.get_logger()


async def own_nodes(
    config: GatewayConfig, specs: Sequence[ListenerSpec], listeners: Sequence[Listener]
) -> dict[str, Node]:
    """This gateway as a broker, by listener."""
    nodes = {}
    for spec, listener in zip(specs, listeners, strict=True):
        own_host = await _own_host(config, spec)
        address = advertised_address(spec, listener.port, own_host)
        listens_on = host_and_port(spec.host, listener.port)
        advertised = host_and_port(address.host, address.port)
        log.info("listener_opened", listener=spec.name, listens_on=listens_on, advertised=advertised)
        nodes[spec.name] = node_of(address.host, address.port, config.zone, config.pool)
    return nodes


async def _own_host(config: GatewayConfig, spec: ListenerSpec) -> str:
    """The host to advertise to clients where the settings name none."""
    if not spec.is_wildcard or spec.advertised is not None:
        return spec.host
    family = socket.AF_UNSPEC if ":" in spec.host else socket.AF_INET  # an IPv6 wildcard takes IPv4 clients too
    host = await own_address(config.nats_url, family)
    if host == LOOPBACK:  # clients on other machines would connect to themselves
        log.warning("advertised_listener_unset", listener=spec.name, advertised=host)
    return host
