"""What every service has around its own work: health and metrics, the connection to nats, and its presence."""

import asyncio
from collections.abc import Callable
from importlib.metadata import version

from penstock.contracts.messages import Presence
from penstock.runtime.bus.bus import Bus
from penstock.runtime.bus.presence import Announcer, Directory
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.nats.client import NatsConnection, connect_nats
from penstock.runtime.process.config import ServiceConfig
from penstock.runtime.process.health import Health, HttpServer, new_registry


class ServiceHost:
    """The shared parts of one service; the service puts its own between these steps.

    1. `open_http`: health and metrics are answered.
    2. `connect`: there are a bus, a directory and an announcer, which hear and say nothing yet.
    3. `listen`, if the service must know others: the directory hears, and the announcer greets newcomers.
    4. `start`: it is announced.
    5. `begin_drain`: nothing new should be sent here.
    6. `disconnect`, then `close_http`, also if the steps that they undo failed or never came.
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
        distribution: str = "penstock",
    ) -> None:
        """`complete` adds to each announcement what only the service knows; its version is the distribution's."""
        self.health = Health()
        self.registry = new_registry()
        self._config = config
        self._role = role
        self._clock = clock
        self._complete = complete
        self._entropy = entropy
        self._version = version(distribution)
        self._http = HttpServer(self.health, self.registry, config.http_host, config.http_port)
        self._connection: NatsConnection | None = None
        self._is_listening = False

    @property
    def connection(self) -> NatsConnection:
        """The connection to nats."""
        assert self._connection is not None, "the service is not connected"
        return self._connection

    @property
    def bus(self) -> Bus:
        """The bus over the connection."""
        return self.connection.bus

    async def open_http(self) -> None:
        """Answer for health and metrics; `Invalid` if the address cannot be listened on."""
        await self._http.open()

    async def connect(self) -> Bus:
        """Connect to nats; `Unavailable` if none is there."""
        config = self._config
        self._connection = await connect_nats(
            config.nats_url,
            name=config.instance,
            user=config.nats_user,
            password=config.nats_password,
            registry=self.registry,
            entropy=self._entropy,
        )
        bus = self.bus
        self.health.require(lambda: "" if bus.is_connected else "not connected to nats")
        self.directory = Directory(bus, config.cluster, self._clock)
        self.announcer = Announcer(bus, config.cluster, self._presence, self.directory)
        return bus

    async def listen(self) -> None:
        """Hear of the others; from here on `complete` is called."""
        await self.directory.open()
        self._is_listening = True

    def start(self, group: asyncio.TaskGroup) -> None:
        """Add what runs as long as the service does."""
        group.create_task(self.bus.run_until_closed())
        if self._is_listening:
            group.create_task(self.directory.run())
        group.create_task(self.announcer.run())

    async def begin_drain(self) -> None:
        """Be no longer ready, and say goodbye."""
        self.health.set_ready(False, "draining")
        await self.announcer.leave()

    async def disconnect(self) -> None:
        """Close the connection to nats, if there is one."""
        if self._connection is not None:
            await self._connection.close()

    async def close_http(self) -> None:
        """Answer no more for health and metrics."""
        await self._http.close()

    def _presence(self) -> Presence:
        config = self._config
        said = Presence(self._role, config.zone, config.instance, self._version, http=self._http.address)
        return self._complete(said) if self._complete is not None else said
