"""The `penstock` command: `up` runs everything on one machine; other commands use, query or repair a cluster.

One module or package per command; `COMMANDS` names them. A command is imported when it is used, so that the help and
the version cost little. A command may import all libraries, and the modules here that are no commands. Commands for
topics, groups and records speak Kafka, by `kafka`. Commands for functions that only Penstock has speak NATS, by
`running`.
"""

import argparse
import os
import select
import sys
from collections.abc import Mapping, Sequence

from penstock.cli.command_line import Command, MainParser

COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "Run": {
        "up": Command("penstock.cli.up", "run everything on this machine"),
        "agent": Command("penstock.cli.agent", "run several roles in one process"),
        "demo": Command("penstock.cli.loads.demo", "write and read records, to have something to look at"),
    },
    "Use": {
        "topic": Command("penstock.cli.topics", "create, list, alter and delete topics; write and read records"),
        "group": Command("penstock.cli.groups", "list and describe groups, show their lag, reset offsets"),
        "txn": Command("penstock.cli.transactions.txn", "list, describe and abort transactions"),
        "producer": Command("penstock.cli.transactions.producer", "list the producers of a topic"),
        "cluster": Command("penstock.cli.clusters", "create, delete and describe virtual clusters"),
        "profile": Command("penstock.cli.profile", "keep addresses and logins of clusters under names"),
    },
    "Diagnose": {
        "status": Command("penstock.cli.diagnosis.status", "list the processes of a cluster and their problems"),
        "bench": Command("penstock.cli.loads.bench", "measure the time from a record to its consumer"),
        "explain": Command("penstock.cli.diagnosis.explain", "explain a record, or the latency of a cluster"),
        "doctor": Command("penstock.cli.diagnosis.doctor", "check a machine and a cluster, and say how to mend them"),
    },
    "Secure": {
        "user": Command("penstock.cli.security.user", "create, delete and list users"),
        "acl": Command("penstock.cli.security.acl", "add, remove and list access control lists"),
        "token": Command("penstock.cli.security.delegation_tokens", "create, renew, list and revoke delegation tokens"),
        "quota": Command("penstock.cli.security.quota", "set, remove and list client quotas"),
        "credentials": Command("penstock.cli.credentials", "create users and passwords for the services"),
        "encryption": Command("penstock.cli.encryption", "list the keys that objects are encrypted with"),
    },
    "Keep": {
        "export": Command("penstock.cli.export", "export a topic to Parquet or Iceberg"),
        "audit": Command("penstock.cli.audit", "check every object, record and checksum of a cluster"),
        "janitor": Command("penstock.cli.janitor", "ask a janitor why it keeps or deletes an object"),
        "journal": Command("penstock.cli.journal.moving", "move the journal to other NATS servers"),
        "rebuild": Command("penstock.cli.journal.rebuild", "rebuild a lost journal from the object store"),
        "bucket": Command("penstock.cli.bucket", "create the bucket of the store"),
        "completion": Command("penstock.cli.completion", "print the completion of commands for a shell"),
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 invalid flags, 130 interrupted."""
    words = sys.argv[1:] if argv is None else argv
    if list(words) == ["--version"]:
        return print_version()
    arguments = parse_arguments(words)
    run = arguments.run
    code = 0
    try:
        code = int(run(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        if not _is_reader_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest of the output
    return code


def _is_reader_gone() -> bool:
    """Whether no process reads the standard output any more, as after `penstock ... | head`."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # errors are always reported
    return bool(output.poll(0))


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The flags of one command; `run` is its function. Ends the process with code 2 if they are invalid."""
    is_completing = "_ARGCOMPLETE" in os.environ
    words = os.environ.get("COMP_LINE", "").split()[1:] if is_completing else argv
    parser = MainParser(COMMANDS, next((word for word in words if not word.startswith("-")), ""))
    if is_completing:
        import argcomplete  # a shell asks for completions

        argcomplete.autocomplete(parser)
    return parser.parse_args(argv)


def print_version() -> int:
    """Print the version, the commit if it is known, and the levels of the journal that this version reads."""
    from penstock.contracts.newest_level import NEWEST_LEVEL
    from penstock.version import VERSION, find_commit

    commit = find_commit()
    print(f"penstock {VERSION}", *[f"commit {commit}"] * bool(commit), f"journal levels 0 to {NEWEST_LEVEL}", sep=", ")
    return 0
