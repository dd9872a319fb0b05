"""Manages all Kafka connections of one gateway: limits their number, ends idle ones, and drains them at the stop."""

import asyncio
import contextvars
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from penstock.kafkawire.primitives import Buffer
from penstock.runtime.concurrency.beat import until_beat
from penstock.runtime.process.memory import release_freed_memory
from penstock_gateway.config import GatewayConfig
from penstock_gateway.coordination.pending_members import HasPendingMembers
from penstock_gateway.kafka.client import Arrival, Client
from penstock_gateway.kafka.parts import HasClock, HasMetrics, HasResponseMemory, HasSequencer, HasSettings
from penstock_gateway.kafka.shared_limit import ClusterShares
from penstock_gateway.quotas.quota_cache import HasQuotas
from penstock_gateway.quotas.throttle import connection_delay_s, count_produce
from penstock_gateway.security.login.logins import HasLogins, Logins
from penstock_gateway.server.connection import Connection, Owner
from penstock_gateway.server.dispatch import Dispatcher
from penstock_gateway.server.handshakes import Handshakes
from penstock_gateway.server.limits import ConnectionLimits
from penstock_gateway.server.listener import Listener
from penstock_gateway.server.memory_release import MemoryRelease
from penstock_gateway.server.pipeline import Pipeline, Slot
from penstock_gateway.server.receive_budget import ReceiveBudget
from penstock_gateway.server.rejection_log import RejectionLog
from penstock_gateway.tail.tail_subscriber import HasTail

log = structlog.get_logger()


class Needs(
    HasClock,
    HasLogins,
    HasMetrics,
    HasPendingMembers,
    HasQuotas,
    HasResponseMemory,
    HasSequencer,
    HasSettings,
    HasTail,
    Protocol,
):
    """The parts of the gateway that this module uses."""


