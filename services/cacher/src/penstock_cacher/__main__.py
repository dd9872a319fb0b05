"""Runs one cacher process, for one or several clusters."""

import os
import sys
from typing import Any

from penstock.clusters.hosting import HostedRole, HostingApp
from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import App, run_app
from penstock_cacher.app import ROLE, CacherApp
from penstock_cacher.config import CacherConfig


def main() -> int:
    """Read the settings, run the cacher, and return the exit code."""
    config = read_config(CacherConfig, sys.argv[1:], os.environ, program="cacher")
    return run_app("cacher", config, lambda: make_process(config))


def make_process(config: CacherConfig) -> App:
    """A cacher, or several in one process, each for another cluster."""
    return HostingApp(config, ROLE, hosted(config)) if config.clusters else CacherApp(config)


def hosted(_config: CacherConfig) -> HostedRole:
    """The cachers of many clusters, which share nothing more than their process."""
    return HostedRole(make=make_cacher)


def make_cacher(config: CacherConfig, *, quotas: object, **parts: Any) -> CacherApp:
    """The cacher of one cluster, which enforces no quotas."""
    return CacherApp(config, **parts)


if __name__ == "__main__":
    sys.exit(main())
