"""Runs one cacher process."""

import os
import sys

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_cacher.app import CacherApp
from penstock_cacher.config import CacherConfig


def main() -> int:
    """Read the settings, run the cacher, and return the exit code."""
    config = read_config(CacherConfig, sys.argv[1:], os.environ, program="cacher")
    return run_app("cacher", config, lambda: CacherApp(config))


if __name__ == "__main__":
    sys.exit(main())
