"""What a request handler works with: the gateway's parts, and the client whose request it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.contracts.configs.quotas import ANONYMOUS
from penstock_gateway.fetch.catch_up_throttle import CatchUpSlot
from penstock_gateway.produce.record_validation import RecordValidator
from penstock_gateway.share.partition_queue import PartitionQueues
from penstock_gateway.share.sessions import ShareSessions

if TYPE_CHECKING:
    from penstock.runtime.bus.bus import Bus
    from penstock.runtime.bus.presence import Directory
    from penstock.runtime.bus.sequencer_client import SequencerClient
    from penstock.runtime.clock import Clock, Entropy
    from penstock_gateway.config import GatewayConfig
    from penstock_gateway.kafka.broker_view import Node
    from penstock_gateway.kafka.command_batcher import CommandBatcher
    from penstock_gateway.kafka.response_memory import ResponseMemory
    from penstock_gateway.kafka.topic_cache import TopicCache
    from penstock_gateway.metrics import GatewayMetrics
    from penstock_gateway.produce.flush_router import FlushRouter
    from penstock_gateway.produce.producer_route import ProducerRoute
    from penstock_gateway.quotas.quota_cache import QuotaCache
    from penstock_gateway.segments.segment_reader import SegmentReader
    from penstock_gateway.tail.tail_subscriber import TailSubscriber


@dataclass(frozen=True, slots=True)
class Gateway:
    """The parts of one gateway process; app.py builds it, handlers use it."""

    config: GatewayConfig
    nodes: Mapping[str, Node]  # by listener: this gateway's own place among the brokers
    clock: Clock
    entropy: Entropy
    bus: Bus
    directory: Directory
    sequencer: SequencerClient
    transaction_commands: CommandBatcher
    topics: TopicCache
    flushes: FlushRouter
    tail: TailSubscriber
    reads: SegmentReader
    unsent: ResponseMemory
    metrics: GatewayMetrics
    quotas: QuotaCache
    record_check: RecordValidator = field(default_factory=RecordValidator)
    share_turns: PartitionQueues = field(default_factory=PartitionQueues)
    proxied: frozenset[str] = frozenset()  # listeners whose clients are told another address than the gateway's


def _nobody() -> None:
    """What a client without a connection does about changes."""


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class Client:
    """Who is at the other end of one connection; `client_id` and `zone` follow its latest request."""

    host: str  # the peer's IP address
    zone: str  # where the client runs: the gateway's zone, unless its client id says otherwise
    listener: str = "PLAINTEXT"  # the name of the listener that it came by
    client_id: str = ""
    user: str = ANONYMOUS
    muted_until_s: float = 0.0  # until then, monotonic, nothing is read from it: it has used up a quota
    is_leaving: bool = False  # the connection is to end soon: wait for nothing long
    unanswered_produces: int = 0  # being served, with acks=0: the client may have gone already
    # Requests of one connection run one at a time, in order; only Produce has a lane of its own, which a request leaves
    # as soon as a flusher has been handed its batches. Both locks let tasks through in the order of their coming.
    serial_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    produce_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    takes_answers: asyncio.Event = field(default_factory=_set_event)  # cleared while it leaves too many unread
    history_turn: CatchUpSlot = field(default_factory=CatchUpSlot)
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    route: ProducerRoute | None = None  # to the connection's flusher, once it produces
    on_route_change: Callable[[], None] = _nobody
