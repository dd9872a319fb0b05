"""All Kafka connections of one gateway, however they came: bounds them, ends the idle ones, drains them in the end."""

import asyncio
from collections.abc import Sequence

import structlog

from penstock.kafkawire.primitives import Buffer
from penstock_gateway.context import Client, Gateway
from penstock_gateway.quotas.throttle import connection_delay_s, record_joined
from penstock_gateway.server.connection import Connection
from penstock_gateway.server.dispatch import answer
from penstock_gateway.server.listener import Listener
from penstock_gateway.server.pipeline import Pipeline, ReceiveBudget, Slot

SWEEP_INTERVAL_S = 5.0
# When the budget is spent on frames that are not complete, the largest of them is given up after this time.
PARTIAL_FRAME_S_MAX = 30.0
# When too many answers wait for clients, those are given up that have taken nothing for this long.
STUCK_S_MAX = 30.0

log = structlog.get_logger()


class ConnectionManager:
    """The listeners of one gateway, and what their connections share: the byte budget, the limits, the end."""

    def __init__(self, gateway: Gateway, listeners: Sequence[Listener]) -> None:
        self._gateway = gateway
        self._listeners = listeners
        self.budget = ReceiveBudget(gateway.config.held_bytes_max)
        self.unsent = gateway.unsent
        self._connections: dict[Connection, None] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._is_closing = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def run(self) -> None:
        """Accept and serve until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for listener in self._listeners:
                await listener.accept(self)
            while True:
                await asyncio.sleep(SWEEP_INTERVAL_S)
                self.sweep()

    async def drain(self, deadline_s: float) -> None:
        """Accept nothing more; return when all in flight is answered and every connection closed, or cut what is left.

        Nothing of a client is lost by the cut: who has no answer asks another gateway.
        """
        self._is_closing = True
        for listener in self._listeners:
            listener.stop()
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
        """Cut every connection that is left; the listeners' sockets are their maker's to close."""
        self._is_closing = True
        for listener in self._listeners:
            listener.stop()
        for connection in list(self._connections):
            connection.abort()

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
        if self.unsent.is_spent:
            for connection in list(self._connections):
                if connection.stuck_since_s is not None and now_s - connection.stuck_since_s > STUCK_S_MAX:
                    log.warning("connection_refused", reason="answers are not taken")
                    connection.abort()
        self._gateway.metrics.unsent_bytes.set(self.unsent.held_bytes)
        self._gateway.metrics.held_bytes.set(self.budget.held_bytes)

    def new_session(self) -> Pipeline:
        config = self._gateway.config
        return Pipeline(
            self.budget,
            frame_bytes_max=config.frame_bytes_max,
            requests_in_flight_max=config.requests_in_flight_max,
        )

    def new_client(self, host: str, listener: str) -> Client:
        return Client(host=host, zone=self._gateway.config.zone, listener=listener)

    def start(self, connection: Connection, slot: Slot, frame: memoryview) -> asyncio.Task[None]:
        assert self._tasks is not None, "connections are accepted by run()"
        record_joined(self._gateway, connection.client, frame)
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

    def delay_s(self, host: str) -> float:
        return connection_delay_s(self._gateway, host)

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
