"""The `penstock` command: `up` runs everything on one machine, other commands ask, mend or prepare a cluster.

One module or package per command; a command may import the modules that are no commands, and all libraries. Start with
`up`.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from penstock.cli import audit, bucket, credentials, export, janitor, rebuild, topic, up


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 not understood."""
    arguments = parse_arguments(argv)
    run = arguments.run
    return int(run(arguments))


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of one command; `run` is its function. Ends the process with 2 if they cannot be understood."""
    parser = argparse.ArgumentParser(prog="penstock", description="Kafka without disks.")
    parser.add_argument("--version", action="version", version=f"penstock {version('penstock')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (up, topic, export, audit, janitor, rebuild, credentials, bucket):
        command.add_parser(commands)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
