"""The specifications of the processes of `penstock up`: program, settings and log file of each."""

import os
import sys
from collections.abc import Sequence

from penstock.cli.children import ChildSpec
from penstock.cli.data_folder import write_client_file
from penstock.cli.ports import Address, own_address
from penstock.cli.running import TLS_SETTINGS
from penstock.cli.spark_python import is_installed
from penstock.cli.up.limits import DEFAULT_LIMITS, UpLimits
from penstock.cli.up.options import MoreCluster, UpOptions
from penstock.cli.up.secure import SecureFiles
from penstock.runtime.clock import Entropy, SystemEntropy
from penstock.runtime.nats.server import find_nats_server, write_config

ZONE = "local"
NATS_USER = "up"
PASSWORD_BYTES = 32
CONSOLE = "console"
AGENT = "agent"  # a process that is gateway, flusher and cacher in one, and perhaps the sequencer
HELPERS = ("janitor", "compactor")
# With --small: the limits of segments that memory keeps for readers. Little is enough for a store on this machine.
SMALL_SETTINGS = {"RECENT_BYTES_MAX": str(32 * 2**20), "CACHE_BYTES_MAX": str(16 * 2**20)}
LOW_PRIORITY = ("nice", "-n", "19")  # for compactors: services get the processor first (ADR 0043)


