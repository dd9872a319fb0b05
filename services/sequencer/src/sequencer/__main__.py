"""Starts a sequencer: `penstock-sequencer`, or `python -m sequencer`."""

import os
import sys

from penstock.runtime.config import read_config
from penstock.runtime.process import run_app
from sequencer.app import SequencerApp
from sequencer.capture import capture_forked, capture_inline
from sequencer.config import SequencerConfig


def main() -> int:
    """Run one sequencer until it is told to stop; the exit code."""
    config = read_config(SequencerConfig, sys.argv[1:], os.environ, program="sequencer")
    capture = capture_forked if sys.platform == "linux" else capture_inline
    return run_app("sequencer", config, lambda: SequencerApp(config, capture=capture))


if __name__ == "__main__":
    sys.exit(main())
