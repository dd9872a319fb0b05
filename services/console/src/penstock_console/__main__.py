"""Runs one console."""

import os
import sys

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_console.app import ConsoleApp
from penstock_console.config import ConsoleConfig


def main() -> int:
    """Run the process from its settings to its exit code."""
    config = read_config(ConsoleConfig, sys.argv[1:], os.environ, program="console")
    return run_app("console", config, lambda: ConsoleApp(config))


if __name__ == "__main__":
    sys.exit(main())
