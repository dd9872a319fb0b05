"""Runs one flusher process."""

import os
import sys

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_flusher.app import FlusherApp
from penstock_flusher.config import FlusherConfig


def main() -> int:
    """Read the settings, run the flusher, and return the exit code."""
    config = read_config(FlusherConfig, sys.argv[1:], os.environ, program="flusher")
    return run_app("flusher", config, lambda: FlusherApp(config))


if __name__ == "__main__":
    sys.exit(main())
