"""`penstock up`: runs a nats-server, every service and a console on one machine, until Ctrl-C.

May import the modules of `penstock.cli` except other commands. Start with `command`, then `supervisor`. It starts and
stops the `processes` and the `helpers` that `specs` describes.
"""

from penstock.cli.up.command import add_parser, run

__all__ = ["add_parser", "run"]
