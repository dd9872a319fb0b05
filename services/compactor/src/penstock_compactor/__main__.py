"""Runs one compactor process."""

import os
import sys

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_compactor.app import CompactorApp
from penstock_compactor.config import CompactorConfig


def main() -> int:
    """Read the settings, run the compactor, and return the exit code."""
    config = read_config(CompactorConfig, sys.argv[1:], os.environ, program="compactor")
    return run_app("compactor", config, lambda: CompactorApp(config))


if __name__ == "__main__":
    sys.exit(main())
