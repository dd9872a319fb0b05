"""The speed of topics as tables: `.venv-spark/bin/python -m benches.topics [--mib N]`.

Records of 1 KiB, uncompressed and with zstd, are read by a task alone, into Spark, and into Parquet files.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benches.report import Result, save, table
from penstock.spark import register
from penstock.spark.config import ClusterAddress
from penstock.spark.export.export import ExportRequest, export_topic, run_on_spark
from penstock.spark.session import open_session
from penstock.spark.source.data_source import PenstockSource
from tests.spark.source.source_world import create_topics, options_of, produce, schema_of
from tests.testkit.clusters.cluster import Cluster, running

VALUE_BYTES = 1024
PARTITIONS = 8
ROWS_BUDGET = 150_000  # per second, of 1 KiB, on two cores
WORDS = [random.Random(word).randbytes(12).hex() for word in range(400)]


def main() -> int:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(prog="benches.topics")
    parser.add_argument("--mib", type=int, default=512, help="MiB of values in each topic (%(default)s)")
    arguments = parser.parse_args()
    results = list(_measured(arguments.mib))
    print(table(results))
    print(f"\nas JSON in {save(results, 'topics')}", file=sys.stderr)
    return 0


def _measured(mib: int) -> Iterator[Result]:
    count = mib * 1024 * 1024 // VALUE_BYTES
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "data", "--compactors", "0") as cluster:
        create_topics(cluster, none=PARTITIONS, zstd=PARTITIONS)
        for codec in ("none", "zstd"):
            produce(cluster, codec, _records(count), **{"compression.type": codec, "linger.ms": 100})
        for codec in ("none", "zstd"):
            yield from _in_a_task(cluster, codec, count)
        session = open_session("bench", "local[2]")
        register(session)
        try:
            for codec in ("none", "zstd"):
                yield from _in_spark(session, cluster, codec, count)
                yield from _exported(session, cluster, codec, count, Path(folder) / f"export-{codec}")
        finally:
            session.stop()


def _records(count: int) -> Iterator[dict[str, Any]]:
    """Records of text that compresses about as well as logs."""
    chance = random.Random(1)
    bodies = [" ".join(chance.choices(WORDS, k=60)).encode()[:VALUE_BYTES] for _ in range(2000)]
    for number in range(count):
        yield {"key": b"%016d" % number, "value": bodies[chance.randrange(2000)]}


def _in_a_task(cluster: Cluster, topic: str, count: int) -> Iterator[Result]:
    for name, options in (("all columns", {}), ("value only", {"columns": "value"})):
        reader = PenstockSource(options_of(cluster, topics=topic, **options)).reader(schema_of(*options.values()))

        def read(reader: Any = reader) -> int:
            return sum(batch.num_rows for each in reader.partitions() for batch in reader.read(each))

        yield _rate(f"task, {name}, {topic}", count, read, None)


def _in_spark(session: Any, cluster: Cluster, topic: str, count: int) -> Iterator[Result]:
    rows = session.read.format("penstock").options(**options_of(cluster, topics=topic)).load()
    rows.where("offset = 0").count()  # start the Python workers
    lengths = rows.selectExpr(
        "count(1) as n", "sum(length(value))", "sum(offset)", "max(timestamp)", "sum(length(key))"
    )
    yield _rate(f"spark.read, all columns, {topic}", count, lambda: int(lengths.collect()[0].n), ROWS_BUDGET)


def _exported(session: Any, cluster: Cluster, topic: str, count: int, folder: Path) -> Iterator[Result]:
    address = ClusterAddress("default", cluster.nats_url, "", "", f"file://{cluster.data / 'objects'}")
    request = ExportRequest(address, topic, folder, "parquet")
    run = run_on_spark(session)
    yield _rate(f"export to Parquet, {topic}", count, lambda: export_topic(request, run, print).rows, None)


def _rate(name: str, count: int, work: Callable[[], int], budget: float | None) -> Result:
    started_s = time.perf_counter()
    rows = work()
    took_s = time.perf_counter() - started_s
    assert rows == count, f"{name}: {rows} rows, not {count}"
    print(f"{name}: {rows * VALUE_BYTES / took_s / 1e6:,.0f} MB/s", file=sys.stderr, flush=True)
    return Result("topics", name, rows / took_s, "rows/s", budget, True)


if __name__ == "__main__":
    sys.exit(main())
