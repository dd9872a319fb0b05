"""`penstock agent`: runs several roles in one process, which pass requests to each other by calls.

May import the modules of `penstock.cli` except other commands. It imports no service: `roles` finds them by name, so
that they need not all be installed. Start with `command`, then `app`.
"""

import penstock.runtime.process  # noqa: F401  before all that import structlog
from penstock.cli.agent.command import add_parser, run

__all__ = ["add_parser", "run"]
