"""Builds one gateway and wires its parts together; the only place that does."""

import asyncio
import socket

import msgspec
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
from penstock.runtime.host import ServiceHost
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
        self._clock = SystemClock()
        self._host = ServiceHost(config, "gateway", self._clock, complete=self._complete_presence)
        self._socket: socket.socket | None = None
        self._store: ObjectStore | None = None
        self._tail: TailFeed | None = None
        self._flushes: Flushes
        self._is_draining = False
        self._listener: Listener | None = None
        self._node: Node

    async def open(self) -> None:
        config = self._config
        self._socket = open_socket(config.kafka_host, config.kafka_port)
        self._node = _own_node(config, self._socket.getsockname()[1])
        await self._host.open_http()
        bus = await self._host.connect()
        self._store = await open_store(config.store_url, registry=self._host.registry)
        gateway = self._wire(bus, self._store)
        self._listener = Listener(gateway, self._socket)
        await self._host.listen()
        await gateway.tail.open()

    async def run(self) -> None:
        assert self._listener is not None, "opened before it runs"
        async with asyncio.TaskGroup() as tasks:
            self._host.start(tasks)
            tasks.create_task(self._flushes.run())
            tasks.create_task(self._listener.run())
            tasks.create_task(self._watch_readiness())

    async def drain(self) -> None:
        assert self._listener is not None, "opened before it is drained"
        self._is_draining = True
        await self._host.begin_drain()
        await self._listener.drain(self._config.drain_deadline_ms / 1000 * DRAIN_SHARE)

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        elif self._socket is not None:
            self._socket.close()
        if self._tail is not None:
            await self._tail.close()
            await self._host.directory.close()
        if self._store is not None:
            await self._store.close()
        await self._host.disconnect()
        await self._host.close_http()

    def _wire(self, bus: Bus, store: ObjectStore) -> Gateway:
        config, clock, registry, directory = self._config, self._clock, self._host.registry, self._host.directory
        metrics = GatewayMetrics(registry)
        sequencer = SequencerClient(bus, config.cluster, clock)
        topics = TopicCache(sequencer)
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

    def _complete_presence(self, said: Presence) -> Presence:
        node, load_bytes = self._node, self._flushes.unanswered_bytes
        return msgspec.structs.replace(said, host=node.host, port=node.port, load_bytes=load_bytes)

    async def _watch_readiness(self) -> None:
        while True:
            missing = self._missing()
            self._host.health.set_ready(not missing, missing)
            await asyncio.sleep(READINESS_INTERVAL_S)

    def _missing(self) -> str:
        if self._is_draining:
            return "draining"
        if not self._host.bus.is_connected:
            return "not connected to nats"
        for role in ("sequencer", "flusher"):
            if not self._host.directory.live(role):
                return f"no {role} was seen"
        return ""


def _own_node(config: GatewayConfig, port: int) -> Node:
    host = config.advertised_host or config.kafka_host
    if host in WILDCARDS:
        host = "127.0.0.1"
        log.warning("advertised_host_unset", kafka_host=config.kafka_host, clients_are_told=host)
    return node_of(host, config.advertised_port or port, config.zone)
