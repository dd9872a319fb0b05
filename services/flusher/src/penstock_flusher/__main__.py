"""Runs one flusher process, for one or several clusters."""

import os
import sys
from typing import Any

from penstock.clusters.hosting import HostedRole, HostingApp
from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import App, run_app
from penstock_flusher.app import ROLE, FlusherApp
from penstock_flusher.config import FlusherConfig


def main() -> int:
    """Read the settings, run the flusher, and return the exit code."""
    config = read_config(FlusherConfig, sys.argv[1:], os.environ, program="flusher")
    return run_app("flusher", config, lambda: make_process(config))


def make_process(config: FlusherConfig) -> App:
    """A flusher, or several in one process, each for another cluster."""
    return HostingApp(config, ROLE, hosted(config)) if config.clusters else FlusherApp(config)


def hosted(_config: FlusherConfig) -> HostedRole:
    """The flushers of many clusters, which share nothing more than their process."""
    return HostedRole(make=make_flusher)


def make_flusher(config: FlusherConfig, *, quotas: object, **parts: Any) -> FlusherApp:
    """The flusher of one cluster, which enforces no quotas."""
    return FlusherApp(config, **parts)


if __name__ == "__main__":
    sys.exit(main())
