"""All parts of one gateway, and their limits. `app.py` builds the parts; a handler sees only those that it names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec

from penstock.runtime.bus.presence import Directory
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_gateway.coordination.heartbeat_leases import HeartbeatLeases
from penstock_gateway.coordination.known_outage import KnownOutage
from penstock_gateway.coordination.pending_members import PendingMembers
from penstock_gateway.dead_letters.limits import DeadLetterLimits
from penstock_gateway.dead_letters.source import DeadRecordReader
from penstock_gateway.dead_letters.topic import DeadLetterTopics
from penstock_gateway.dead_letters.writer import DeadLetterWriter
from penstock_gateway.fetch.fetcher import Fetcher
from penstock_gateway.fetch.limits import FetchLimits, FetchSessionLimits, ReadLimits
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
from penstock_gateway.security.audit_trail import AuditLimits
from penstock_gateway.security.authorizer import Authorizer
from penstock_gateway.security.delegation.delegation_tokens import DelegationTokens
from penstock_gateway.security.login.logins import LoginLimits, Logins
from penstock_gateway.security.security_cache import SecurityCache
from penstock_gateway.segments.limits import SegmentLimits
from penstock_gateway.server.limits import ConnectionLimits
from penstock_gateway.share.commands import ShareCommands
from penstock_gateway.share.fetcher import ShareFetcher
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.share.partition_queue import PartitionQueues
from penstock_gateway.share.reader import ShareReader
from penstock_gateway.share.sessions import ShareSessions
from penstock_gateway.share.starts import ShareStartFinder
from penstock_gateway.tail.tail_index import TailLimits
from penstock_gateway.tail.tail_subscriber import TailSubscriber
from penstock_gateway.telemetry.limits import TelemetryLimits
from penstock_gateway.telemetry.telemetry import Telemetry


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and waiting times of one gateway, by package."""

    connections: ConnectionLimits = ConnectionLimits()
    produce: ProduceLimits = ProduceLimits()
    fetch: FetchLimits = FetchLimits()
    fetch_sessions: FetchSessionLimits = FetchSessionLimits()
    read: ReadLimits = ReadLimits()
    segments: SegmentLimits = SegmentLimits()
    share: ShareLimits = ShareLimits()
    dead_letters: DeadLetterLimits = DeadLetterLimits()
    tail: TailLimits = TailLimits()
    telemetry: TelemetryLimits = TelemetryLimits()
    logins: LoginLimits = LoginLimits()
    audit: AuditLimits = AuditLimits()


@dataclass(frozen=True, kw_only=True)
class SharedParts:
    """The parts that several packages of one gateway use."""

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
    security: SecurityCache
    delegation_tokens: DelegationTokens
    telemetry: Telemetry
    authorizer: Authorizer
    logins: Logins
    heartbeat_leases: HeartbeatLeases = field(default_factory=HeartbeatLeases)
    known_outage: KnownOutage = field(default_factory=KnownOutage)
    traces: Traces = NO_TRACES


@dataclass(frozen=True, kw_only=True)
class GatewayParts(SharedParts):
    """The parts that the handlers of one gateway use. Each handler's `Needs` is a subset of these attributes."""

    pending_members: PendingMembers
    produce_service: ProduceService
    fetcher: Fetcher
    share_commands: ShareCommands
    share_fetcher: ShareFetcher
    share_sessions: ShareSessions
    share_starts: ShareStartFinder

    @classmethod
    def build(cls, shared: SharedParts, *, flush_router: FlushRouter, limits: GatewayLimits) -> Self:
        """Build the services on the shared parts."""
        queues = PartitionQueues()
        share_sessions = ShareSessions(clock=shared.clock, limits=limits.share)
        share_commands = ShareCommands(
            sequencer=shared.sequencer,
            queues=queues,
            metrics=shared.metrics,
            clock=shared.clock,
            entropy=shared.entropy,
            limits=limits.share,
        )
        share_reader = ShareReader(
            log_reader=shared.log_reader, tail=shared.tail, sequencer=shared.sequencer, limits=limits.share
        )
        return cls(
            **vars(shared),
            pending_members=PendingMembers(shared.sequencer, shared.clock),
            produce_service=ProduceService(
                flush_router=flush_router,
                topics=shared.topics,
                sequencer=shared.sequencer,
                clock=shared.clock,
                metrics=shared.metrics,
                authorizer=shared.authorizer,
                nodes=shared.nodes,
                storage_error=lambda: shared.quotas.storage_error,
                limits=limits.produce,
                traces=shared.traces,
            ),
            fetcher=Fetcher(
                log_reader=shared.log_reader,
                tail=shared.tail,
                topics=shared.topics,
                sequencer=shared.sequencer,
                response_memory=shared.response_memory,
                clock=shared.clock,
                entropy=shared.entropy,
                topic_bytes=shared.metrics.topic_bytes,
                limits=limits.fetch,
                traces=shared.traces,
            ),
            share_commands=share_commands,
            share_sessions=share_sessions,
            share_starts=ShareStartFinder(
                sequencer=shared.sequencer, log_reader=shared.log_reader, limits=limits.share
            ),
            share_fetcher=ShareFetcher(
                reader=share_reader,
                commands=share_commands,
                sessions=share_sessions,
                queues=queues,
                log_reader=shared.log_reader,
                tail=shared.tail,
                topics=shared.topics,
                sequencer=shared.sequencer,
                response_memory=shared.response_memory,
                metrics=shared.metrics,
                entropy=shared.entropy,
                limits=limits.share,
            ),
        )


def new_dead_letter_writer(shared: SharedParts, flush_router: FlushRouter, limits: GatewayLimits) -> DeadLetterWriter:
    """The writer of dead letters, which follows the announcements; the caller runs it."""
    reader = ShareReader(
        log_reader=shared.log_reader, tail=shared.tail, sequencer=shared.sequencer, limits=limits.share
    )
    writer = DeadLetterWriter(
        topics=DeadLetterTopics(
            topics=shared.topics,
            sequencer=shared.sequencer,
            clock=shared.clock,
            entropy=shared.entropy,
            partitions=shared.settings.default_partitions,
            limits=limits.dead_letters,
        ),
        reader=DeadRecordReader(reader=reader, limits=limits.dead_letters),
        sequencer=shared.sequencer,
        flush_router=flush_router,
        directory=shared.directory,
        instance=shared.settings.instance,
        clock=shared.clock,
        metrics=shared.metrics,
        storage_error=lambda: shared.quotas.storage_error,
        limits=limits.dead_letters,
    )
    shared.tail.record_dead_letters = writer.record_announced
    return writer
