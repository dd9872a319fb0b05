"""Starts one gateway process."""

import os
import sys

from penstock.runtime.process.config import read_config
from penstock.runtime.process.life import run_app
from penstock_gateway.app import GatewayApp
from penstock_gateway.config import GatewayConfig


def main() -> int:
    """Run one gateway until a signal stops it; return its exit code."""
    config = read_config(GatewayConfig, sys.argv[1:], os.environ, program="gateway")
    return run_app("gateway", config, lambda: GatewayApp(config))


if __name__ == "__main__":
    sys.exit(main())
