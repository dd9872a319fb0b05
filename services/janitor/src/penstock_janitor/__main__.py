"""Runs one janitor."""

import os
import sys

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_janitor.app import JanitorApp
from penstock_janitor.config import JanitorConfig


def main() -> int:
    """Run the process from its settings to its exit code."""
    config = read_config(JanitorConfig, sys.argv[1:], os.environ, program="janitor")
    return run_app("janitor", config, lambda: JanitorApp(config))


if __name__ == "__main__":
    sys.exit(main())
