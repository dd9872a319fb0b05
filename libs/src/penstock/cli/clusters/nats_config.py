"""`penstock cluster nats-config`: the NATS users of several clusters, so that no service of one reaches another."""

import argparse
from typing import Any

from penstock.cli.running import run
from penstock.contracts.ids import check_token


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "nats-config",
        help="print the NATS users of clusters, each with the subjects of its cluster only",
        description="Print a file for nats-server. Each cluster has the users gateway-NAME, flusher-NAME, cacher-NAME, "
        "agent-NAME, console-NAME and admin-NAME. The users sequencer, janitor and compactor are for processes that "
        "host all clusters. Passwords are variables of the server's environment.",
    )
    verb.add_argument("names", nargs="+", metavar="NAME", help="names of clusters")
    verb.add_argument("--landing", action="store_true", help="let the users read and write the landing store, too")
    verb.set_defaults(run=run, run_verb=_print)


async def _print(arguments: argparse.Namespace) -> str:
    from penstock.cli.credentials.nats_accounts import accounts_of_clusters

    names = [check_token("cluster", name) for name in dict.fromkeys(arguments.names)]
    return accounts_of_clusters(names, with_landing=arguments.landing).rstrip()
