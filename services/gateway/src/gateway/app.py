"""Builds one gateway and wires its parts together; the only place that does."""

import asyncio
import importlib.metadata
import socket

import structlog

from gateway.config import GatewayConfig
from gateway.context import Gateway
from gateway.flushes import Flushes
from gateway.listener import Listener, open_socket
from gateway.metrics import GatewayMetrics
from gateway.nodes import Node, node_of
from gateway.reads import SegmentReads
from gateway.tail_feed import TailFeed
from gateway.topics import TopicCache
from penstock.contracts.messages import Presence
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus import Bus
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.health import Health, HttpServer, new_registry
from penstock.runtime.nats_client import NatsConnection, connect_nats
from penstock.runtime.presence import Announcer, Directory
from penstock.runtime.sequencer_client import SequencerClient

READINESS_INTERVAL_S = 0.2
# The drain ends by itself before the process would be cut short: who has not been answered by then is cut off.
DRAIN_SHARE = 0.8
WILDCARDS = ("0.0.0.0", "::", "")

log = structlog.get_logger()


class GatewayApp:
    """One gateway process; see `penstock.runtime.process.App` for the order of its life."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._version = importlib.metadata.version("penstock")
        self._clock = SystemClock()
        self._health = Health()
        self._registry = new_registry()
        self._http = HttpServer(self._health, self._registry, config.http_host, config.http_port)
        self._socket: socket.socket | None = None
        self._nats: NatsConnection | None = None
        self._store: ObjectStore | None = None
        self._directory: Directory
        self._tail: TailFeed | None = None
        self._flushes: Flushes
        self._listener: Listener | None = None
        self._announcer: Announcer
        self._node: Node

    async def open(self) -> None:
        config = self._config
        self._socket = open_socket(config.kafka_host, config.kafka_port)
        self._node = _own_node(config, self._socket.getsockname()[1])
        await self._http.open()
        self._nats = await connect_nats(
            config.nats_url,
            name=config.instance,
            user=config.nats_user,
            password=config.nats_password,
            registry=self._registry,
        )
        self._store = await open_store(config.store_url, registry=self._registry)
        gateway = self._wire(self._nats.bus, self._store)
        self._listener = Listener(gateway, self._socket)
        self._announcer = Announcer(gateway.bus, config.cluster, self._presence, self._directory)
        await self._directory.open()
        await gateway.tail.open()

    async def run(self) -> None:
        assert self._nats is not None and self._listener is not None, "opened before it runs"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nats.bus.run_until_closed())
            tasks.create_task(self._directory.run())
            tasks.create_task(self._announcer.run())
            tasks.create_task(self._flushes.run())
            tasks.create_task(self._listener.run())
            tasks.create_task(self._watch_readiness(self._nats.bus))

    async def drain(self) -> None:
        assert self._listener is not None, "opened before it is drained"
        await self._announcer.leave()
        await self._listener.drain(self._config.drain_deadline_ms / 1000 * DRAIN_SHARE)

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        elif self._socket is not None:
            self._socket.close()
        if self._tail is not None:
            await self._tail.close()
            await self._directory.close()
        if self._store is not None:
            await self._store.close()
        if self._nats is not None:
            await self._nats.close()
        await self._http.close()

    def _wire(self, bus: Bus, store: ObjectStore) -> Gateway:
        config, clock, registry = self._config, self._clock, self._registry
        metrics = GatewayMetrics(registry)
        sequencer = SequencerClient(bus, config.cluster, clock)
        topics = TopicCache(sequencer)
        self._directory = directory = Directory(bus, config.cluster, clock)
        self._flushes = Flushes(
            bus, directory, sequencer, clock, metrics, cluster=config.cluster, instance=config.instance
        )
        self._tail = TailFeed(
            bus=bus, cluster=config.cluster, clock=clock, sequencer=sequencer, topics=topics, registry=registry
        )
        reads = SegmentReads(
            bus=bus,
            cluster=config.cluster,
            zone=config.zone,
            directory=directory,
            store=store,
            clock=clock,
            registry=registry,
        )
        return Gateway(
            config=config,
            node=self._node,
            clock=clock,
            entropy=SystemEntropy(),
            bus=bus,
            directory=directory,
            sequencer=sequencer,
            topics=topics,
            flushes=self._flushes,
            tail=self._tail,
            reads=reads,
            metrics=metrics,
        )

    def _presence(self) -> Presence:
        return Presence(
            role="gateway",
            zone=self._config.zone,
            instance=self._config.instance,
            version=self._version,
            host=self._node.host,
            port=self._node.port,
            http=self._http.address,
            load_bytes=self._flushes.unanswered_bytes,
        )

    async def _watch_readiness(self, bus: Bus) -> None:
        while True:
            missing = self._missing(bus)
            self._health.set_ready(not missing, missing)
            await asyncio.sleep(READINESS_INTERVAL_S)

    def _missing(self, bus: Bus) -> str:
        if not bus.is_connected:
            return "not connected to nats"
        for role in ("sequencer", "flusher"):
            if not self._directory.live(role):
                return f"no {role} was seen"
        return ""


def _own_node(config: GatewayConfig, port: int) -> Node:
    host = config.advertised_host or config.kafka_host
    if host in WILDCARDS:
        host = "127.0.0.1"
        log.warning("advertised_host_unset", kafka_host=config.kafka_host, clients_are_told=host)
    return node_of(host, config.advertised_port or port, config.zone)
