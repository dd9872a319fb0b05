"""All parts of one gateway, and their limits. `app.py` builds the parts; a handler sees only those that it names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from penstock.runtime.bus.presence import Directory
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock_gateway.fetch.fetcher import Fetcher
from penstock_gateway.fetch.limits import FetchLimits, ReadLimits
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.kafka.broker_view import Node
from penstock_gateway.kafka.command_batcher import CommandBatcher
from penstock_gateway.kafka.parts import BrokerSettings
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.produce.flush_router import FlushRouter
from penstock_gateway.produce.limits import ProduceLimits
from penstock_gateway.produce.produce_service import ProduceService
from penstock_gateway.quotas.quota_cache import QuotaCache
from penstock_gateway.segments.limits import SegmentLimits
from penstock_gateway.server.limits import ConnectionLimits
from penstock_gateway.share.commands import ShareCommands
from penstock_gateway.share.fetcher import ShareFetcher
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.share.partition_queue import PartitionQueues
from penstock_gateway.share.reader import ShareReader
from penstock_gateway.tail.tail_index import TailLimits
from penstock_gateway.tail.tail_subscriber import TailSubscriber


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and waiting times of one gateway, by package."""

    connections: ConnectionLimits = ConnectionLimits()
    produce: ProduceLimits = ProduceLimits()
    fetch: FetchLimits = FetchLimits()
    read: ReadLimits = ReadLimits()
    segments: SegmentLimits = SegmentLimits()
    share: ShareLimits = ShareLimits()
    tail: TailLimits = TailLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """The parts that the handlers of one gateway share. Each handler's `Needs` is a subset of these attributes."""

    settings: BrokerSettings
    nodes: Mapping[str, Node]  # by listener: this gateway's own place among the brokers
    clock: Clock
    entropy: Entropy
    directory: Directory
    sequencer: SequencerClient
    transaction_commands: CommandBatcher
    topics: TopicCache
    tail: TailSubscriber
    log_reader: LogReader
    response_memory: ResponseMemory
    metrics: GatewayMetrics
    quotas: QuotaCache
    produce_service: ProduceService
    fetcher: Fetcher
    share_commands: ShareCommands
    share_fetcher: ShareFetcher

    @classmethod
    def build(
        cls,
        *,
        settings: BrokerSettings,
        nodes: Mapping[str, Node],
        clock: Clock,
        entropy: Entropy,
        directory: Directory,
        sequencer: SequencerClient,
        transaction_commands: CommandBatcher,
        topics: TopicCache,
        flush_router: FlushRouter,
        tail: TailSubscriber,
        log_reader: LogReader,
        response_memory: ResponseMemory,
        metrics: GatewayMetrics,
        quotas: QuotaCache,
        limits: GatewayLimits,
    ) -> Self:
        """Build the services that use the given parts."""
        queues = PartitionQueues()
        share_commands = ShareCommands(
            sequencer=sequencer, queues=queues, metrics=metrics, clock=clock, entropy=entropy, limits=limits.share
        )
        return cls(
            settings=settings,
            nodes=nodes,
            clock=clock,
            entropy=entropy,
            directory=directory,
            sequencer=sequencer,
            transaction_commands=transaction_commands,
            topics=topics,
            tail=tail,
            log_reader=log_reader,
            response_memory=response_memory,
            metrics=metrics,
            quotas=quotas,
            produce_service=ProduceService(
                flush_router=flush_router,
                topics=topics,
                sequencer=sequencer,
                clock=clock,
                metrics=metrics,
                proxied_listeners=settings.proxied_listeners,
                limits=limits.produce,
            ),
            fetcher=Fetcher(
                log_reader=log_reader,
                tail=tail,
                topics=topics,
                sequencer=sequencer,
                response_memory=response_memory,
                clock=clock,
                entropy=entropy,
                limits=limits.fetch,
            ),
            share_commands=share_commands,
            share_fetcher=ShareFetcher(
                reader=ShareReader(log_reader=log_reader, tail=tail, sequencer=sequencer, limits=limits.share),
                commands=share_commands,
                queues=queues,
                log_reader=log_reader,
                tail=tail,
                topics=topics,
                sequencer=sequencer,
                response_memory=response_memory,
                metrics=metrics,
                entropy=entropy,
                limits=limits.share,
            ),
        )
