"""The IP address of this machine, as other machines in the network of the nats servers see it."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
ANY_HOSTS = ("0.0.0.0", "[::]")
RESOLVE_DEADLINE_S = 2.0  # for one name; a name that is not resolved by then is skipped
ANY_PORT = 4222  # routes do not depend on it

SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


def source_towards(family: int, address: SocketAddress) -> str:
    """The source address of packets to `address`; empty if there is no route."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


async def own_address(
    nats_url: str,
    family: socket.AddressFamily = socket.AF_UNSPEC,
    *,
    resolve_deadline_s: float = RESOLVE_DEADLINE_S,
    find_source: Callable[[int, SocketAddress], str] = source_towards,
) -> str:
    """This machine's address on the route to the first reachable server of `nats_url`; sends no packet.

    It is 127.0.0.1 if that server is on the loopback interface, or if no server is reachable.
    `family` may ask for an IPv4 or IPv6 route.
    """
    for url in nats_url.split(","):
        for found_family, address in await _resolve(url.strip(), family, resolve_deadline_s):
            source = find_source(found_family, address)
            if source:
                return LOOPBACK if ipaddress.ip_address(source).is_loopback else source
    return LOOPBACK


async def announced_address(address: str, nats_url: str) -> str:
    """The address `host:port` of a listener as other machines reach it: this machine's own, if it listens on all."""
    host, _, port = address.rpartition(":")
    if host not in ANY_HOSTS:
        return address
    own = await own_address(nats_url)
    return f"[{own}]:{port}" if ":" in own else f"{own}:{port}"


async def _resolve(url: str, family: socket.AddressFamily, deadline_s: float) -> list[tuple[int, SocketAddress]]:
    loop = asyncio.get_running_loop()
    try:
        host = urlsplit(url if "://" in url else f"nats://{url}").hostname
        if not host:
            return []
        async with asyncio.timeout(deadline_s):
            found = await loop.getaddrinfo(host, ANY_PORT, family=family, type=socket.SOCK_DGRAM)
    except (OSError, ValueError):  # no such host, too late, or not an address
        return []
    return [(each[0], each[4]) for each in found]
