"""Fakes for the surroundings of a gateway: time, directory, sequencers and flushers that tests control."""

import asyncio
import contextlib
import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from penstock.contracts import subjects
from penstock.contracts.batches import BatchResult
from penstock.contracts.codec import decode_with_payload, encode
from penstock.contracts.commands import Command, CommandReply, Outcome, QuotaPart
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import DEFAULT_POOL
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.messages import FlushProduce, FlushReply, FlushRequest, ListenerAddress, Presence, SegmentRead
from penstock.contracts.queries.log import LogSizes, LogSizesQuery, LogSizesView
from penstock.contracts.queries.quotas import ClientQuotasView, QuotaEntry
from penstock.contracts.queries.topics import ClusterConfigsView, MetadataQuery, MetadataView, TopicView
from penstock.runtime.bus.bus import Bus, Inbound
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_gateway.config import GatewayConfig
from penstock_gateway.enforcement.all_checks import ALL_CHECKS
from penstock_gateway.enforcement.guard import guarded
from penstock_gateway.fetch.catch_up_throttle import CatchUpThrottle
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.handlers import Handler, all_handlers
from penstock_gateway.kafka.broker_view import Node, node_of, pool_of, zone_of
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.command_batcher import CommandBatcher
from penstock_gateway.kafka.parts import BrokerSettings
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.parts import GatewayLimits, GatewayParts, SharedParts
from penstock_gateway.produce.flush_router import FlushRouter
from penstock_gateway.quotas.quota_cache import QuotaCache
from penstock_gateway.security.authorizer import Authorizer, AuthorizerMode, BindingSource
from penstock_gateway.security.delegation.delegation_tokens import DelegationTokens
from penstock_gateway.security.denial_log import DenialLog
from penstock_gateway.security.login.credentials import Credentials
from penstock_gateway.security.login.failure_delays import FailureDelays
from penstock_gateway.security.login.login_setup import make_logins
from penstock_gateway.security.security_cache import SecurityCache
from penstock_gateway.segments.segment_reader import Data
from penstock_gateway.server.dispatch import Dispatcher
from penstock_gateway.tail.tail_index import TailIndex
from penstock_gateway.tail.tail_subscriber import TailSubscriber
from penstock_gateway.telemetry.telemetry import Telemetry
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.security.queries import security
from penstock_sequencer.core.security.tokens import delegation_tokens
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.topics.client_metrics import client_metrics
from tests.testkit.cancelling import turns
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.testkit.fakes.virtual_time import CountingEntropy

CLUSTER = "test"
ZONE = "z1"
LISTENER = "PLAINTEXT"


class FakeDirectory:
    """A directory with the presences that the test put into it."""

    def __init__(self) -> None:
        self._known: dict[str, Presence] = {}
        self._callbacks: list[Callable[[], None]] = []

    def live(self, role: str, zone: str | None = None, pool: str | None = None) -> list[Presence]:
        found = [each for each in self._known.values() if each.role == role and zone in (None, each.zone)]
        taking = (each for each in found if pool in (None, each.pool) and not each.leaving)
        return sorted(taking, key=lambda each: each.instance)

    def get(self, instance: str) -> Presence | None:
        return self._known.get(instance)

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def put(self, presence: Presence) -> None:
        self._known[presence.instance] = presence
        self._notify()

    def leave(self, instance: str) -> None:
        self.put(msgspec.structs.replace(self._known[instance], leaving=True))

    def drop(self, instance: str) -> None:
        del self._known[instance]
        self._notify()

    def _notify(self) -> None:
        for callback in self._callbacks:
            callback()


