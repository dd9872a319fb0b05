"""This machine's own IP address, as others in the network of the nats servers see it."""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
RESOLVE_DEADLINE_S = 2.0  # for one name; who cannot be resolved by then is passed over
ANY_PORT = 4222  # routes do not depend on it

_SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


async def own_address(nats_url: str, family: socket.AddressFamily = socket.AF_UNSPEC) -> str:
    """This machine's address on the route to the first server of `nats_url` that has one; sends no packet.

    127.0.0.1 if that server is on this machine's loopback interface, or if none has a route. `family` may ask for an
    IPv4 or IPv6 route.
    """
    for url in nats_url.split(","):
        for found_family, address in await _resolve(url.strip(), family):
            source = _source_towards(found_family, address)
            if source:
                return LOOPBACK if ipaddress.ip_address(source).is_loopback else source
    return LOOPBACK


async def _resolve(url: str, family: socket.AddressFamily) -> list[tuple[int, _SocketAddress]]:
    loop = asyncio.get_running_loop()
    try:
        host = urlsplit(url if "://" in url else f"nats://{url}").hostname
        if not host:
            return []
        async with asyncio.timeout(RESOLVE_DEADLINE_S):
            found = await loop.getaddrinfo(host, ANY_PORT, family=family, type=socket.SOCK_DGRAM)
    except (OSError, ValueError):  # no such host, too late, or nothing that could be one
        return []
    return [(each[0], each[4]) for each in found]


def _source_towards(family: int, address: _SocketAddress) -> str:
    """Where packets to `address` would come from; empty if there is no route."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except OSError:
            return ""
        return str(probe.getsockname()[0])
