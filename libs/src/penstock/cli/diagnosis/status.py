"""`penstock status`: the processes of a cluster, as they announce themselves, and their problems."""

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from penstock.cli.command_line import NewParser
from penstock.cli.output import Listing, add_output_flag
from penstock.cli.running import add_cluster_flags, connected_bus, read_cluster, run

if TYPE_CHECKING:
    from penstock.contracts.messages import Presence


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock status` with the command line."""
    parser = new_parser(
        description="List the processes of a cluster with their problems. The command needs no login, only access to "
        "NATS. It listens for a moment, because each process announces itself once a second. The exit code is 1 if a "
        "process is not ready."
    )
    add_output_flag(parser)
    add_cluster_flags(parser, with_store=False)
    parser.set_defaults(run=run, run_verb=list_processes)


async def list_processes(arguments: argparse.Namespace) -> Listing:
    """One line for each role of a process."""
    from penstock.cli.diagnosis.processes import find_processes, opened_pages

    cluster = read_cluster(arguments)
    async with connected_bus(cluster, "penstock-status") as bus:
        found = await find_processes(bus, cluster.cluster)
    async with opened_pages() as pages:
        reports = await asyncio.gather(*(pages.report(each) for each in found))
    rows = [row_of(each, report) for each, report in zip(found, reports, strict=True)]
    return Listing(
        rows,
        f"no process of the cluster {cluster.cluster!r} announces itself",
        is_failure=not rows or not all(row["ready"] for row in rows),
    )


def row_of(process: "Presence", report: dict[str, Any]) -> dict[str, Any]:
    """One line of the list."""
    from penstock.contracts.messages import shown_pool

    problems = [report["reason"], *report["degraded"].values()]
    return {
        "service": process.role,
        "instance": process.instance,
        "zone": process.zone,
        "pool": shown_pool(process),
        "version": process.version,
        "ready": bool(report["ready"]),
        "kafka": [f"{each.host}:{each.port}" for each in process.listeners],
        "load_bytes": process.load_bytes,
        "problem": "; ".join(each for each in problems if each),
    }
