"""`penstock doctor`: checks a machine and a cluster, and describes how to mend each problem."""

import argparse
import os
from pathlib import Path

from penstock.cli.command_line import NewParser
from penstock.cli.output import Listing, add_output_flag
from penstock.cli.running import add_cluster_flags, read_cluster, run
from penstock.contracts.errors import Invalid, PenstockError


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock doctor` with the command line."""
    parser = new_parser(
        description="Check this machine, if it runs the cluster of --data, and the cluster itself: programs, disk, "
        "ports, the verbs of the store, clocks, the journal, all processes, and the addresses of gateways. Each line "
        "has a mark, and how to mend a problem. The check of the store writes one small object and deletes it. The "
        "exit code is 1 if there is an error. `penstock doctor store URL` checks only that store: "
        "it tries each guarantee that Penstock relies on, and deletes all its objects."
    )
    parser.add_argument("subject", nargs="?", choices=["store"], help="check only the store at URL")
    parser.add_argument("url", nargs="?", default="", metavar="URL", help="the address of the store")
    parser.add_argument("--kafka", metavar="HOST:PORT", default="127.0.0.1:9092", help="port to check (%(default)s)")
    parser.add_argument("--http", metavar="HOST:PORT", default="127.0.0.1:8080", help="port to check (%(default)s)")
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        default="",
        help="also pack findings, logs, metrics and settings without secrets into this .tar.gz, for a report",
    )
    add_output_flag(parser)
    add_cluster_flags(parser)
    parser.set_defaults(run=run, run_verb=check)


async def check(arguments: argparse.Namespace) -> Listing:
    """The findings of all checks, and the bundle if the user wants one."""
    if arguments.subject:
        return await check_one_store(arguments.url)
    from penstock.cli.diagnosis.bundle import write_bundle
    from penstock.cli.diagnosis.checks import ERROR, Finding, check_cluster, check_machine, check_store

    data = _path(arguments.data)
    # Beside other machines' servers, this one needs no programs, disk and ports.
    is_remote = bool(arguments.nats_url or os.environ.get("PENSTOCK_NATS_URL"))
    findings = [] if is_remote else check_machine(data, arguments.kafka, arguments.http, os.environ)
    metrics: dict[str, str] = {}
    try:
        cluster = read_cluster(arguments)
    except Invalid as error:
        findings.append(Finding("cluster", "-", f"not checked: {error}"))
    else:
        try:
            found, metrics = await check_cluster(cluster)
            findings += found
        except PenstockError as error:
            advice = "start the nats-server, or name the right one with --nats-url"
            findings.append(Finding("nats", ERROR, str(error), advice))
        findings += await check_store(cluster)
    rows = [each.row() for each in findings]
    if arguments.bundle:
        write_bundle(_path(arguments.bundle), rows, metrics, data, os.environ)
    return Listing(rows, "", is_failure=any(each.mark == ERROR for each in findings))


async def check_one_store(url: str) -> Listing:
    """The guarantees that the store at an address keeps."""
    from penstock.cli.diagnosis.checks import ERROR
    from penstock.cli.diagnosis.store_guarantees import check_guarantees
    from penstock.contracts.ids import ulid_text
    from penstock.objectstore import open_store
    from penstock.runtime.clock import SystemClock, SystemEntropy

    if not url:
        raise Invalid("name the store: penstock doctor store s3://BUCKET/PREFIX")
    store = await open_store(url)
    try:
        findings = await check_guarantees(store, ulid_text(SystemEntropy().take(16)), SystemClock())
    finally:
        await store.close()
    return Listing([each.row() for each in findings], "", is_failure=any(each.mark == ERROR for each in findings))


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()
