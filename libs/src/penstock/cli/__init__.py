"""The `penstock` command: `up` runs everything on one machine, `rebuild` mends it, others prepare for containers."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from penstock.cli import audit, bucket, credentials, export, janitor, rebuild, topic, up


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 not understood."""
    parser = argparse.ArgumentParser(prog="penstock", description="Kafka without disks.")
    parser.add_argument("--version", action="version", version=f"penstock {version('penstock')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (up, topic, export, audit, janitor, rebuild, credentials, bucket):
        command.add_parser(commands)
    arguments = parser.parse_args(argv)
    run = arguments.run
    return int(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
