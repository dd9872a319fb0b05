"""Runs one janitor."""

import os
import sys

from janitor.app import JanitorApp
from janitor.config import JanitorConfig
from penstock.runtime.config import read_config
from penstock.runtime.process import run_app


def main() -> int:
    """The process, from its settings to its exit code."""
    config = read_config(JanitorConfig, sys.argv[1:], os.environ, program="janitor")
    return run_app("janitor", config, lambda: JanitorApp(config))


if __name__ == "__main__":
    sys.exit(main())
