"""Accepts Kafka connections on one TCP port, bounds them, ends the idle ones, and drains them all in the end."""

import asyncio
import socket

import structlog

from gateway.connection import Connection
from gateway.context import Client, Gateway
from gateway.dispatch import answer
from gateway.session import ReceiveBudget, Session, Slot
from penstock.contracts.errors import Invalid
from penstock.kafkawire.primitives import Buffer

BACKLOG = 1_024  # connections that the kernel completes before we accept them
SWEEP_INTERVAL_S = 5.0
# When the budget is spent on frames that are not complete, the largest of them is given up after this time.
PARTIAL_FRAME_S_MAX = 30.0

log = structlog.get_logger()


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket whose port other gateways of this machine may share; `Invalid` if it cannot be had."""
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
        raise Invalid(f"cannot listen on {host}:{port}: {error}") from error
    return listening


class Listener:
    """All Kafka connections of one gateway."""

    def __init__(self, gateway: Gateway, listening: socket.socket) -> None:
        self._gateway = gateway
        self._socket = listening
        self.budget = ReceiveBudget(gateway.config.held_bytes_max)
        self._connections: dict[Connection, None] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._server: asyncio.Server | None = None
        self._is_closing = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def run(self) -> None:
        """Accept and serve until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as self._tasks:
            self._server = await loop.create_server(lambda: Connection(self), sock=self._socket, backlog=BACKLOG)
            while True:
                await asyncio.sleep(SWEEP_INTERVAL_S)
                self.sweep()

    async def drain(self, deadline_s: float) -> None:
        """Accept nothing more; return when all in flight is answered and every connection closed, or cut what is left.

        Nothing of a client is lost by the cut: who has no answer asks another gateway.
        """
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.drain()
        self._gateway.tail.wake_all()  # fetches that wait for records answer without them now
        try:
            async with asyncio.timeout(deadline_s):
                await self._empty.wait()
        except TimeoutError:
            log.warning("drain_cut_short", connections=len(self._connections))
            for connection in list(self._connections):
                connection.abort()

    async def close(self) -> None:
        """Cut every connection that is left."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        self._socket.close()

    def sweep(self) -> None:
        """End the connections that were idle too long, and the one that holds the others up."""
        now_s = self.monotonic_s()
        idle_s_max = self._gateway.config.idle_timeout_ms / 1000
        for connection in list(self._connections):
            if not connection.unanswered and now_s - connection.active_s > idle_s_max:
                connection.end("idle")
        if self.budget.is_spent and not self.budget.frames and self._connections:
            largest = max(self._connections, key=lambda connection: connection.partial_bytes)
            if now_s - largest.partial_since_s > PARTIAL_FRAME_S_MAX:
                log.warning("connection_refused", reason="too many bytes of a frame that does not end")
                largest.end("partial_frame")
        self._gateway.metrics.held_bytes.set(self.budget.held_bytes)

    def new_session(self) -> Session:
        config = self._gateway.config
        return Session(
            self.budget,
            frame_bytes_max=config.frame_bytes_max,
            requests_in_flight_max=config.requests_in_flight_max,
        )

    def new_client(self, host: str) -> Client:
        return Client(host=host, zone=self._gateway.config.zone)

    def start(self, connection: Connection, slot: Slot, frame: memoryview) -> asyncio.Task[None]:
        assert self._tasks is not None, "connections are accepted by run()"
        return self._tasks.create_task(connection.serve(slot, frame))

    async def answer(self, client: Client, frame: memoryview) -> list[Buffer]:
        return await answer(self._gateway, client, frame)

    def opened(self, connection: Connection) -> bool:
        """Take the connection in; false if it is one too many."""
        self._connections[connection] = None
        self._empty.clear()
        self._gateway.metrics.connections.set(len(self._connections))
        has_room = len(self._connections) <= self._gateway.config.connections_max
        if not has_room:
            log.warning("connection_refused", reason=f"more than {self._gateway.config.connections_max} connections")
        return has_room and not self._is_closing

    def closed(self, connection: Connection, cause: str) -> None:
        """The connection is gone."""
        self._connections.pop(connection, None)
        self._gateway.metrics.connections.set(len(self._connections))
        if cause:
            self._gateway.metrics.connections_closed.labels(cause).inc()
        if not self._connections:
            self._empty.set()

    def monotonic_s(self) -> float:
        return self._gateway.clock.monotonic_s()
