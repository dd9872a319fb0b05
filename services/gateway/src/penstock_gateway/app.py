"""Builds one gateway and connects its parts; no other module does this."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from penstock.contracts.messages import ListenerAddress, Presence
from penstock.contracts.subjects import Sender
from penstock.kafkawire.api.fetch import API as FETCH
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.garbage import GarbagePolicy, ScheduledPolicy
from penstock.runtime.process.host import ServiceHost
from penstock.runtime.traces.opening import open_traces
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_gateway.audit_topic.audited import audited
from penstock_gateway.audit_topic.change_log import ChangeLog
from penstock_gateway.audit_topic.writer import AuditWriter
from penstock_gateway.config import GatewayConfig
from penstock_gateway.dead_letters.writer import DeadLetterWriter
from penstock_gateway.enforcement.all_checks import ALL_CHECKS
from penstock_gateway.enforcement.guard import guarded
from penstock_gateway.enforcement.pools import within_pool
from penstock_gateway.fetch.catch_up_throttle import CatchUpThrottle
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.fetch.sessions import FetchSessions
from penstock_gateway.handlers import Handler, all_handlers
from penstock_gateway.kafka.broker_view import Node
from penstock_gateway.kafka.command_batcher import CommandBatcher
from penstock_gateway.kafka.listener_config import ListenerSpec, parse_listeners
from penstock_gateway.kafka.parts import BrokerSettings
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.served_clients import parse_served
from penstock_gateway.kafka.shared_limit import ClusterShares
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.parts import GatewayLimits, GatewayParts, SharedParts, new_dead_letter_writer
from penstock_gateway.produce.flush_router import FlushRouter, first_number_at
from penstock_gateway.quotas.quota_cache import QuotaCache
from penstock_gateway.security.audit_trail import AuditTrail, NewAuditTopic
from penstock_gateway.security.authorizer import Authorizer, AuthorizerMode, parse_mode, parse_super_users
from penstock_gateway.security.delegation.delegation_tokens import DelegationTokens
from penstock_gateway.security.denial_log import DenialLog
from penstock_gateway.security.login.failure_delays import FailureDelays
from penstock_gateway.security.login.json_web_keys import KeySet
from penstock_gateway.security.login.login_setup import make_logins
from penstock_gateway.security.login.logins import Logins
from penstock_gateway.security.security_cache import SecurityCache
from penstock_gateway.security.tls_contexts import ListenerTls, TlsReloader
from penstock_gateway.segments.segment_reader import SegmentReader
from penstock_gateway.server.connection_manager import ConnectionManager
from penstock_gateway.server.dispatch import Dispatcher
from penstock_gateway.server.listener import Listener, open_socket
from penstock_gateway.server.own_nodes import own_nodes
from penstock_gateway.tail.tail_index import TailIndex
from penstock_gateway.tail.tail_subscriber import TailSubscriber
from penstock_gateway.telemetry.telemetry import Telemetry

# The drain ends before the deadline of the process. A client without an answer by then is disconnected.
DRAIN_SHARE = 0.8
AUDIT_DRAIN_SHARE = 0.15  # of the same deadline, after the connections

log = structlog.get_logger()


def _make_listener(spec: ListenerSpec, tls: ListenerTls | None) -> Listener:
    return Listener(spec.name, open_socket(spec.host, spec.port), tls)


class GatewayApp:
    """One gateway process; see `penstock.runtime.process.App` for the order of its life."""

    def __init__(
        self,
        config: GatewayConfig,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        make_listener: Callable[[ListenerSpec, ListenerTls | None], Listener] = _make_listener,
        limits: GatewayLimits | None = None,
        garbage: GarbagePolicy | None = None,
        own_specs: Callable[[], list[ListenerSpec]] | None = None,
        shares: ClusterShares | None = None,
        connections_max: Callable[[], int] = lambda: 0,
        delays: FailureDelays | None = None,
    ) -> None:
        """The last four are of a process with several clusters, which share its listeners and limits."""
        self._limits = limits or GatewayLimits()
        self._garbage = garbage or ScheduledPolicy()
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(config, "gateway", self._clock, complete=self._complete_presence, entropy=self._entropy)
        self._open_store = open_store
        self._make_listener = make_listener
        self._own_specs = own_specs
        self._shares = shares or config.process_limits().join()
        self._connections_max = connections_max
        self._delays = delays
        self._listeners: list[Listener] = []
        self._tls: dict[str, ListenerTls] = {}  # by listener with TLS
        self._nodes: dict[str, Node] = {}  # by listener
        self._store: ObjectStore | None = None
        self._tail: TailSubscriber | None = None
        self._segment_reader: SegmentReader | None = None
        self._log_reader: LogReader | None = None
        self._tls_reloader: TlsReloader
        self._flush_router: FlushRouter
        self._dead_letters: DeadLetterWriter
        self._transaction_commands: CommandBatcher | None = None
        self._quotas: QuotaCache
        self._security: SecurityCache
        self._delegation_tokens: DelegationTokens
        self._telemetry: Telemetry
        self._token_keys: KeySet | None = None
        self._connections: ConnectionManager | None = None
        self._audit_trail: AuditTrail | None = None  # None: off
        self._audit_writer: AuditWriter | None = None
        self._traces: Traces = NO_TRACES

    async def open(self) -> None:
        self._garbage.start()
        config = self._config
        self._traces = open_traces(config, "gateway", self._clock, self._entropy)
        specs = self._open_listeners()
        await self._host.open_http()
        bus = await self._host.connect()
        self._nodes = await own_nodes(config, specs, self._listeners)
        self._store = await self._open_store(config.store_url, registry=self._host.registry)
        gateway = self._wire(bus, self._store)
        self._dead_letters = new_dead_letter_writer(gateway, self._flush_router, self._limits)
        self._tls_reloader = TlsReloader(list(self._tls.values()), gateway.metrics)
        self._connections = ConnectionManager(
            gateway=gateway,
            config=config,
            listeners=self._listeners,
            dispatcher=Dispatcher(gateway, self._handlers(gateway), self._limits.connections.decoding),
            limits=self._limits.connections,
            shares=self._shares,
            connections_max=self._connections_max,
        )
        self._flush_router.has_stalled = self._connections.wake
        await self._host.listen()
        self._host.health.require(self._missing)
        await gateway.tail.open()
        await self._flush_router.open()

    def _open_listeners(self) -> list[ListenerSpec]:
        """The specifications of the listeners; those of a shared process have sockets and TLS already."""
        if self._own_specs is not None:
            specs = self._own_specs()
        else:
            specs = parse_listeners(self._config.listeners, self._config.advertised_listeners)
            for security in self._config.listener_securities().values():
                if security.tls is not None:
                    self._tls[security.name] = ListenerTls(security, self._clock)
        for spec in specs:
            self._listeners.append(self._make_listener(spec, self._tls.get(spec.name)))
        return specs

    async def run(self) -> None:
        assert self._connections is not None, "opened before it runs"
        async with asyncio.TaskGroup() as tasks:
            self._host.start(tasks)
            tasks.create_task(self._garbage.run())
            tasks.create_task(self._flush_router.run())
            tasks.create_task(self._dead_letters.run())
            tasks.create_task(self._quotas.run())
            tasks.create_task(self._security.run())
            tasks.create_task(self._telemetry.subscriptions.run())
            if self._delegation_tokens:
                tasks.create_task(self._delegation_tokens.cache.run())
            if self._tls:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._tls_reloader.reload_soon)
                tasks.create_task(self._tls_reloader.run())
            if self._token_keys is not None:
                tasks.create_task(self._token_keys.run())
            if self._audit_writer is not None:
                tasks.create_task(self._audit_writer.run())
            tasks.create_task(self._connections.run())
            self._host.health.set_ready(True)

    async def drain(self) -> None:
        assert self._connections is not None, "opened before it is drained"
        await self._host.begin_drain()
        deadline_s = self._config.drain_deadline_ms / 1000
        await self._connections.drain(deadline_s * DRAIN_SHARE)
        if self._audit_writer is not None:
            await self._audit_writer.drain(deadline_s * AUDIT_DRAIN_SHARE)

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()
        for listener in self._listeners:
            listener.close()
        self._shares.leave()
        # Disconnect first: otherwise each later step could wait for a silent NATS server until its time-out.
        await self._host.disconnect()
        if self._tail is not None:
            await self._tail.close()
            await self._host.directory.close()
        for part in (self._transaction_commands, self._log_reader, self._segment_reader, self._store):
            if part is not None:
                await part.close()
        await self._traces.close()
        await self._host.close_http()

    def _wire(self, bus: Bus, store: ObjectStore) -> GatewayParts:
        config, clock, limits = self._config, self._clock, self._limits
        registry, directory = self._host.registry, self._host.directory
        metrics = GatewayMetrics(registry, topics_max=config.metrics_topics_max)
        sequencer = self._host.sequencers(Sender.CLIENT)
        self._transaction_commands = CommandBatcher(sequencer)
        topics = TopicCache(sequencer)
        response_memory = ResponseMemory(self._shares.unsent_bytes)
        self._flush_router = self._new_flush_router(bus, sequencer, metrics)
        self._quotas = QuotaCache(sequencer, clock, directory, config.instance)
        self._security = SecurityCache(sequencer)
        self._telemetry = self._new_telemetry(sequencer, metrics)
        self._delegation_tokens = DelegationTokens(
            config.tokens(), sequencer=sequencer, clock=clock, entropy=self._entropy
        )
        if config.audit == "on":
            self._audit_trail, self._audit_writer = self._make_audit(topics, sequencer, metrics)
        throttle = CatchUpThrottle(config.history_bytes_per_second, clock, limits.read.throttle)
        self._tail = TailSubscriber(
            bus=bus,
            cluster=config.cluster,
            clock=clock,
            sequencer=sequencer,
            topics=topics,
            registry=registry,
            index=TailIndex(limits.tail, monotonic_s=clock.monotonic_s),
            record_quotas=self._quotas.record,
            record_security=self._security.record,
            record_tokens=self._delegation_tokens.cache.record,
            record_subscriptions=self._telemetry.subscriptions.record,
            record_new_data=throttle.record_new_data,
            record_changed_topics=metrics.topic_bytes.record_changed,
        )
        self._segment_reader = self._new_segment_reader(bus, store)
        self._log_reader = LogReader(
            segments=self._segment_reader,
            clock=clock,
            response_memory=response_memory,
            throttle=throttle,
            limits=limits.read,
        )
        return GatewayParts.build(
            SharedParts(
                settings=self._settings(),
                nodes=self._nodes,
                clock=clock,
                entropy=self._entropy,
                directory=directory,
                sequencer=sequencer,
                transaction_commands=self._transaction_commands,
                topics=topics,
                tail=self._tail,
                log_reader=self._log_reader,
                response_memory=response_memory,
                metrics=metrics,
                quotas=self._quotas,
                security=self._security,
                delegation_tokens=self._delegation_tokens,
                telemetry=self._telemetry,
                authorizer=self._authorizer(metrics),
                logins=self._make_logins(metrics),
                traces=self._traces,
            ),
            flush_router=self._flush_router,
            limits=limits,
        )

    def _new_segment_reader(self, bus: Bus, store: ObjectStore) -> SegmentReader:
        return SegmentReader(
            bus=bus,
            cluster=self._config.cluster,
            zone=self._config.zone,
            pool=self._config.pool,
            directory=self._host.directory,
            store=store,
            clock=self._clock,
            registry=self._host.registry,
            limits=self._limits.segments,
            traces=self._traces,
        )

    def _new_telemetry(self, sequencer: SequencerClient, metrics: GatewayMetrics) -> Telemetry:
        return Telemetry(
            sequencer=sequencer,
            clock=self._clock,
            entropy=self._entropy,
            metrics=metrics,
            limits=self._limits.telemetry,
        )

    def _new_flush_router(self, bus: Bus, sequencer: SequencerClient, metrics: GatewayMetrics) -> FlushRouter:
        return FlushRouter(
            bus=bus,
            directory=self._host.directory,
            sequencer=sequencer,
            clock=self._clock,
            metrics=metrics,
            cluster=self._config.cluster,
            zone=self._config.zone,
            pool=self._config.pool,
            instance=self._config.instance,
            first_number=first_number_at(self._clock.now_ms()),
            limits=self._limits.produce,
        )

    def _make_audit(
        self, topics: TopicCache, sequencer: SequencerClient, metrics: GatewayMetrics
    ) -> tuple[AuditTrail, AuditWriter]:
        config = self._config
        trail = AuditTrail(gateway=config.instance, clock=self._clock, metrics=metrics, limits=self._limits.audit)
        return trail, AuditWriter(
            trail=trail,
            flush_router=self._flush_router,
            topics=topics,
            sequencer=sequencer,
            clock=self._clock,
            entropy=self._entropy,
            new_topic=NewAuditTopic(partitions=config.audit_partitions, retention_ms=config.audit_retention_ms),
        )

    def _authorizer(self, metrics: GatewayMetrics) -> Authorizer:
        config = self._config
        denials = DenialLog(metrics, self._clock.monotonic_s, audit=self._audit_trail)
        super_users = parse_super_users(config.super_users)
        return Authorizer(parse_mode(config.authorizer), super_users, self._security, denials)

    def _handlers(self, gateway: GatewayParts) -> dict[int, Handler]:
        """The handlers, which record changes by administrators, behind checks if access is controlled.

        Fetch sessions stand before the checks: all partitions of a session are checked for each request.
        """
        handlers = within_pool(all_handlers(), parse_served(self._config.served_clients))
        handlers = audited(handlers, ChangeLog(self._clock.monotonic_s, audit=self._audit_trail))
        if gateway.authorizer.mode is not AuthorizerMode.OFF:
            handlers = guarded(handlers, ALL_CHECKS, gateway.authorizer)
        sessions = FetchSessions(self._entropy, gateway.metrics, self._limits.fetch_sessions)
        return handlers | {FETCH.key: sessions.around(handlers[FETCH.key])}

    def _make_logins(self, metrics: GatewayMetrics) -> Logins:
        logins, self._token_keys = make_logins(
            self._config.logins(),
            self._config.login_listeners(),
            cluster=self._config.cluster,
            credentials=self._security,
            clock=self._clock,
            entropy=self._entropy,
            metrics=metrics,
            limits=self._limits.logins,
            audit=self._audit_trail,
            tokens=self._delegation_tokens.verifiers,
            by_tenant=self._config.tenant_listeners(),
            delays=self._delays,
        )
        return logins

    def _settings(self) -> BrokerSettings:
        config = self._config
        return BrokerSettings(
            cluster=config.cluster,
            zone=config.zone,
            instance=config.instance,
            pool=config.pool,
            default_partitions=config.default_partitions,
            auto_create_topics=config.auto_create_topics,
            share_groups=config.share_groups,
            idle_timeout_ms=config.idle_timeout_ms,
            connections_max=config.connections_max,
            frame_bytes_max=config.frame_bytes_max,
        )

    def _complete_presence(self, presence: Presence) -> Presence:
        return msgspec.structs.replace(
            presence,
            pool=self._config.pool,
            listeners=tuple(ListenerAddress(name, node.host, node.port) for name, node in self._nodes.items()),
            load_bytes=self._flush_router.unanswered_bytes,
            quota_use=self._quotas.reported(),
            journal_sequence=(self._tail.applied_sequence if self._tail else None) or -1,
        )

    def _missing(self) -> str:
        directory, pool = self._host.directory, self._config.pool
        if not directory.live("sequencer"):
            return "no sequencer is live"
        if self._config.needs_flusher and not directory.live("flusher", pool=pool):
            return f"no flusher of the pool {pool} is live"
        return "" if self._security.is_known else "users and access control lists are not known yet"
