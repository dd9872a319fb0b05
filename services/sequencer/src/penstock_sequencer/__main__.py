"""Starts a sequencer: `penstock-sequencer`, or `python -m penstock_sequencer`."""

import os
import sys
from functools import partial
from typing import Any

from penstock.clusters.guarded import GuardedApp
from penstock.clusters.hosting import HostedRole, HostingApp
from penstock.runtime.process.config import read_config
from penstock.runtime.process.garbage import LargeStatePolicy, PolicyOfAnother
from penstock.runtime.process.life import App, run_app
from penstock.runtime.process.memory import FREE_LARGE_BLOCKS
from penstock_sequencer.app import SequencerApp
from penstock_sequencer.config import SequencerConfig
from penstock_sequencer.custodian.fork_capture import capture_forked, capture_inline


def main() -> int:
    """Run one sequencer until a signal stops it; the exit code."""
    config = read_config(SequencerConfig, sys.argv[1:], os.environ, program="sequencer")
    return run_app("sequencer", config, lambda: make_process(config), malloc=FREE_LARGE_BLOCKS)


def make_process(config: SequencerConfig) -> App:
    """A sequencer, or several in one process, each for another cluster."""
    if not config.clusters:
        return make_app(config)
    return HostingApp(config, "sequencer", hosted(config))


def hosted(_config: SequencerConfig) -> HostedRole:
    """The sequencers of many clusters, with one policy of garbage collection."""
    return HostedRole(make=partial(make_sequencer, garbage=PolicyOfAnother()), garbage=LargeStatePolicy())


def make_app(config: SequencerConfig, **parts: Any) -> App:
    """The sequencer of one cluster, which ends when the cluster is deleted."""
    return GuardedApp(partial(make_sequencer, config, **parts), config)


def make_sequencer(config: SequencerConfig, **parts: Any) -> SequencerApp:
    """A sequencer that takes its snapshots in a child process where that is possible."""
    capture = capture_forked if sys.platform == "linux" else capture_inline
    return SequencerApp(config, capture=capture, **parts)


if __name__ == "__main__":
    sys.exit(main())
