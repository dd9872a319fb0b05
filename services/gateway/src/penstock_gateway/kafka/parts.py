"""The parts of a gateway that request handlers use: one Protocol for each part that needs no other package.

A handler or a package combines the Protocols that it needs into one of its own, called `Needs`. `app.py` builds the
parts; no other module knows all of them.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from penstock.contracts.ids import DEFAULT_POOL
from penstock.runtime.bus.presence import Directory
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.traces.traces import Traces
from penstock_gateway.kafka.broker_view import Node
from penstock_gateway.kafka.command_batcher import CommandBatcher
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metrics import GatewayMetrics


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's settings that requests depend on or ask for."""

    cluster: str
    zone: str
    instance: str = ""
    pool: str = DEFAULT_POOL
    default_partitions: int = 1
    auto_create_topics: bool = True
    share_groups: bool = False
    idle_timeout_ms: int = 600_000
    connections_max: int = 10_000
    frame_bytes_max: int = 100 * 1024 * 1024


class HasClock(Protocol):
    @property
    def clock(self) -> Clock: ...


class HasEntropy(Protocol):
    @property
    def entropy(self) -> Entropy: ...


class HasSequencer(Protocol):
    @property
    def sequencer(self) -> SequencerClient: ...


class HasTopics(Protocol):
    @property
    def topics(self) -> TopicCache: ...


class HasSettings(Protocol):
    @property
    def settings(self) -> BrokerSettings: ...


class HasNodes(Protocol):
    @property
    def nodes(self) -> Mapping[str, Node]:
        """This gateway as a broker, by listener."""


class HasDirectory(Protocol):
    @property
    def directory(self) -> Directory: ...


class HasTransactionCommands(Protocol):
    @property
    def transaction_commands(self) -> CommandBatcher: ...


class HasResponseMemory(Protocol):
    @property
    def response_memory(self) -> ResponseMemory: ...


class HasTraces(Protocol):
    @property
    def traces(self) -> Traces: ...


class HasMetrics(Protocol):
    @property
    def metrics(self) -> GatewayMetrics: ...
