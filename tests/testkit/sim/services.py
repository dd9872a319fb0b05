"""Builds the real services for simulated processes, each from its own app."""

import random
from typing import Any, cast

from cacher.app import CacherApp
from cacher.config import CacherConfig
from flusher.app import FlusherApp
from flusher.config import FlusherConfig
from gateway.app import GatewayApp
from gateway.config import GatewayConfig
from gateway.connection import Connection
from gateway.listener import Listener
from penstock.runtime.process import App
from sequencer.app import SequencerApp
from sequencer.config import SequencerConfig
from tests.testkit.sim.process import MakeApp, Process
from tests.testkit.sim.sockets import PORT, Address, Network, SimListener

CLUSTER = "sim"


def gateway_address(process: Process) -> Address:
    """Where clients find a gateway, in every life of it."""
    return (process.name, PORT)


def _settings(process: Process, store_url: str) -> dict[str, Any]:
    return {"cluster": CLUSTER, "zone": process.zone, "instance": process.instance, "store_url": store_url}


def makers(network: Network, store_url: str, dice: random.Random) -> dict[str, MakeApp]:
    """By role, what builds its app; what may be set is chosen by lot where that finds more."""
    snapshots = {
        "snapshot_entries": dice.choice((20, 60, 50_000)),
        "snapshot_interval_ms": dice.choice((2_000, 5_000, 600_000)),
    }

    def gateway(process: Process, given: dict[str, Any]) -> App:
        host, port = gateway_address(process)
        config = GatewayConfig(**_settings(process, store_url), listeners=f"PLAINTEXT://{host}:{port}")

        def make_listener(spec: Any) -> Listener:
            address = gateway_address(process)
            name, loop = process.connection_name, process.loop
            return cast(Listener, SimListener(network, name, loop, spec.name, address, Connection))

        return GatewayApp(config, **given, make_listener=make_listener)

    return {
        "gateway": gateway,
        "flusher": lambda process, given: FlusherApp(FlusherConfig(**_settings(process, store_url)), **given),
        "cacher": lambda process, given: CacherApp(CacherConfig(**_settings(process, store_url)), **given),
        "sequencer": lambda process, given: SequencerApp(
            SequencerConfig(**_settings(process, store_url), journal_assurance="sync-always", **snapshots), **given
        ),
    }