class Specs:
    """The processes for a set of options."""

    def __init__(
        self,
        options: UpOptions,
        nats_port: int,
        monitor_port: int,
        console_port: int = 0,
        *,
        limits: UpLimits = DEFAULT_LIMITS,
        secure: SecureFiles | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self._options = options
        self._limits = limits
        self._secure = secure
        self._monitor_port = monitor_port
        self.console_port = console_port
        self.nats_password = f"k{(entropy or SystemEntropy()).take(PASSWORD_BYTES).hex()}"  # another at each start
        self.nats_address = Address("127.0.0.1", nats_port)

    def nats(self) -> ChildSpec:
        """The nats-server; this also writes its settings file, and the one for its clients."""
        folder = self._options.data / "nats"
        config = folder / "nats-server.conf"
        log_path = self._options.data / "logs" / "nats-server.log"
        write_config(
            config,
            store_dir=folder / "jetstream",
            host=self.nats_address.host,
            port=self.nats_address.port,
            monitor_port=self._monitor_port,
            user=NATS_USER,
            password=self.nats_password,
            log_path=log_path.absolute(),
            log_bytes_max=self._limits.children.log_bytes_max,
        )
        write_client_file(folder, f"nats://{self.nats_address}", NATS_USER, self.nats_password)
        return ChildSpec(
            name="nats-server",
            argv=[str(find_nats_server()), "--config", str(config)],
            env=dict(os.environ),
            log_path=log_path,
        )

    def services(self, role: str) -> list[ChildSpec]:
        """All instances of a service."""
        return self._all_of(role, (sys.executable,))

    def helpers(self, role: str, python: str) -> list[ChildSpec]:
        """All instances of a helper; compactors have a low priority."""
        priority = LOW_PRIORITY if role == "compactor" else ()
        return self._all_of(role, (*priority, python))

    def console(self) -> ChildSpec:
        """The console; its first page starts it."""
        return self._spec(CONSOLE, 0, (sys.executable,))

    def count(self, role: str) -> int:
        """The number of processes of a service or helper in the options."""
        if role in HELPERS and self._options.is_small:
            return 0  # they are roles of the agent
        count: int = getattr(self._options, f"{role}s")
        return count

    def _all_of(self, role: str, program: Sequence[str]) -> list[ChildSpec]:
        return [self._spec(role, index, program) for index in range(self.count(role))]

    def _spec(self, role: str, index: int, program: Sequence[str]) -> ChildSpec:
        name = f"{role}-{index + 1}"
        settings = {
            "CLUSTER": self._options.cluster,
            "CLUSTERS": self._clusters,
            "ZONE": ZONE,
            "NATS_URL": f"nats://{self.nats_address}",
            "NATS_USER": NATS_USER,
            "NATS_PASSWORD": self.nats_password,
            **dict.fromkeys(TLS_SETTINGS, ""),  # the server listens on loopback, without TLS
            "HTTP_TOKEN_FILE": self._options.http_token_file,
            "HTTP_HOST": "127.0.0.1",  # only `penstock up` itself has an address that others know
            "HTTP_PORT": "0",
            "STORE_URL": self._options.store,
            "DRAIN_DEADLINE_MS": str(self._limits.drain_deadline_ms),
            "PARENT_PID": str(os.getpid()),
            **self._settings_of(role),
        }
        return ChildSpec(
            name=name,
            argv=[*program, "-m", *self._module(role)],
            env=os.environ | {f"PENSTOCK_{key}": value for key, value in settings.items()},
            log_path=self._options.data / "logs" / f"{name}.log",
            roles=self._agent_roles if role == AGENT else (role,),
        )

    @property
    def _agent_roles(self) -> tuple[str, ...]:
        options = self._options
        first = () if options.sequencers else ("sequencer",)
        if not options.is_small:
            return (*first, "flusher", "cacher", "gateway")
        helpers = [role for role in HELPERS if getattr(options, f"{role}s") and is_installed(f"penstock_{role}")]
        return (*first, "flusher", "cacher", *helpers, "gateway")

    @property
    def _clusters(self) -> str:
        """The setting `clusters`; "" if there is one cluster."""
        more = [each.name for each in self._options.more_clusters]
        return ",".join([self._options.cluster, *more]) if more else ""

    def _listeners_of_clusters(self) -> dict[str, str]:
        """The settings of a gateway with a listener for each cluster."""
        options = self._options
        first = MoreCluster(options.cluster, options.kafka, options.advertised)
        listeners = {f"CLUSTER{number}": each for number, each in enumerate((first, *options.more_clusters), 1)}
        return {
            "LISTENERS": ",".join(f"{name}://{each.kafka}" for name, each in listeners.items()),
            "ADVERTISED_LISTENERS": ",".join(
                f"{name}://{each.advertised}" for name, each in listeners.items() if each.advertised is not None
            ),
            "LISTENER_SECURITY_PROTOCOL_MAP": ",".join(f"{name}:PLAINTEXT" for name in listeners),
            "LISTENER_CLUSTERS": ",".join(f"{name}={each.name}" for name, each in listeners.items()),
        }

    def _module(self, role: str) -> list[str]:
        if role == AGENT:
            return ["penstock.cli", "agent", "--roles", ",".join(self._agent_roles)]
        return [f"penstock_{role}"]

    def _settings_of(self, role: str) -> dict[str, str]:
        if role == AGENT:
            settings = SMALL_SETTINGS if self._options.is_small else {}
            return settings | {k: value for each in self._agent_roles for k, value in self._settings_of(each).items()}
        if role == "gateway":
            advertised = self._options.advertised
            if self._options.more_clusters:
                return self._listeners_of_clusters()
            if self._secure is not None:
                return self._secure.gateway_settings(self._options.kafka, advertised)
            return {
                "LISTENERS": f"PLAINTEXT://{self._options.kafka}",
                "ADVERTISED_LISTENERS": f"PLAINTEXT://{advertised}" if advertised is not None else "",
            }
        if role == "flusher":
            return {"FLUSH_INTERVAL_MS": str(self._options.flush_ms)}
        if role == CONSOLE:
            return {
                "LISTEN_HOST": "127.0.0.1",
                "LISTEN_PORT": str(self.console_port),
                "BOOTSTRAP": str(own_address(self._options.kafka)),
                "COMMAND_CONFIG": str(self._secure.properties) if self._secure is not None else "",
                "CHANGES": str(self._options.has_console_changes).lower(),
                "SUPERVISOR_URL": f"http://{own_address(self._options.http)}",
            }
        if role == "sequencer":
            return {"NATS_MONITOR_URL": f"http://127.0.0.1:{self._monitor_port}"}
        return {}
