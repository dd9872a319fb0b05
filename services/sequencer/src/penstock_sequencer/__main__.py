"""Starts a sequencer: `penstock-sequencer`, or `python -m penstock_sequencer`."""

import os
import sys

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_sequencer.app import SequencerApp
from penstock_sequencer.config import SequencerConfig
from penstock_sequencer.custodian.fork_capture import capture_forked, capture_inline


def main() -> int:
    """Run one sequencer until a signal stops it; the exit code."""
    config = read_config(SequencerConfig, sys.argv[1:], os.environ, program="sequencer")
    capture = capture_forked if sys.platform == "linux" else capture_inline
    return run_app("sequencer", config, lambda: SequencerApp(config, capture=capture))


if __name__ == "__main__":
    sys.exit(main())
