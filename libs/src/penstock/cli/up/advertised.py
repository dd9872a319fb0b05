"""The address that Kafka clients get from `penstock up`: from its flag, else from this machine's routes."""

import ipaddress
import socket
from collections.abc import Callable

from penstock.cli.ports import Address, parse_address
from penstock.contracts.errors import Invalid
from penstock.runtime.process.own_address import LOOPBACK, SocketAddress, source_towards

# Addresses for documents, which no machine has: the route to them is the default route. No packet is sent.
_ELSEWHERE: dict[int, SocketAddress] = {
    socket.AF_INET: ("192.0.2.1", 9),
    socket.AF_INET6: ("2001:db8::1", 9),
}
FindSource = Callable[[int, SocketAddress], str]  # the source address of packets to an address, "" without a route


def is_wildcard(host: str) -> bool:
    """Whether the host means every interface, so that no client can connect to it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def advertised_address(kafka: Address, advertise: str, find_source: FindSource = source_towards) -> Address | None:
    """The address for clients if they cannot use `kafka`, else None; `advertise` is the flag HOST or HOST:PORT.

    Without the flag, and with a listener on every interface, it is this machine's address on its default route.
    """
    if advertise:
        address = _parse(advertise, kafka.port)
        if is_wildcard(address.host):
            raise Invalid(f"--advertise must be an address that clients can connect to: {advertise!r}")
        return address
    return Address(_own_host(kafka.host, find_source), kafka.port) if is_wildcard(kafka.host) else None


def warning(kafka: Address, advertise: str, advertised: Address | None) -> str:
    """A sentence for the user about an address that was not named; "" if clients get a named one."""
    if advertise or advertised is None:
        return ""
    if advertised.host == LOOPBACK:
        return (
            f"this machine has no route to others, so clients of {kafka} are sent to {advertised}, which works only "
            f"here; name an address for clients with --advertise HOST"
        )
    return (
        f"clients of {kafka} are sent to {advertised}, the address of this machine on its default route; if they "
        f"cannot reach it, name another with --advertise HOST"
    )


def _parse(advertise: str, port: int) -> Address:
    is_host_alone = ":" not in advertise or (advertise.startswith("[") and advertise.endswith("]"))
    with_port = f"{advertise}:{port}" if is_host_alone else advertise
    return parse_address("--advertise", with_port, min(port, 1), form="HOST[:PORT]")


def _own_host(host: str, find_source: FindSource) -> str:
    families = (socket.AF_INET, socket.AF_INET6) if ":" in host else (socket.AF_INET,)
    return next((found for family in families if (found := find_source(family, _ELSEWHERE[family]))), LOOPBACK)
