"""Starts a sequencer: `penstock-sequencer`, or `python -m penstock_sequencer`."""

import os
import sys
from typing import Any

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock.runtime.process.memory import FREE_LARGE_BLOCKS
from penstock_sequencer.app import SequencerApp
from penstock_sequencer.config import SequencerConfig
from penstock_sequencer.custodian.fork_capture import capture_forked, capture_inline


def main() -> int:
    """Run one sequencer until a signal stops it; the exit code."""
    config = read_config(SequencerConfig, sys.argv[1:], os.environ, program="sequencer")
    return run_app("sequencer", config, lambda: make_app(config), malloc=FREE_LARGE_BLOCKS)


def make_app(config: SequencerConfig, **parts: Any) -> SequencerApp:
    """A sequencer that takes its snapshots in a child process where that is possible."""
    capture = capture_forked if sys.platform == "linux" else capture_inline
    return SequencerApp(config, capture=capture, **parts)


if __name__ == "__main__":
    sys.exit(main())