class FakeSequencer:
    """Sequencers that answer from a table of topics, and with the answers that a test sets."""

    def __init__(self) -> None:
        self.seen_sequence = 0
        self.seen_level: int | None = TRANSACTIONS_LEVEL
        self.level_seen_s = -3_600.0
        self.topics: dict[str, TopicView] = {}
        self.commands: list[list[Command]] = []
        self.queries: list[tuple[str, msgspec.Struct]] = []
        self.deadlines: list[float] = []  # of all commands and queries
        self.on_command: Callable[[Command], Outcome] | None = None
        self.cluster_configs: dict[str, str] = {}
        self.quotas: list[QuotaEntry] = []
        self.quotas_sequence = 0
        self.machine: State = new_state()  # of users, bindings, tokens and metrics; `apply` changes it
        self.views: dict[str, Callable[[Any], Any]] = {
            "cluster_configs": lambda query: ClusterConfigsView(self.seen_sequence, self.cluster_configs),
            "client_quotas": lambda query: ClientQuotasView(self.seen_sequence, self.quotas_sequence, self.quotas),
            "log_sizes": self._log_sizes,
            "security": lambda query: security(self.machine, query),
            "delegation_tokens": lambda query: delegation_tokens(self.machine, query),
            "client_metrics": lambda query: client_metrics(self.machine, query),
        }
        self.is_down = False
        self.hold: asyncio.Event | None = None
        self.unheard_of: set[str] = set()  # topics that a replica knows only for a fresh query

    def record_sequence(self, sequence: int) -> None:
        self.seen_sequence = max(self.seen_sequence, sequence)

    def record_level(self, level: int) -> None:
        self.seen_level = max(self.seen_level or 0, level)

    async def command(self, commands: list[Command], *, deadline_s: float, attempt_s: float = 1.0) -> list[Outcome]:
        self.commands.append(commands)
        self.deadlines.append(deadline_s)
        await self._be_there()
        assert self.on_command is not None, "no command was expected"
        return [self.on_command(command) for command in commands]

    async def command_reply(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float = 1.0
    ) -> CommandReply:
        outcomes = await self.command(commands, deadline_s=deadline_s, attempt_s=attempt_s)
        return CommandReply(self.seen_sequence, outcomes)

    async def query(self, name: str, query: Any, view: Any, *, deadline_s: float = 10.0, attempt_s: float = 1.0) -> Any:
        self.queries.append((name, query))
        self.deadlines.append(deadline_s)
        await self._be_there()
        answer = self._metadata(query) if name == "metadata" else self.views[name](query)
        return await answer if inspect.isawaitable(answer) else answer

    def add_topic(self, name: str, partitions: int = 1, **configs: str) -> TopicView:
        topic_id = name.encode().ljust(16, b"\1")[:16]
        view = self.topics[name] = TopicView(name, topic_id, partitions, configs, leader_epoch=1)
        return view

    def _metadata(self, query: MetadataQuery) -> MetadataView:
        wanted = self.topics if query.names is None else query.names
        ids = set(query.topic_ids)
        found = [view for view in self.topics.values() if view.name in wanted or view.topic_id in ids]
        if not query.fresh:
            found = [view for view in found if view.name not in self.unheard_of]
        return MetadataView(self.seen_sequence, found)

    def set_quota(self, key: str, value: str, **entity: str | None) -> None:
        """Set a quota of an entity: `client_id` and so on, None for the default."""
        parts = [QuotaPart(kind.replace("_", "-"), name) for kind, name in entity.items()]
        self.quotas.append(QuotaEntry(parts, {key: value}))
        self.quotas_sequence += 1

    def apply(self, command: Command) -> Outcome:
        """The outcome of a command for users, bindings, tokens or metrics, from the real state machine."""
        outcomes, _ = apply_entry(self.machine, self.machine.sequence + 1, [[command]])
        self.record_sequence(self.machine.sequence)
        return outcomes[0][0]

    def _log_sizes(self, query: LogSizesQuery) -> LogSizesView:
        wanted = self.topics if query.names is None else query.names
        found = [view for view in self.topics.values() if view.name in wanted]
        return LogSizesView(
            self.seen_sequence, [LogSizes(view.name, [100 * (n + 1) for n in range(view.partitions)]) for view in found]
        )

    async def _be_there(self) -> None:
        await asyncio.sleep(0)
        if self.hold is not None:
            await self.hold.wait()
        if self.is_down:
            raise Unavailable("no sequencer answered")


