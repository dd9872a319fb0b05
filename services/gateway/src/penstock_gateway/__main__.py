"""Starts one gateway process."""

import os
import sys

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_gateway.config import GatewayConfig
from penstock_gateway.hosting import make_process


def main() -> int:
    """Run one gateway, or those of several clusters, until a signal stops it; return its exit code."""
    config = read_config(GatewayConfig, sys.argv[1:], os.environ, program="gateway")
    return run_app("gateway", config, lambda: make_process(config))


if __name__ == "__main__":
    sys.exit(main())