class ConnectionManager:
    """The listeners of one gateway, and the byte budget and limits that their connections share."""

    admits = True

    def __init__(
        self,
        *,
        gateway: Needs,
        config: GatewayConfig,
        listeners: Sequence[Listener],
        dispatcher: Dispatcher,
        limits: ConnectionLimits | None = None,
        shares: ClusterShares | None = None,
        connections_max: Callable[[], int] = lambda: 0,
    ) -> None:
        """`shares`: of limits that other clusters use, too. `connections_max`: of this cluster alone; 0: no limit."""
        shares = shares or config.process_limits().join()
        self._share, self._connections_max = shares.connections, connections_max
        self._gateway = gateway
        self._config = config
        self._listeners = listeners
        self._dispatcher = dispatcher
        self.limits = limits or ConnectionLimits()
        self.budget = ReceiveBudget(config.held_bytes_max, shares.held_bytes)
        self._rejections = RejectionLog(gateway.clock.monotonic_s, self.limits.rejection_log)
        self._memory_release = MemoryRelease(self.limits.memory_release)
        self.response_memory = gateway.response_memory
        gateway.metrics.held_bytes_max.set(config.held_bytes_max)
        gateway.metrics.unsent_bytes_max.set(config.unsent_bytes_max)
        self.handshakes = Handshakes(gateway.metrics, gateway.clock.monotonic_s, self.limits.handshakes)
        self._connections: dict[Connection, None] = {}
        # Names the cluster in log lines, if the process has several: their common sockets belong to none.
        self._context = contextvars.copy_context()
        self._tasks: asyncio.TaskGroup | None = None
        self._is_closing = False
        self._looked_s = gateway.clock.monotonic_s()  # when the process last ran
        self._settled_s = -math.inf  # connections accepted before this time may hold requests from before a stall
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def all(self) -> Iterable[Connection]:
        """All open connections."""
        return self._connections

    @property
    def open_connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def clients(self) -> list[Client]:
        """The clients of all connections."""
        return [connection.client for connection in self._connections]

    async def run(self) -> None:
        """Accept and serve until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            self._looked_s = self.monotonic_s()
            self._tasks.create_task(self._look_for_ever())
            self._tasks.create_task(self._gateway.pending_members.run())
            for listener in self._listeners:
                await listener.accept(self)
            while True:
                await until_beat(self.limits.sweep_interval_s)
                self.sweep()
                await self._release_memory()

    async def _look_for_ever(self) -> None:
        while True:
            self.wake()
            await until_beat(self.limits.look_interval_s)

    def wake(self) -> bool:
        """Whether the process was stalled until now or a moment ago. If so, all its connections are given up.

        Clients may have closed them during the stall, and may have sent their requests again through another gateway.
        Bytes and ends of connections are read in any order. So the gateway handles no request from before the stall.
        """
        now_s = self.monotonic_s()
        stalled_s, self._looked_s = now_s - self._looked_s, now_s
        if stalled_s > self.limits.stall_s:
            seconds, connections = round(stalled_s, 3), len(self._connections)
            self._context.run(log.warning, "process_stalled", seconds=seconds, connections=connections)
            self._settled_s = now_s + self.limits.settle_s
            self.handshakes.give_up_all()  # a request may wait behind the last message of a handshake
            for connection in list(self._connections):
                connection.give_up()
        return now_s < self._settled_s

    async def drain(self, deadline_s: float) -> None:
        """Accept nothing more; return when all requests are answered and all connections closed.

        At the deadline the connections that are left are aborted. No client loses data by that: a client without an
        answer asks another gateway.
        """
        self._is_closing = True
        for listener in self._listeners:
            listener.stop()
        self.handshakes.give_up_all()
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
        self.handshakes.give_up_all()
        for connection in list(self._connections):
            connection.abort()

    def sweep(self) -> None:
        """End the connections that were idle too long, and those that block the others."""
        now_s = self.monotonic_s()
        self._rejections.flush()
        self.budget.look_again()
        self.response_memory.look_again()
        self._gateway.logins.log.flush()
        idle_s_max = self._config.idle_timeout_ms / 1000
        for connection in list(self._connections):
            if not connection.unanswered and now_s - connection.active_s > idle_s_max:
                connection.end("idle")
            elif now_s > connection.client.login_deadline_s:
                self.log_rejection(connection.client, "the client has not logged in")
                connection.end("login_timeout")
            elif connection.is_too_slow(now_s):
                self._end_slow(connection)
        if self.response_memory.is_spent:
            for connection in list(self._connections):
                if connection.stuck_since_s is not None and now_s - connection.stuck_since_s > self.limits.stuck_s_max:
                    self.log_rejection(connection.client, "the client does not take its answers")
                    connection.abort()
        self._gateway.metrics.unsent_bytes.set(self.response_memory.held_bytes)
        self._gateway.metrics.held_bytes.set(self.budget.held_bytes)

    def _end_slow(self, connection: Connection) -> None:
        """End a connection whose frame does not come, without its last answers if the client does not take them."""
        takes_nothing = connection.is_ending or connection.stuck_since_s is not None
        if not connection.is_ending:
            self.log_rejection(connection.client, "the client does not send its frame")
            connection.end("partial_frame")
        if takes_nothing:
            connection.abort()

    async def _release_memory(self) -> None:
        decoder, budget = self._dispatcher.decoder, self.budget
        if self._memory_release.is_due(
            granted_bytes=decoder.granted_bytes + budget.granted_bytes,
            reserved_bytes=decoder.reserved_bytes + budget.reserved_bytes,
            now_s=self.monotonic_s(),
        ):
            await asyncio.to_thread(release_freed_memory)

    def new_pipeline(self) -> Pipeline:
        config = self._config
        return Pipeline(
            self.budget,
            frame_bytes_max=config.frame_bytes_max,
            requests_in_flight_max=config.requests_in_flight_max,
        )

    def limit(self, pipeline: Pipeline, client: Client) -> None:
        """Limit the frames and the requests of a connection, as long as it needs a login."""
        config, before_login = self._config, self._gateway.logins.limits
        if client.needs_login:
            pipeline.set_limits(frame_bytes_max=before_login.frame_bytes_max, requests_in_flight_max=1)
        else:
            pipeline.set_limits(
                frame_bytes_max=config.frame_bytes_max, requests_in_flight_max=config.requests_in_flight_max
            )

    def new_client(self, host: str, listener: str) -> Client:
        client = Client(host=host, zone=self._config.zone, pool=self._config.pool, listener=listener)
        self._gateway.logins.begin(client)
        return client

    def start(self, connection: Connection, slot: Slot, frame: memoryview) -> asyncio.Task[None]:
        assert self._tasks is not None, "connections are accepted by run()"
        if not connection.client.needs_login:
            count_produce(self._gateway, connection.client, frame)
        return self._tasks.create_task(connection.serve(slot, frame), context=self._context.copy())

    async def answer(self, client: Client, frame: memoryview, arrival: Arrival) -> list[Buffer]:
        return await self._dispatcher.answer(client, frame, arrival)

    def seen_sequence(self) -> int:
        return self._gateway.sequencer.seen_sequence

    def opened(self, connection: Connection) -> bool:
        """Add a connection; return whether it may stay."""
        refusal = self.refusal()
        self._connections[connection] = None
        self._empty.clear()
        self._count()
        if refusal:
            self.log_rejection(connection.client, refusal)
        return not refusal and not self._is_closing

    def refusal(self) -> str:
        """Why no other client may connect; empty if one may."""
        own_max = self._connections_max()
        if own_max and len(self._connections) >= own_max:
            return f"more than {own_max} connections of the cluster {self._config.cluster}"
        return f"more than {self._config.connections_max} connections" if self._share.is_spent() else ""

    @property
    def logins(self) -> Logins:
        """The logins of this gateway."""
        return self._gateway.logins

    def owner_after_login(self, client: Client) -> Owner:
        """The connections of a cluster stay with its gateway."""
        return self

    def owner_of(self, listener: str, server_name: str) -> Owner | None:
        """All connections of a gateway with its own listeners are its own."""
        return self

    def _count(self) -> None:
        self._share.used = len(self._connections)
        self._gateway.metrics.connections.set(len(self._connections))

    def delay_s(self, host: str) -> float:
        return connection_delay_s(self._gateway, host)

    def closed(self, connection: Connection, cause: str) -> None:
        """Remove a connection that has ended."""
        self._connections.pop(connection, None)
        self._count()
        if cause:
            self._gateway.metrics.connections_closed.labels(cause).inc()
        if not self._connections:
            self._empty.set()

    def log_rejection(self, client: Client, reason: str) -> None:
        self._context.run(self._rejections.record, reason, peer=client.host, client_id=client.client_id)

    def log_handshake(self, host: str, reason: str) -> None:
        """Log a client that got no connection, or lost it, because of TLS."""
        self._context.run(self._rejections.record, reason, peer=host, client_id="")

    def monotonic_s(self) -> float:
        return self._gateway.clock.monotonic_s()
