"""`penstock audit`: checks that the bucket has all objects of the journal, undamaged, and no others."""

import argparse
import asyncio
import os
import sys

from penstock.audit.audit import Audit, read_on_spark
from penstock.audit.report import Report, as_json, as_text
from penstock.cli.command_line import NewParser
from penstock.cli.running import INTERRUPTED_EXIT_CODE, add_cluster_flags, read_cluster
from penstock.cli.spark_python import has_pyspark, run_with_spark
from penstock.contracts.errors import PenstockError
from penstock.objectstore import open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.runtime.nats.client import connect_nats
from penstock.runtime.process.logs import configure_logs
from penstock.spark.config import ClusterAddress
from penstock.spark.session import open_session

MASTER_VARIABLE = "PENSTOCK_SPARK_MASTER"


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock audit` with the command line."""
    parser = new_parser(
        description="Read all data of a running cluster with Spark and compare it with the journal: every object, "
        "every live record, all offsets. The exit code is 1 if there are findings.",
    )
    add_cluster_flags(parser)
    parser.add_argument(
        "--master",
        metavar="URL",
        default="",
        help=f"Spark cluster that reads (local[*]) [{MASTER_VARIABLE}]",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Audit; 0 without findings, 1 with findings, or with one sentence if the audit is not possible."""
    try:
        if not has_pyspark():
            return run_with_spark(sys.argv[1:])
        configure_logs("audit", "audit", "error", "auto")
        cluster = read_cluster(arguments)
        report = asyncio.run(_audit(cluster, arguments.master or os.environ.get(MASTER_VARIABLE) or "local[*]"))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    print(as_json(report) if arguments.json else as_text(report))
    return 0 if report.is_clean else 1


async def _audit(cluster: ClusterAddress, master: str) -> Report:
    clock = SystemClock()
    connection = await connect_nats(
        cluster.nats_url,
        name="penstock-audit",
        user=cluster.nats_user,
        password=cluster.nats_password,
        tls=cluster.nats_tls,
    )
    try:
        store = await open_store(cluster.store_url)
        try:
            client = SequencerClient(connection.bus, cluster.cluster, clock)
            session = await asyncio.to_thread(open_session, "penstock-audit", master)
            try:
                read = read_on_spark(session, cluster.store_url)
                return await Audit(client, store, cluster.cluster, clock, read).run()
            finally:
                await asyncio.to_thread(session.stop)
        finally:
            await store.close()
    finally:
        await connection.close()
