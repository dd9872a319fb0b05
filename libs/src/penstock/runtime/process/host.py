"""The parts that every service has: health and metrics, the connection to NATS, and presence."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry

from penstock.contracts.messages import Presence
from penstock.contracts.subjects import Sender
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.presence import Announcer, Directory, PresenceLimits
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.journal import Journal
from penstock.runtime.nats.client import NatsLimits, connect_nats
from penstock.runtime.nats.tls import NatsTls
from penstock.runtime.process.config import ServiceConfig
from penstock.runtime.process.health import Health, HttpServer, new_registry
from penstock.runtime.process.own_address import announced_address
from penstock.version import VERSION


class HostLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the shared parts."""

    nats: NatsLimits = NatsLimits()
    presence: PresenceLimits = PresenceLimits()


DEFAULT_LIMITS = HostLimits()


class Connection(Protocol):
    """The connection of a service: a bus, and journals beside it."""

    @property
    def bus(self) -> Bus: ...

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal:
        """As `NatsConnection.journal`."""

    async def delete_stream(self, name: str) -> None:
        """As `NatsConnection.delete_stream`."""

    async def close(self) -> None: ...


class Http(Protocol):
    """The HTTP endpoint of a service, as `HttpServer`."""

    @property
    def address(self) -> str: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class ServiceHost:
    """The shared parts of one service; the service does its own steps between these.

    1. `open_http`: health and metrics are served.
    2. `connect`: bus, directory and announcer exist, but do not work yet.
    3. `listen`, if the service must know other instances: the directory learns them, the announcer answers new ones.
    4. `start`: the service is announced.
    5. `begin_drain`: the service announces that it takes no new work.
    6. `disconnect`, then `close_http`, also if the steps that they undo failed or never ran.
    """

    directory: Directory
    announcer: Announcer

    def __init__(
        self,
        config: ServiceConfig,
        role: str,
        clock: Clock,
        *,
        complete: Callable[[Presence], Presence] | None = None,
        entropy: Entropy | None = None,
        limits: HostLimits = DEFAULT_LIMITS,
        connect: Callable[..., Awaitable[Connection]] = connect_nats,
        make_http: Callable[..., Http] = HttpServer,
        make_registry: Callable[[], CollectorRegistry] = new_registry,
    ) -> None:
        """`complete` adds the service's own fields to each announcement.

        A simulation replaces `connect` and `make_http`, a process with several services also `make_registry`.
        """
        self.health = Health()
        self.registry = make_registry()
        self._config = config
        self._role = role
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._complete = complete
        self._entropy = entropy
        self._limits = limits
        self._connect = connect
        self._http = make_http(
            self.health, self.registry, config.http_host, config.http_port, token_file=config.http_token_file
        )
        self._http_address = ""  # as other machines reach it
        self._connection: Connection | None = None
        self._sequencers: SequencerClient | None = None
        self._is_listening = False

    @property
    def connection(self) -> Connection:
        """The connection to nats."""
        assert self._connection is not None, "the service is not connected"
        return self._connection

    @property
    def bus(self) -> Bus:
        """The bus over the connection."""
        return self.connection.bus

    async def open_http(self) -> None:
        """Serve health and metrics; `Invalid` if the address cannot be used."""
        await self._http.open()

    async def connect(self) -> Bus:
        """Connect to NATS; `Unavailable` if no server answers."""
        config = self._config
        self._connection = await self._connect(
            config.nats_url,
            name=config.instance,
            user=config.nats_user,
            password=config.nats_password,
            tls=NatsTls(config.nats_tls_ca, config.nats_tls_certificate, config.nats_tls_key),
            registry=self.registry,
            entropy=self._entropy,
            limits=self._limits.nats,
        )
        bus = self.bus
        self._http_address = await announced_address(self._http.address, config.nats_url)
        self.health.require(lambda: "" if bus.is_connected else "not connected to nats")
        presence = self._limits.presence
        self.directory = Directory(bus, config.cluster, self._clock, limits=presence)
        self.announcer = Announcer(bus, config.cluster, self._presence, self.directory, limits=presence)
        return bus

    def sequencers(self, sender: Sender) -> SequencerClient:
        """Make the service's client of the sequencers; announcements name the newest entry that it has seen."""
        self._sequencers = SequencerClient(self.bus, self._config.cluster, self._clock, sender=sender)
        return self._sequencers

    async def listen(self, *, may_be_denied: bool = False) -> None:
        """Subscribe to the announcements of other instances; from here on `complete` is called.

        With `may_be_denied`, the service also works if NATS does not let its user hear them.
        """
        await self.directory.open(may_be_denied=may_be_denied)
        self._is_listening = True

    def start(self, group: asyncio.TaskGroup) -> None:
        """Add the tasks that run as long as the service."""
        group.create_task(self.bus.run_until_closed())
        if self._is_listening:
            group.create_task(self.directory.run())
        group.create_task(self.announcer.run())

    async def begin_drain(self) -> None:
        """Report not ready, and announce that this instance leaves."""
        self.health.set_ready(False, "draining")
        await self.announcer.leave()

    async def disconnect(self) -> None:
        """Close the connection to nats, if there is one."""
        if self._connection is not None:
            await self._connection.close()

    async def close_http(self) -> None:
        """Stop serving health and metrics."""
        await self._http.close()

    def _presence(self) -> Presence:
        config = self._config
        own = Presence(
            self._role,
            config.zone,
            config.instance,
            VERSION,
            http=self._http_address,
            started_ms=self._started_ms,
            seen_sequence=self._sequencers.seen_sequence if self._sequencers is not None else 0,
        )
        return self._complete(own) if self._complete is not None else own
