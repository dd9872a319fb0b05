"""Manages all Kafka connections of one gateway: limits their number, ends idle ones, and drains them at the stop."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from penstock.kafkawire.primitives import Buffer
from penstock_gateway.config import GatewayConfig
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasMetrics, HasResponseMemory, HasSettings
from penstock_gateway.quotas.quota_cache import HasQuotas
from penstock_gateway.quotas.throttle import connection_delay_s, count_produce
from penstock_gateway.server.connection import Connection
from penstock_gateway.server.dispatch import Dispatcher
from penstock_gateway.server.limits import ConnectionLimits
from penstock_gateway.server.listener import Listener
from penstock_gateway.server.pipeline import Pipeline, ReceiveBudget, Slot
from penstock_gateway.tail.tail_subscriber import HasTail

log = structlog.get_logger()


class Needs(HasClock, HasMetrics, HasQuotas, HasResponseMemory, HasSettings, HasTail, Protocol):
    """The parts of the gateway that this module uses."""


class ConnectionManager:
    """The listeners of one gateway, and the byte budget and limits that their connections share."""

    def __init__(
        self,
        *,
        gateway: Needs,
        config: GatewayConfig,
        listeners: Sequence[Listener],
        dispatcher: Dispatcher,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._gateway = gateway
        self._config = config
        self._listeners = listeners
        self._dispatcher = dispatcher
        self.limits = limits or ConnectionLimits()
        self.budget = ReceiveBudget(config.held_bytes_max)
        self.response_memory = gateway.response_memory
        self._connections: dict[Connection, None] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._is_closing = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def open_connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def run(self) -> None:
        """Accept and serve until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for listener in self._listeners:
                await listener.accept(self)
            while True:
                await asyncio.sleep(self.limits.sweep_interval_s)
                self.sweep()

    async def drain(self, deadline_s: float) -> None:
        """Accept nothing more; return when all requests are answered and all connections closed.

        At the deadline the connections that are left are aborted. No client loses data by that: a client without an
        answer asks another gateway.
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
        """Abort every connection that is left; the creator of the listeners closes their sockets."""
        self._is_closing = True
        for listener in self._listeners:
            listener.stop()
        for connection in list(self._connections):
            connection.abort()

    def sweep(self) -> None:
        """End the connections that were idle too long, and those that block the others."""
        now_s = self.monotonic_s()
        idle_s_max = self._config.idle_timeout_ms / 1000
        for connection in list(self._connections):
            if not connection.unanswered and now_s - connection.active_s > idle_s_max:
                connection.end("idle")
        if self.budget.is_spent and not self.budget.frames and self._connections:
            largest = max(self._connections, key=lambda connection: connection.partial_bytes)
            if now_s - largest.partial_since_s > self.limits.partial_frame_s_max:
                log.warning("connection_refused", reason="too many bytes of an incomplete frame")
                largest.end("partial_frame")
        if self.response_memory.is_spent:
            for connection in list(self._connections):
                if connection.stuck_since_s is not None and now_s - connection.stuck_since_s > self.limits.stuck_s_max:
                    log.warning("connection_refused", reason="the client does not take its answers")
                    connection.abort()
        self._gateway.metrics.unsent_bytes.set(self.response_memory.held_bytes)
        self._gateway.metrics.held_bytes.set(self.budget.held_bytes)

    def new_pipeline(self) -> Pipeline:
        config = self._config
        return Pipeline(
            self.budget,
            frame_bytes_max=config.frame_bytes_max,
            requests_in_flight_max=config.requests_in_flight_max,
        )

    def new_client(self, host: str, listener: str) -> Client:
        return Client(host=host, zone=self._config.zone, listener=listener)

    def start(self, connection: Connection, slot: Slot, frame: memoryview) -> asyncio.Task[None]:
        assert self._tasks is not None, "connections are accepted by run()"
        count_produce(self._gateway, connection.client, frame)
        return self._tasks.create_task(connection.serve(slot, frame))

    async def answer(self, client: Client, frame: memoryview) -> list[Buffer]:
        return await self._dispatcher.answer(client, frame)

    def opened(self, connection: Connection) -> bool:
        """Add a connection; return whether it may stay."""
        self._connections[connection] = None
        self._empty.clear()
        self._gateway.metrics.connections.set(len(self._connections))
        has_room = len(self._connections) <= self._config.connections_max
        if not has_room:
            log.warning("connection_refused", reason=f"more than {self._config.connections_max} connections")
        return has_room and not self._is_closing

    def delay_s(self, host: str) -> float:
        return connection_delay_s(self._gateway, host)

    def closed(self, connection: Connection, cause: str) -> None:
        """Remove a connection that has ended."""
        self._connections.pop(connection, None)
        self._gateway.metrics.connections.set(len(self._connections))
        if cause:
            self._gateway.metrics.connections_closed.labels(cause).inc()
        if not self._connections:
            self._empty.set()

    def monotonic_s(self) -> float:
        return self._gateway.clock.monotonic_s()