class FakeFlusher:
    """A flusher on the memory bus that keeps its requests, and answers when the test asks for it."""

    def __init__(
        self,
        hub: MemoryHub,
        instance: str,
        zone: str = ZONE,
        budget_bytes: int = 64 * 1024 * 1024,
        bus: Bus | None = None,
        pool: str = DEFAULT_POOL,
    ) -> None:
        self.presence = Presence("flusher", zone, instance, "1", budget_bytes=budget_bytes, pool=pool)
        self._bus = bus or hub.connect(instance)
        self.requests: list[tuple[FlushRequest, bytes]] = []
        self._unanswered: list[tuple[Inbound, FlushRequest]] = []
        self.answers_at_once = True
        self.rejection = 0
        self.next_offset = 0
        self.throttle_ms = 0
        self.on_produce: Callable[[int], None] = lambda number: None
        self._subscription: Any = None

    async def open(self) -> None:
        subject = subjects.flush(CLUSTER, self.presence.zone, self.presence.instance)
        self._subscription = await self._bus.subscribe(subject, self._take)

    async def go_away(self) -> None:
        """End the subscription, like a flusher that died."""
        await self._subscription.unsubscribe()

    @property
    def produces(self) -> list[FlushProduce]:
        """All produces that arrived, in order."""
        return [produce for request, _ in self.requests for produce in request.produces]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the produces that arrived, in order."""
        return [produce.request for produce in self.produces]

    async def answer_all(self) -> None:
        waiting, self._unanswered = self._unanswered, []
        for inbound, request in waiting:
            await inbound.respond(encode(self._reply(request)))

    async def answer_with(self, data: bytes) -> None:
        inbound, _ = self._unanswered.pop(0)
        await inbound.respond(data)

    async def _take(self, inbound: Inbound) -> None:
        request, payload = decode_with_payload(inbound.data, FlushRequest)
        total = sum(batch.meta.length for produce in request.produces for batch in produce.batches)
        assert len(payload) == total, "the payload has other bytes than the batches in the head"
        self.requests.append((request, bytes(payload)))
        for produce in request.produces:
            self.on_produce(produce.request)
        self._unanswered.append((inbound, request))
        if self.answers_at_once:
            await self.answer_all()

    def _reply(self, request: FlushRequest) -> FlushReply:
        return FlushReply(7, [self._results(produce) for produce in request.produces], self.throttle_ms)

    def _results(self, produce: FlushProduce) -> list[BatchResult]:
        if self.rejection:
            return [BatchResult(self.rejection)] * len(produce.batches)
        results = []
        for batch in produce.batches:
            results.append(BatchResult(0, self.next_offset, 0))
            self.next_offset += batch.meta.record_count
        return results


@dataclasses.dataclass
class World:
    """A gateway among fakes."""

    gateway: GatewayParts
    config: GatewayConfig
    bus: Bus
    hub: MemoryHub
    clock: ManualClock
    directory: FakeDirectory
    sequencer: FakeSequencer
    flush_router: FlushRouter
    handlers: dict[int, Handler]
    dispatcher: Dispatcher

    async def add_flusher(self, instance: str, **options: Any) -> FakeFlusher:
        flusher = FakeFlusher(self.hub, instance, **options)
        await flusher.open()
        self.directory.put(flusher.presence)
        return flusher

    def replace(self, **parts: Any) -> None:
        """Give the gateway other parts; handlers see them from now on."""
        self.gateway = dataclasses.replace(self.gateway, **parts)
        self.dispatcher = Dispatcher(self.gateway, self.handlers)

    def metric(self, name: str, **labels: str) -> float:
        return self.gateway.metrics.registry.get_sample_value(name, labels) or 0.0


def settings_of(config: GatewayConfig, **others: Any) -> BrokerSettings:
    return BrokerSettings(
        cluster=config.cluster,
        zone=config.zone,
        default_partitions=config.default_partitions,
        auto_create_topics=config.auto_create_topics,
        share_groups=config.share_groups,
        pool=config.pool,
        **others,
    )


def new_world(
    message_bytes_max: int = 8 * 1024 * 1024,
    *,
    hub: MemoryHub | None = None,
    bus: Bus | None = None,
    instance: str = "g1",
    nodes: Mapping[str, Node] | None = None,
    limits: GatewayLimits | None = None,
    first_number: int = 1,
    bindings: BindingSource | None = None,
    logins: Mapping[str, bool] | None = None,
    users: Credentials | None = None,
    by_tenant: Sequence[str] = (),
    delays: FailureDelays | None = None,
    traces: Traces = NO_TRACES,
    **settings: Any,
) -> World:
    """A gateway without other processes; its flush router does not run. `nodes`: its own node, by listener.

    With `bindings` its access control is on; the client of `new_client` is User:ANONYMOUS.
    `logins`: the listeners that demand a login by `users`, and whether each has TLS.
    `by_tenant`: those of several clusters, which share `delays`.
    """
    limits = limits or GatewayLimits()
    hub = hub or MemoryHub(message_bytes_max)
    clock, directory, sequencer = ManualClock(), FakeDirectory(), FakeSequencer()
    bus = bus or hub.connect("gateway")
    metrics = GatewayMetrics(CollectorRegistry())
    config = GatewayConfig(cluster=CLUSTER, zone=ZONE, instance=instance, **settings)
    parts: dict[str, Any] = {"directory": directory, "sequencer": sequencer, "clock": clock, "metrics": metrics}
    place = {"cluster": CLUSTER, "zone": ZONE, "pool": config.pool, "instance": instance}
    flush_router = FlushRouter(bus=bus, first_number=first_number, limits=limits.produce, **place, **parts)
    topics = TopicCache(sequencer)  # type: ignore[arg-type]
    tail = TailSubscriber(
        bus=bus,
        cluster=CLUSTER,
        clock=clock,
        sequencer=sequencer,  # type: ignore[arg-type]
        topics=topics,
        registry=metrics.registry,
        index=TailIndex(limits.tail, monotonic_s=clock.monotonic_s),
    )
    response_memory = ResponseMemory(config.unsent_bytes_max)
    mode = AuthorizerMode.OFF if bindings is None else AuthorizerMode.ON
    denials = DenialLog(metrics, clock.monotonic_s)
    security = SecurityCache(sequencer)
    telemetry = Telemetry(
        sequencer=sequencer,
        clock=clock,
        entropy=CountingEntropy(),
        metrics=metrics,
        limits=limits.telemetry,
    )
    telemetry.subscriptions.is_known = True
    tokens = DelegationTokens(config.tokens(), sequencer=sequencer, clock=clock, entropy=CountingEntropy())
    authorizer = Authorizer(mode, frozenset(), bindings or security, denials)
    made_logins, _ = make_logins(
        config.logins(),
        logins or {},
        cluster=CLUSTER,
        credentials=users or security,
        clock=clock,
        entropy=CountingEntropy(),
        metrics=metrics,
        limits=limits.logins,
        tokens=tokens.verifiers,
        by_tenant=by_tenant,
        delays=delays,
    )
    gateway = GatewayParts.build(
        SharedParts(
            settings=settings_of(config),
            nodes=nodes or {LISTENER: node_of("127.0.0.1", 9092, ZONE)},
            entropy=CountingEntropy(),
            transaction_commands=CommandBatcher(sequencer),  # type: ignore[arg-type]
            topics=topics,
            tail=tail,
            log_reader=LogReader(
                segments=NoSegments(),
                clock=clock,
                response_memory=response_memory,
                throttle=CatchUpThrottle(0, clock, limits.read.throttle),
                limits=limits.read,
            ),
            response_memory=response_memory,
            quotas=QuotaCache(sequencer, clock, directory, instance),  # type: ignore[arg-type]
            security=security,
            delegation_tokens=tokens,
            telemetry=telemetry,
            authorizer=authorizer,
            logins=made_logins,
            traces=traces,
            **parts,
        ),
        flush_router=flush_router,
        limits=limits,
    )
    handlers = all_handlers()
    if authorizer.mode is not AuthorizerMode.OFF:
        handlers = guarded(handlers, ALL_CHECKS, authorizer)
    dispatcher = Dispatcher(gateway, handlers)
    return World(gateway, config, bus, hub, clock, directory, sequencer, flush_router, handlers, dispatcher)


class NoSegments:
    """Segments that no test may read."""

    async def read(self, reads: Sequence[SegmentRead]) -> list[Data]:
        raise AssertionError("a segment was read")

    async def load_ahead(self, reads: Sequence[SegmentRead]) -> None:
        raise AssertionError("a segment was loaded")


def new_client(client_id: str = "test-client", listener: str = LISTENER) -> Client:
    zone, pool = zone_of(client_id, ZONE), pool_of(client_id, DEFAULT_POOL)
    return Client(host="127.0.0.1", zone=zone, pool=pool, listener=listener, client_id=client_id)


def gateway_presence(instance: str, zone: str = ZONE, **addresses: tuple[str, int]) -> Presence:
    """The presence of another gateway; `addresses` by listener."""
    listeners = tuple(ListenerAddress(name, host, port) for name, (host, port) in addresses.items())
    return Presence("gateway", zone, instance, "1", listeners=listeners)


@contextlib.asynccontextmanager
async def with_flushes(world: World) -> AsyncIterator[World]:
    """The world while its flush router runs."""
    running = asyncio.create_task(world.flush_router.run())
    await turns()
    yield world
    running.cancel()
    await asyncio.wait({running})


def joined(buffers: Sequence[bytes | bytearray | memoryview]) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)
