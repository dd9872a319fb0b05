"""`penstock up`: runs a nats-server, every service and a console on one machine, until Ctrl-C.

May import the modules of `penstock.cli` except other commands; `hosted` imports `agent`, whose process it replaces.
Start with `command`, then `supervisor`. It starts and stops the `processes` and the `helpers` that `specs` describes.
"""

import penstock.runtime.process  # noqa: F401  before all that import structlog
from penstock.cli.up.command import add_parser, run

__all__ = ["add_parser", "run"]
