"""Runs one compactor process, for one or several clusters."""

import os
import sys
from typing import Any

from prometheus_client import CollectorRegistry

from penstock.clusters.hosting import HostedRole, HostingApp, ProcessParts
from penstock.runtime.clock import SystemClock
from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import App, run_app
from penstock_compactor.app import ROLE, CompactorApp
from penstock_compactor.config import CompactorConfig
from penstock_compactor.shared import SharedWork


def main() -> int:
    """Read the settings, run the compactor, and return the exit code."""
    config = read_config(CompactorConfig, sys.argv[1:], os.environ, program="compactor")
    return run_app("compactor", config, lambda: make_process(config))


def make_process(config: CompactorConfig) -> App:
    """A compactor, or several in one process, each for another cluster."""
    return HostingApp(config, ROLE, hosted(config)) if config.clusters else CompactorApp(config)


def hosted(config: CompactorConfig) -> HostedRole:
    """The compactors of many clusters, which share a Spark session and the slots for jobs."""
    registry = CollectorRegistry()
    shared = SharedWork(config, SystemClock(), registry)

    def make(own: CompactorConfig, *, quotas: object, **parts: Any) -> CompactorApp:
        return CompactorApp(own, **parts, shared=shared)

    async def show_metrics(parts: ProcessParts) -> None:
        parts.registry.register(registry)

    return HostedRole(make=make, upkeep=show_metrics, close=shared.close)


if __name__ == "__main__":
    sys.exit(main())
