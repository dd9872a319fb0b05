"""How the commands for security reach a cluster: over NATS without a login, or over Kafka with one.

A flag of a Kafka listener (`--bootstrap`, `--profile` or `--command-config`) selects Kafka. Variables and the current
profile do not: without a flag the commands work even if no login does.
"""

import argparse
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from penstock.cli.kafka.session import connected
from penstock.cli.kafka.settings import add_kafka_flags
from penstock.cli.output import add_output_flag
from penstock.cli.running import DATA_DEFAULT, add_cluster_flags, read_cluster, run
from penstock.cli.security.administration import SecurityAdmin
from penstock.cli.security.client import connected_security
from penstock.cli.security.over_nats import NatsAdmin
from penstock.contracts.errors import Invalid

if TYPE_CHECKING:
    from penstock.cli.security.over_kafka import KafkaAdmin

TRANSPORT_HELP = (
    "Without a flag of a Kafka listener the command speaks NATS, and needs no login. "
    "With --bootstrap, --profile or --command-config it speaks Kafka, with the rights of that login."
)


def add_admin_flags(verb: argparse.ArgumentParser, *, is_change: bool) -> None:
    """Add the flags for the cluster and the result, and for a change its preview."""
    if is_change:
        verb.add_argument("--dry-run", action="store_true", help="only check, and show what would change")
    add_output_flag(verb)
    add_cluster_flags(verb, with_store=False)
    add_kafka_flags(verb)
    verb.epilog = TRANSPORT_HELP
    verb.set_defaults(run=run)


def is_over_kafka(arguments: argparse.Namespace) -> bool:
    """Whether the flags name a Kafka listener; `Invalid` if they name NATS, too."""
    has_kafka = bool(arguments.bootstrap or arguments.profile or arguments.command_config)
    has_nats = bool(arguments.nats_url or arguments.env_file or arguments.cluster or arguments.data != DATA_DEFAULT)
    if has_kafka and has_nats:
        raise Invalid("the flags name a Kafka listener and NATS: --data, --nats-url, --cluster and --env-file are NATS")
    return has_kafka


@asynccontextmanager
async def connected_admin(arguments: argparse.Namespace) -> AsyncIterator[SecurityAdmin]:
    """The security of the cluster that the flags name, for the length of a block."""
    if is_over_kafka(arguments):
        with connected_gateway(arguments) as admin:
            yield admin
    else:
        async with connected_security(read_cluster(arguments), f"penstock-{arguments.command}") as client:
            yield NatsAdmin(client)


@contextmanager
def connected_gateway(arguments: argparse.Namespace) -> Iterator["KafkaAdmin"]:
    """The security of the cluster over Kafka only; `Invalid` if the flags name no Kafka listener."""
    if not is_over_kafka(arguments):
        words = f"penstock {arguments.command} {arguments.verb}"
        raise Invalid(f"`{words}` needs a Kafka listener: give --command-config, --profile or --bootstrap")
    from penstock.cli.security.over_kafka import KafkaAdmin

    with connected(arguments) as session:
        yield KafkaAdmin(session)
