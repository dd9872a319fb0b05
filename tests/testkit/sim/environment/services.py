"""Builds the real services for simulated processes, each from its own app."""

import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from penstock.cli.agent.app import AgentApp
from penstock.clusters.hosted import HostingLimits
from penstock.clusters.hosting import HostedRole, HostingApp
from penstock.runtime.process.life import App
from penstock.runtime.process.shared_host import instance_of
from penstock_cacher.app import CacherApp
from penstock_cacher.config import CacherConfig
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
from penstock_sequencer.replication.replica import Apply
from penstock_sequencer.service import Sequencer
from tests.testkit.sim.environment.process import AGENT, MakeApp, Process
from tests.testkit.sim.environment.shared import NEIGHBOUR
from tests.testkit.sim.environment.sockets import PORT, Address, Network, SimListener
from tests.testkit.sim.length import Length

CLUSTER = "sim"
RETENTION_INTERVAL_MS = 700
REAP_INTERVAL_MS = 600
JANITOR_LEASE_MS = 3_000
HOSTING_LIMITS = HostingLimits(first_pause_s=0.2, pause_max_s=2.0)


class NoCollection:
    """`GarbagePolicy` that changes nothing: the real one is for a single process with a large state."""

    def start(self) -> None:
        """Do nothing."""

    async def run(self) -> None:
        """Do nothing."""


class HostingSequencers(HostingApp):
    """A sequencer process for both clusters of a run."""

    def __init__(self, config: SequencerConfig, parts: dict[str, Any], apply: Mapping[str, Apply]) -> None:
        def make(own: SequencerConfig, **more: Any) -> SequencerApp:
            return SequencerApp(own, **parts | more, apply=apply[own.cluster])

        hosting = msgspec.structs.replace(config, clusters=",".join(apply))
        make_shared = parts["make_host"].shared
        given = {name: parts[name] for name in ("clock", "entropy", "open_store")}
        quiet = {"collect": lambda: None, "freeze": lambda: None}
        super().__init__(
            hosting,
            "sequencer",
            HostedRole(make=make),
            make_shared=make_shared,
            limits=HOSTING_LIMITS,
            **given,
            **quiet,
        )

    @property
    def sequencer(self) -> Sequencer | None:
        """The replica of the usual cluster; None while it starts."""
        hosted = self.hosted.get(CLUSTER)
        app = hosted.app if hosted is not None else None
        return app.sequencer if isinstance(app, SequencerApp) else None


def counts_of(*, has_agents: bool) -> dict[str, int]:
    """The number of processes of each kind."""
    return {"sequencer": 3, AGENT: 2} if has_agents else {"sequencer": 3, "flusher": 2, "cacher": 1, "gateway": 2}


def gateway_address(process: Process) -> Address:
    """The address of a gateway, over all its restarts."""
    return (process.name, PORT)


def _settings(process: Process, role: str, store_url: str) -> dict[str, Any]:
    instance = process.instance if len(process.roles) == 1 else instance_of(process.instance, role)
    return {"cluster": CLUSTER, "zone": process.zone, "instance": instance, "store_url": store_url}


def app_factories(
    *,
    network: Network,
    store_url: str,
    dice: random.Random,
    known_level: Callable[[Process], int],
    grace_ms: int,
    length: Length,
    apply: Apply,
    neighbour_apply: Apply | None = None,
) -> dict[str, MakeApp]:
    """The function for each role that builds its app; some settings are random, as that finds more faults.

    `known_level` is the level of a sequencer's release; `apply` is the state machine. Janitors wait for seconds
    instead of minutes and hours. With `neighbour_apply`, sequencers also host the cluster NEIGHBOUR.
    """
    limits = length.services
    snapshots = {
        "snapshot_entries": dice.choice(length.snapshot_entries),
        "snapshot_interval_ms": dice.choice(length.snapshot_intervals_ms),
    }

    def gateway(process: Process, given: dict[str, Any]) -> App:
        host, port = gateway_address(process)
        config = GatewayConfig(
            **_settings(process, "gateway", store_url),
            listeners=f"PLAINTEXT://{host}:{port}",
            share_groups=True,
            audit=length.audit,
        )

        def make_listener(spec: Any, _tls: Any) -> Listener:
            address = gateway_address(process)
            name, loop = process.connection_name, process.loop
            return cast(Listener, SimListener(network, name, loop, spec.name, address, Connection))

        return GatewayApp(config, **given, make_listener=make_listener, limits=limits.gateway, garbage=NoCollection())

    def sequencer(process: Process, given: dict[str, Any]) -> App:
        settings = _settings(process, "sequencer", store_url)
        config = SequencerConfig(**settings, journal_assurance="sync-always", **snapshots)
        process.known_level = known_level(process)
        parts = given | {
            "known_level": process.known_level,
            "garbage": NoCollection(),
            "limits": limits.sequencer,
        }
        if neighbour_apply is None:
            return SequencerApp(config, **parts, apply=apply)
        return HostingSequencers(config, parts, {CLUSTER: apply, NEIGHBOUR: neighbour_apply})

    def janitor(process: Process, given: dict[str, Any]) -> App:
        config = JanitorConfig(
            **_settings(process, "janitor", store_url),
            grace_ms=grace_ms,
            retention_interval_ms=RETENTION_INTERVAL_MS,
            reap_interval_ms=REAP_INTERVAL_MS,
            sweep_interval_ms=length.sweep_interval_ms,
            lease_ms=JANITOR_LEASE_MS,
        )
        return JanitorApp(config, **given, limits=limits.janitor)

    def flusher(process: Process, given: dict[str, Any]) -> App:
        return FlusherApp(FlusherConfig(**_settings(process, "flusher", store_url)), **given)

    def cacher(process: Process, given: dict[str, Any]) -> App:
        return CacherApp(CacherConfig(**_settings(process, "cacher", store_url)), **given)

    made = {"gateway": gateway, "flusher": flusher, "cacher": cacher, "sequencer": sequencer, "janitor": janitor}

    def agent(process: Process, given: dict[str, Any]) -> App:
        host_of = given["make_host"].share(process.instance)
        return AgentApp([(role, made[role](process, given | {"make_host": host_of(role)})) for role in process.roles])

    return made | {AGENT: agent}
