"""Builds the processes of a deployment, each of which hosts all virtual clusters."""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from penstock.clusters.cleanup import Cleanup, CleanupLimits
from penstock.clusters.hosted import HostingLimits
from penstock.clusters.hosting import HostedRole, HostingApp, ProcessParts
from penstock.contracts.ids import DEFAULT_POOL
from penstock.runtime.process.config import ALL_CLUSTERS
from penstock.runtime.process.life import App
from penstock_flusher.app import FlusherApp
from penstock_flusher.config import FlusherConfig
from penstock_gateway.app import GatewayApp
from penstock_gateway.config import GatewayConfig
from penstock_gateway.server.connection import Connection
from penstock_gateway.server.listener import Listener
from penstock_janitor.app import JanitorApp
from penstock_janitor.config import JanitorConfig
from penstock_sequencer.app import SequencerApp
from penstock_sequencer.config import SequencerConfig
from tests.testkit.sim.environment.process import MakeApp, Process
from tests.testkit.sim.environment.services import JANITOR_LEASE_MS, NoCollection
from tests.testkit.sim.environment.sockets import PORT, Address, Network, SimListener
from tests.testkit.sim.length import Length

STORE_URL = "s3://simulated/bucket"
COUNTS = {"sequencer": 2, "flusher": 2, "gateway": 2, "janitor": 2}
POOLS = (DEFAULT_POOL, "analytics")  # of the processes with these numbers
HOSTING = HostingLimits(first_pause_s=0.2, pause_max_s=2.0, start_s_max=3.0, watch_interval_s=0.7)
# No request of these runs takes longer than the rest, and no process is stopped for so long.
CLEANUP = CleanupLimits(interval_s=1.0, rest_ms=40_000, page_objects=3, answer_timeout_s=0.5, check_life_s=3.0)
GRACE_MS = 1_500
JANITOR_INTERVAL_MS = 3_000
SNAPSHOT_ENTRIES = 30
SNAPSHOT_INTERVAL_MS = 2_500


def pool_of(process: str) -> str:
    """The pool of a gateway or flusher, by its name."""
    return POOLS[int(process.split("-")[1])]


def address_of(process: str, place: int) -> Address:
    """The address of a gateway's listener for the cluster at this place in the list of all clusters."""
    return (process, PORT + place)


class Services:
    """Makes the apps of a deployment."""

    def __init__(self, network: Network, clusters: tuple[str, ...], length: Length) -> None:
        self._network = network
        self._clusters = clusters
        self._length = length

    @property
    def factories(self) -> dict[str, MakeApp]:
        """The function for each role that builds its app."""
        made = {"sequencer": self._sequencer, "flusher": self._flusher, "gateway": self._gateway}
        return made | {"janitor": self._janitor}

    def _sequencer(self, process: Process, given: dict[str, Any]) -> App:
        config = SequencerConfig(
            **_settings(process),
            journal_assurance="sync-always",
            snapshot_entries=SNAPSHOT_ENTRIES,
            snapshot_interval_ms=SNAPSHOT_INTERVAL_MS,
        )
        limits = self._length.services.sequencer

        def make(own: SequencerConfig, **parts: Any) -> SequencerApp:
            return SequencerApp(own, **_own_parts(given) | parts, garbage=NoCollection(), limits=limits)

        return _hosting(config, "sequencer", make, given)

    def _flusher(self, process: Process, given: dict[str, Any]) -> App:
        config = FlusherConfig(**_settings(process), pool=pool_of(process.name))

        def make(own: FlusherConfig, *, quotas: object, **parts: Any) -> FlusherApp:
            return FlusherApp(own, **_own_parts(given) | parts)

        return _hosting(config, "flusher", make, given)

    def _gateway(self, process: Process, given: dict[str, Any]) -> App:
        listeners = f"PLAINTEXT://{process.name}:{PORT}"
        config = GatewayConfig(**_settings(process), pool=pool_of(process.name), listeners=listeners, audit="off")

        def make(own: GatewayConfig, *, quotas: object, **parts: Any) -> GatewayApp:
            host, port = address = address_of(process.name, self._clusters.index(own.cluster))
            own = msgspec.structs.replace(own, listeners=f"PLAINTEXT://{host}:{port}")

            def make_listener(spec: Any, _tls: Any) -> Listener:
                name, loop = process.connection_name, process.loop
                return cast(Listener, SimListener(self._network, name, loop, spec.name, address, Connection))

            parts = _own_parts(given) | parts
            limits = self._length.services.gateway
            return GatewayApp(own, **parts, make_listener=make_listener, limits=limits, garbage=NoCollection())

        return _hosting(config, "gateway", make, given)

    def _janitor(self, process: Process, given: dict[str, Any]) -> App:
        config = JanitorConfig(
            **_settings(process),
            grace_ms=GRACE_MS,
            retention_interval_ms=JANITOR_INTERVAL_MS,
            reap_interval_ms=JANITOR_INTERVAL_MS,
            sweep_interval_ms=JANITOR_INTERVAL_MS,
            lease_ms=JANITOR_LEASE_MS,
        )

        def make(own: JanitorConfig, *, quotas: object, **parts: Any) -> JanitorApp:
            return JanitorApp(own, **_own_parts(given) | parts, limits=self._length.services.janitor)

        async def clean_up(parts: ProcessParts) -> None:
            cleanup = Cleanup(
                watch=parts.watch,
                store=parts.store,
                connection=parts.connection,
                clock=given["clock"],
                entropy=given["entropy"],
                set_degraded=parts.set_degraded,
                address=STORE_URL,
                has_own_landing=False,
                is_wanted=lambda name: True,
                open_store=given["open_store"],
                limits=CLEANUP,
            )
            await cleanup.run()

        return _hosting(config, "janitor", make, given, upkeep=clean_up)


def _settings(process: Process) -> dict[str, Any]:
    return {"clusters": ALL_CLUSTERS, "zone": process.zone, "instance": process.instance, "store_url": STORE_URL}


def _own_parts(given: dict[str, Any]) -> dict[str, Any]:
    """The parts that the app of each cluster gets from its process."""
    return {name: given[name] for name in ("clock", "entropy", "open_store")}


def _hosting(config: Any, role: str, make: Callable[..., App], given: dict[str, Any], **more: Any) -> App:
    quiet = {"collect": lambda: None, "freeze": lambda: None}
    shared = {"make_shared": given["make_host"].shared, "limits": HOSTING}
    hosted = HostedRole(make=make, **more)
    return HostingApp(config, role, hosted, **_own_parts(given), **shared, **quiet)
