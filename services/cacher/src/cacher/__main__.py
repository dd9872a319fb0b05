"""Runs one cacher."""

import os
import sys

from cacher.app import CacherApp
from cacher.config import CacherConfig
from penstock.runtime.config import read_config
from penstock.runtime.process import run_app


def main() -> int:
    """The process, from its settings to its exit code."""
    config = read_config(CacherConfig, sys.argv[1:], os.environ, program="cacher")
    return run_app("cacher", config, lambda: CacherApp(config))


if __name__ == "__main__":
    sys.exit(main())
