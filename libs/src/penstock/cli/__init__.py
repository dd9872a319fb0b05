"""The `penstock` command: `up` runs everything on one machine; other commands query, repair or prepare a cluster.

One module or package per command. A command may import all libraries, and the modules here that are no commands. Start
with `up`.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from penstock.cli import agent, audit, bucket, credentials, encryption, export, janitor, quota, rebuild, topic, up
from penstock.cli.security import acl, delegation_tokens, user

COMMANDS = (
    up,
    agent,
    topic,
    user,
    acl,
    delegation_tokens,
    quota,
    export,
    audit,
    janitor,
    rebuild,
    credentials,
    bucket,
    encryption,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 invalid flags."""
    arguments = parse_arguments(argv)
    run = arguments.run
    return int(run(arguments))


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of one command; `run` is its function. Ends the process with code 2 if they are invalid."""
    parser = argparse.ArgumentParser(prog="penstock", description="Kafka without disks.")
    parser.add_argument("--version", action="version", version=f"penstock {version('penstock')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
