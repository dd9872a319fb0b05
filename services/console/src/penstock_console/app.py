"""Builds and wires one console, and stops it in order."""

import asyncio
from collections.abc import Callable

import aiohttp

from penstock.contracts.errors import Invalid
from penstock.contracts.subjects import Sender
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.runtime.process.host import ServiceHost
from penstock.schemas.decoding import Decoder
from penstock.schemas.limits import SchemaLimits
from penstock.schemas.registry import parse_address
from penstock.version import VERSION
from penstock_console.config import ConsoleConfig
from penstock_console.kafka.sessions import KafkaSessions, listener_settings
from penstock_console.metrics import SurveyMetrics
from penstock_console.openid.flow import CodeFlow
from penstock_console.openid.issuer import Issuer
from penstock_console.openid.settings import OpenIdSettings, checked, read_secret
from penstock_console.pages.context import Sources
from penstock_console.survey.polling import Poll
from penstock_console.survey.processes import CONSOLE, ProcessWatch, Reading
from penstock_console.survey.survey import Survey, Surveyor
from penstock_console.web.logins import Logins
from penstock_console.web.server import WebServer

PAGE_TIMEOUT_S = 3.0  # a stuck process must not block the page of all processes
# A page must not wait long for a registry. A decoded value can have a hundred times the size of its payload.
SCHEMA_LIMITS = SchemaLimits(timeout_s=2.0, payload_bytes_max=200_000)


class ConsoleApp:
    """One console process."""

    def __init__(
        self,
        config: ConsoleConfig,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        make_host: Callable[..., ServiceHost] = ServiceHost,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._host = make_host(config, CONSOLE, self._clock, entropy=self._entropy)
        self._kafka = KafkaSessions(listener_settings(config.bootstrap, config.command_config), self._clock)
        self._decoder = decoder_of(config, self._clock)
        self._issuer = issuer_of(config, self._kafka, self._clock)
        self._http: aiohttp.ClientSession | None = None
        self._web: WebServer | None = None

    @property
    def address(self) -> str:
        """The address of the pages, `host:port`."""
        assert self._web is not None, "the console is not open"
        return self._web.address

    async def open(self) -> None:
        """Connect to everything, then listen."""
        config = self._config
        await self._host.open_http()
        await self._host.connect()
        await self._host.listen()
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PAGE_TIMEOUT_S))
        sequencers = self._host.sequencers(Sender.CONSOLE)
        surveyor = Surveyor(sequencers, self._clock)
        watch = ProcessWatch(
            self._host.directory,
            self._http,
            self._clock,
            token_file=config.http_token_file,
            supervisor_url=config.supervisor_url,
        )
        self._survey: Poll[Survey] = Poll("survey", surveyor.take, self._clock)
        self._processes: Poll[Reading] = Poll("processes", watch.read, self._clock)
        metrics = SurveyMetrics(self._survey.newest_wanted, self._is_reporter, config.metrics_topics_max)
        self._host.registry.register(metrics)
        sources = Sources(
            cluster=config.cluster,
            clock=self._clock,
            sequencers=sequencers,
            survey=self._survey,
            processes=self._processes,
            kafka=self._kafka,
            decoder=self._decoder,
            may_change=config.changes,
        )
        issuer = self._issuer
        self._web = WebServer(
            sources,
            Logins(self._kafka, self._clock, self._entropy, issuer=issuer, user_claim=config.oidc_user_claim),
            host=config.listen_host,
            port=config.listen_port,
            version=VERSION,
            host_names=tuple(each.strip().lower() for each in config.host_names.split(",") if each.strip()),
            has_secure_cookies=config.secure_cookies or config.public_url.startswith("https:"),
            flow=None if issuer is None else CodeFlow(issuer, self._clock, self._entropy),
        )
        await self._web.open()
        self._host.health.set_ready(True)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._survey.run())
            group.create_task(self._processes.run())
            group.create_task(self._kafka.run())
            self._host.start(group)

    async def drain(self) -> None:
        """Leave the list of instances."""
        await self._host.begin_drain()

    async def close(self) -> None:
        """Close all connections."""
        if self._web is not None:
            await self._web.close()
        await self._kafka.close()
        if self._http is not None:
            await self._http.close()
        await self._host.disconnect()
        await self._host.close_http()

    def _is_reporter(self) -> bool:
        """Whether this console reports topics and groups: of all consoles, the first by name does."""
        consoles = self._host.directory.live(CONSOLE)
        return not consoles or consoles[0].instance == self._config.instance


def decoder_of(config: ConsoleConfig, clock: Clock) -> Decoder | None:
    """The decoder of messages, None without a registry; `Invalid` if its address or a file of it is wrong."""
    if not config.schema_registry:
        return None
    address = parse_address(
        config.schema_registry, password_file=config.schema_registry_password_file, ca_file=config.schema_registry_ca
    )
    return Decoder(address, clock, SCHEMA_LIMITS)


def issuer_of(config: ConsoleConfig, kafka: KafkaSessions, clock: Clock) -> Issuer | None:
    """The issuer of logins by OpenID Connect, None without one; `Invalid` if its settings are not right."""
    if not config.oidc_issuer:
        return None
    if not kafka.needs_login:
        raise Invalid("an issuer needs a listener with logins: set PENSTOCK_COMMAND_CONFIG with a SASL protocol")
    settings = OpenIdSettings(
        issuer=config.oidc_issuer,
        client_id=config.oidc_client_id,
        client_secret=read_secret(config.oidc_client_secret_file),
        public_url=config.public_url,
        scope=config.oidc_scope,
        audience=config.oidc_audience,
        user_claim=config.oidc_user_claim,
    )
    return Issuer(checked(settings), clock)
