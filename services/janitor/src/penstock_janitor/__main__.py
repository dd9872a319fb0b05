"""Runs one janitor."""

import os
import sys
from functools import partial
from typing import Any

from penstock.clusters.cleanup import Cleanup
from penstock.clusters.hosting import HostedRole, HostingApp, ProcessParts
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.process.config import ALL_CLUSTERS, read_config
from penstock.runtime.process.landing import needs_servers, without_landing
from penstock.runtime.process.life import App, run_app
from penstock_janitor.app import ROLE, JanitorApp
from penstock_janitor.config import JanitorConfig


def main() -> int:
    """Run the process from its settings to its exit code."""
    config = read_config(JanitorConfig, sys.argv[1:], os.environ, program="janitor")
    return run_app("janitor", config, lambda: make_process(config))


def make_process(config: JanitorConfig) -> App:
    """A janitor, or several in one process, each for another cluster."""
    if not config.clusters:
        return JanitorApp(config)
    return HostingApp(config, ROLE, hosted(config))


def hosted(config: JanitorConfig) -> HostedRole:
    """The janitors of many clusters, which also remove deleted clusters."""
    return HostedRole(make=make_janitor, upkeep=partial(clean_up, config))


def make_janitor(config: JanitorConfig, *, quotas: object, **parts: Any) -> JanitorApp:
    """The janitor of one cluster, which enforces no quotas."""
    return JanitorApp(config, **parts)


async def clean_up(config: JanitorConfig, parts: ProcessParts) -> None:
    """Remove deleted clusters, until cancelled."""
    has_own_landing = needs_servers(config.store_url)
    address = without_landing(config.store_url) if has_own_landing else config.store_url
    cleanup = Cleanup(
        watch=parts.watch,
        store=parts.store,
        connection=parts.connection,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        set_degraded=parts.set_degraded,
        address=address,
        has_own_landing=has_own_landing,
        is_wanted=lambda name: config.clusters == ALL_CLUSTERS or name in config.cluster_names,
        dry_run=config.dry_run,
    )
    await cleanup.run()


if __name__ == "__main__":
    sys.exit(main())
