"""What a request handler works with: the gateway's parts, and the client whose request it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config import GatewayConfig
    from gateway.flushes import Flushes
    from gateway.metrics import GatewayMetrics
    from gateway.reads import SegmentReads
    from gateway.tail_feed import TailFeed
    from gateway.topics import TopicCache
    from penstock.runtime.bus import Bus
    from penstock.runtime.clock import Clock, Entropy
    from penstock.runtime.presence import Directory
    from penstock.runtime.sequencer_client import SequencerClient


@dataclass(frozen=True, slots=True)
class Gateway:
    """The parts of one gateway process; app.py builds it, handlers use it."""

    config: GatewayConfig
    clock: Clock
    entropy: Entropy
    bus: Bus
    directory: Directory
    sequencer: SequencerClient
    topics: TopicCache
    flushes: Flushes
    tail: TailFeed
    reads: SegmentReads
    metrics: GatewayMetrics


@dataclass(slots=True)
class Client:
    """Who is at the other end of one connection; `client_id` and `zone` follow its latest request."""

    host: str  # the peer's IP address
    zone: str  # where the client runs: the listener's zone, unless its client id says otherwise
    client_id: str = ""
