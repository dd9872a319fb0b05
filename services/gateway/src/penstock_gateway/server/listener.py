"""One listening TCP socket of a gateway, with the name of its listener."""

import asyncio
import socket
from typing import Protocol

from penstock.contracts.errors import Invalid
from penstock_gateway.kafka.listener_config import host_and_port
from penstock_gateway.security.tls_contexts import ListenerTls
from penstock_gateway.server.connection import Connection, Owner
from penstock_gateway.server.tls_connection import RECEIVE_BYTES, TlsConnection, TlsOwner


class ListenerOwner(Owner, TlsOwner, Protocol):
    """The owner of connections with and without TLS."""


BACKLOG = 1_024  # connections that the kernel completes before we accept them


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket whose port other gateways of this machine may share; `Invalid` if it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.setblocking(False)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise Invalid(f"cannot listen on {host_and_port(host, port)}: {error}") from error
    return listening


class Listener:
    """Accepts the connections of one socket for their owner."""

    def __init__(self, name: str, listening: socket.socket, tls: ListenerTls | None = None) -> None:
        """`tls`: None on a listener without TLS."""
        self.name = name
        self._tls = tls
        self._receive_buffer = memoryview(bytearray(RECEIVE_BYTES if tls is not None else 0))
        self.port = int(listening.getsockname()[1])  # as bound; the setting may be 0
        self._socket = listening
        self._server: asyncio.Server | None = None

    async def accept(self, owner: ListenerOwner) -> None:
        """Accept connections from now on."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._new_connection(owner), sock=self._socket, backlog=BACKLOG
        )

    def _new_connection(self, owner: ListenerOwner) -> asyncio.BufferedProtocol:
        if self._tls is None:
            return Connection(owner, self.name)
        return TlsConnection(owner, self.name, self._tls, self._receive_buffer)

    def stop(self) -> None:
        """Accept nothing more; accepted connections stay open."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Close the socket."""
        self.stop()
        self._socket.close()
