"""Runs one compactor."""

import os
import sys

from compactor.app import CompactorApp
from compactor.config import CompactorConfig
from penstock.runtime.config import read_config
from penstock.runtime.process import run_app


def main() -> int:
    """The process, from its settings to its exit code."""
    config = read_config(CompactorConfig, sys.argv[1:], os.environ, program="compactor")
    return run_app("compactor", config, lambda: CompactorApp(config))


if __name__ == "__main__":
    sys.exit(main())
