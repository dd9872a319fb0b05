"""Runs one flusher."""

import os
import sys

from flusher.app import FlusherApp
from flusher.config import FlusherConfig
from penstock.runtime.config import read_config
from penstock.runtime.process import run_app


def main() -> int:
    """The process, from its settings to its exit code."""
    config = read_config(FlusherConfig, sys.argv[1:], os.environ, program="flusher")
    return run_app("flusher", config, lambda: FlusherApp(config))


if __name__ == "__main__":
    sys.exit(main())
