"""`penstock export`: writes a topic's records to Parquet files or an Iceberg table; each run adds the new records."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.cli.command_line import NewParser
from penstock.cli.running import INTERRUPTED_EXIT_CODE, add_cluster_flags, read_cluster
from penstock.cli.spark_python import is_installed, run_with_spark
from penstock.contracts.errors import Invalid, PenstockError
from penstock.runtime.process.logs import configure_logs

MASTER_VARIABLE = "PENSTOCK_SPARK_MASTER"
MASTER_DEFAULT = "local[*]"
NEEDED = ("pyarrow", "pyiceberg", "fastavro")  # besides PySpark


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock export` with the command line."""
    parser = new_parser(
        description="Export the records of a topic from the object store; each run exports the new records only."
    )
    parser.add_argument("--topic", metavar="NAME", required=True, help="name of the topic")
    parser.add_argument("--to", metavar="DIR", required=True, help="target folder, which every Spark worker must see")
    parser.add_argument("--format", choices=("parquet", "iceberg"), required=True, help="format of the target")
    parser.add_argument(
        "--value-schema",
        metavar="FILE",
        help="values as columns: a JSON schema (.json) for JSON values, an Avro schema (.avsc) for Avro ones",
    )
    parser.add_argument(
        "--registry-head", action="store_true", help="values begin with the five bytes of a schema registry"
    )
    parser.add_argument(
        "--skip-lost", action="store_true", help="continue where records were removed before they were exported"
    )
    parser.add_argument(
        "--master", metavar="URL", default="", help=f"Spark cluster that exports ({MASTER_DEFAULT}) [{MASTER_VARIABLE}]"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_cluster_flags(parser)
    parser.set_defaults(run=run)


def run(
    arguments: argparse.Namespace,
    *,
    has: Callable[[str], bool] = is_installed,
    run_elsewhere: Callable[[Sequence[str]], int] = run_with_spark,
) -> int:
    """Export; 0 if the target now has all records of the topic, 1 with one sentence if not.

    `has` returns whether a package is installed. Without PySpark, `run_elsewhere` runs the command with another Python.
    """
    try:
        if not has("pyspark"):
            return run_elsewhere(sys.argv[1:])
        configure_logs("export", "export", "error", "auto")
        _check_libraries(has)
        return _export(arguments)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE


def _check_libraries(has: Callable[[str], bool]) -> None:
    missing = [name for name in NEEDED if not has(name)]
    if missing:
        raise Invalid(f"exports need {missing[0]}, which is not installed: pip install 'penstock[spark]'")


def _export(arguments: argparse.Namespace) -> int:
    from penstock.spark.export.export import ExportRequest, export_topic
    from penstock.spark.export.value_schema import read_value_schema

    schema = None
    if arguments.value_schema is not None:
        schema = read_value_schema(Path(arguments.value_schema), has_confluent_head=arguments.registry_head)
    request = ExportRequest(
        address=read_cluster(arguments),
        topic=arguments.topic,
        folder=Path(arguments.to).expanduser(),
        kind=arguments.format,
        value_schema=schema,
        skips_lost=arguments.skip_lost,
    )
    spark = _LazySpark(arguments.master or os.environ.get(MASTER_VARIABLE) or MASTER_DEFAULT)
    try:
        report = export_topic(request, spark.run, _report)
    finally:
        spark.stop()
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(report)))
    elif report.rows:
        bad = f", {report.malformed:,} of them in _malformed" if report.malformed else ""
        print(f"exported {report.rows:,} records{bad} in {report.files:,} files, {report.size_bytes:,} bytes")
    else:
        print("there are no new records")
    return 0


def _report(line: str) -> None:
    print(f"penstock: {line}", file=sys.stderr, flush=True)


class _LazySpark:
    """A Spark session that starts with the first task."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._session: Any = None

    def run(self, task: Any, splits: Any, report: Any) -> Any:
        """Run the tasks of an export; see `export_topic`."""
        from penstock.spark.export.export import run_on_spark
        from penstock.spark.session import missing_java, open_session

        if missing := missing_java(os.environ):
            raise Invalid(missing)
        self._session = open_session("penstock export", self._master)
        return run_on_spark(self._session)(task, splits, report)

    def stop(self) -> None:
        """End the session if it was started."""
        from penstock.spark.session import close_session

        if self._session is not None:
            close_session(self._session)
