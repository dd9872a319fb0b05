"""`penstock journal`: moves the journal to other NATS servers, or changes its copies, by a program of the sequencer."""

import argparse
import sys
from collections.abc import Callable, Sequence

from penstock.cli.command_line import NewParser, add_verbs
from penstock.cli.journal.program import check_is_installed, has_sequencer, program as sequencer_program, run_program
from penstock.cli.kafka.session import confirm
from penstock.cli.running import INTERRUPTED_EXIT_CODE
from penstock.contracts.errors import PenstockError
from penstock.runtime.nats.client import without_password


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock journal` with the command line."""
    parser = new_parser(
        description="Move the journal to other NATS servers, or change its copies. Settings that are not given come "
        "from PENSTOCK_... variables, as those of a sequencer.",
    )
    verbs = add_verbs(parser)
    move = verbs.add_parser(
        "move",
        help="move the journal with all entries to other NATS servers",
        description="Move the journal with all entries to other NATS servers. Clients wait from its last steps until "
        "all services run with the new address. An interrupted move continues when the command runs again.",
    )
    move.add_argument("--to", metavar="URL", required=True, help="the new NATS servers, separated by commas")
    move.add_argument("--to-env-file", metavar="FILE", default="", help="the login there (as at the old servers)")
    move.add_argument(
        "--replicas", metavar="N", default="", help="copies of the journal there (3 in a cluster, else 1)"
    )
    move.add_argument(
        "--remove-old", action="store_true", help="remove a journal that was moved away from there before"
    )
    replicas = verbs.add_parser(
        "replicas",
        help="change the copies of the journal at its NATS servers",
        description="Change the copies of the journal, and of the landing store, at their NATS servers. Clients do not "
        "notice it.",
    )
    replicas.add_argument("replicas", metavar="N", help="the number of copies; each needs a server of the cluster")
    for verb in (move, replicas):
        verb.add_argument("--nats-url", metavar="URL", default="", help="the present NATS servers")
        verb.add_argument("--store", metavar="URL", default="", help="the object store")
        verb.add_argument("--cluster", metavar="NAME", default="", help="the virtual cluster (default)")
        verb.add_argument("--dry-run", action="store_true", help="show what would be done, but change nothing")
        verb.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=run, to="", to_env_file="", remove_old=False)


def run(
    arguments: argparse.Namespace,
    *,
    program: Sequence[str] | None = None,
    is_installed: Callable[[], bool] = has_sequencer,
) -> int:
    """Show what will be done, ask, and do it; 0 if that succeeded, 1 with one sentence if not."""
    try:
        check_is_installed(is_installed=is_installed())
        command = program or sequencer_program("journal_move")
        options = {
            "nats-url": arguments.nats_url,
            "store-url": arguments.store,
            "cluster": arguments.cluster,
            "to-nats-url": arguments.to,
            "to-env-file": arguments.to_env_file,
            "copies": arguments.replicas,
            "remove-old": "true" if arguments.remove_old else "",
        }
        code = run_program(command, {**options, "dry-run": "true"})
        if code or arguments.dry_run:
            return code
        question = f"Move the journal to {without_password(arguments.to)}?" if arguments.to else "Change the copies?"
        confirm(question, is_confirmed=arguments.yes)
        return run_program(command, options)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
