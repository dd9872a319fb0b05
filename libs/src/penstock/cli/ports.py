"""TCP addresses for commands: parsed from flags, checked, and reserved for a nats-server."""

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator

import msgspec

from penstock.contracts.errors import Invalid, Unavailable

NATS_PORT_MIN = 14_222
NATS_PORT_MAX = 32_767  # the kernel uses higher ports for outgoing connections, so those may be in use


class Address(msgspec.Struct, frozen=True):
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(flag: str, text: str, port_min: int = 1, *, form: str = "HOST:PORT") -> Address:
    """The address in a text HOST:PORT; `Invalid` with the flag's name and its form for any other text."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not port_min <= int(port) <= 65_535:
        raise Invalid(f"{flag} must be {form} with a port from {port_min} to 65535: {text!r}")
    return Address(host, int(port))


def check_port_is_free(flag: str, address: Address) -> None:
    """`Invalid` if it is not possible to listen on this address now."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise Invalid(f"{flag} {address}: no such host ({error.strerror})") from error
    family, kind, protocol, _, name = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(name)
        except OSError as error:
            reason = "another program is using it" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
            raise Invalid(f"cannot listen on {address}: {reason}; choose another address with {flag}") from error


def own_address(address: Address) -> Address:
    """The address by which this machine itself reaches a server that may listen on all of its addresses."""
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    return msgspec.structs.replace(address, host=own.get(address.host, address.host))


@contextlib.contextmanager
def reserved_port(platform: str = sys.platform, *, host: str = "127.0.0.1") -> Iterator[int]:
    """Reserve a port of a host; only a program that reuses addresses, such as a nats-server, can listen on it.

    So no other `penstock up` takes the port while the server on it restarts. Only Linux shares a port in this way.
    Elsewhere the port is free at the start of the block, and not reserved.
    """
    family = _family_of(host)
    for port in range(NATS_PORT_MIN, NATS_PORT_MAX + 1):
        with socket.socket(family) as held:
            try:
                held.bind((host, port))
            except OSError:
                continue
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if platform != "linux":
                held.close()
            yield port
            return
    raise Unavailable(f"no port from {NATS_PORT_MIN} to {NATS_PORT_MAX} of {host} is free")


def _family_of(host: str) -> socket.AddressFamily:
    try:
        return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise Invalid(f"{host}: no such host ({error.strerror})") from error
