"""Topics as tables in a real Spark session: `spark.read` and `spark.readStream`."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import register
from penstock.spark.source.data_source import PUSHDOWN
from tests.spark.source.source_world import consume, create_topics, options_of, produce
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.servers import debian

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PARTITIONS = 8
KILLS = int(os.environ.get("PENSTOCK_STREAM_KILLS", "2"))  # each costs a JVM, some 20 s; more in nightly runs
STARTS_MAX = 3 * KILLS
ROUND_RECORDS = 3_000
PROGRESS_TIMEOUT_S = 600.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("tables") / "data", "--compactors", "0") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    """A session with the source that PySpark discovers itself; a test later registers it again."""
    return spark


def table(session: Any, cluster: Cluster, **options: str) -> Any:
    return session.read.format("penstock").options(**options_of(cluster, **options)).load()


def test_the_rows_of_the_package_catalogue_equal_those_of_a_kafka_client(session: Any, cluster: Cluster) -> None:
    create_topics(cluster, packages=PARTITIONS)
    stanzas = debian.package_catalogue()
    half = len(stanzas) // 2
    for codec, part in (("lz4", stanzas[:half]), ("zstd", stanzas[half:])):
        records = ({"key": key, "value": value} for key, value in part)
        produce(cluster, "packages", records, **{"compression.type": codec})
    read = (
        table(session, cluster, topics="packages")
        .selectExpr(
            "partition", "offset", "crc32(key)", "crc32(value)", "cast(timestamp as double)", "size(headers)", "topic"
        )
        .toPandas()
    )
    expected = {
        (
            row["partition"],
            row["offset"],
            zlib.crc32(row["key"]),
            zlib.crc32(row["value"]),
            row["timestamp"].timestamp(),
        )
        for row in consume(cluster, "packages", PARTITIONS, len(stanzas))
    }
    assert len(read) == len(stanzas)
    assert set(read.iloc[:, :5].itertuples(index=False, name=None)) == expected
    assert set(read["topic"]) == {"packages"}


def test_a_loaded_table_works_for_any_number_of_queries(session: Any, cluster: Cluster) -> None:
    """With pushdown, in Spark 4.3, each query needs its own load of the table."""
    create_topics(cluster, numbers=2)
    for step in range(5):
        produce(cluster, "numbers", ({"value": b"%d" % step, "partition": number % 2} for number in range(100)))
    wanted = "topic = 'numbers' and partition = 1 and offset >= 100 and offset < 103"
    expected = [(1, offset, "numbers") for offset in (100, 101, 102)]

    def loaded() -> Any:
        columns = "partition int, offset bigint, topic string"
        return session.read.format("penstock").schema(columns).options(**options_of(cluster, topics="num.*")).load()

    rows = loaded()
    assert [tuple(row) for row in rows.where(wanted).orderBy("offset").collect()] == expected
    assert rows.count() == 500
    assert rows.where("offset = 0").union(rows.where("partition = 0 and offset = 7")).count() == 3

    before = session.conf.get(PUSHDOWN)
    try:
        register(session, pushdown=True)
        assert [tuple(row) for row in loaded().where(wanted).orderBy("offset").collect()] == expected
        assert loaded().where("offset = 0").union(loaded().where("partition = 0 and offset = 7")).count() == 3
        assert loaded().where("topic = 'other'").count() == 0
        assert loaded().count() == 500
    finally:
        session.conf.set(PUSHDOWN, before)
        register(session)


@pytest.mark.timeout(3600)
def test_a_repeatedly_killed_streaming_query_delivers_every_record_once(cluster: Cluster, tmp_path: Path) -> None:
    """The query is a process with its own JVM, killed at any moment; its sink accepts each batch id once."""
    create_topics(cluster, events=4)
    sink = tmp_path / "sink.sqlite"
    execute(sink, "create table batches (id integer primary key)")
    execute(sink, "create table records (partition integer, place integer, value text)")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    produced = kills = 0
    for _ in range(STARTS_MAX):
        produced += produce_some(cluster, produced)
        kills += killed_in_progress(cluster, tmp_path, delivered(sink) + chance.randrange(1, ROUND_RECORDS))
        if kills == KILLS:
            break
    assert kills == KILLS, (tmp_path / "query.log").read_text()[-3000:]
    produced += produce_some(cluster, produced)
    assert any(ended_well(cluster, tmp_path) for _ in range(3)), (tmp_path / "query.log").read_text()[-3000:]
    expected = [
        (row["partition"], row["offset"], row["value"].decode()) for row in consume(cluster, "events", 4, produced)
    ]
    assert sorted(execute(sink, "select partition, place, value from records")) == sorted(expected)


def killed_in_progress(cluster: Cluster, folder: Path, enough: int) -> bool:
    """Kill the query after `enough` records; False if it ended before, as Spark does on a busy machine."""
    with query(cluster, folder, "always") as process:
        wait_until(
            lambda: process.poll() is not None or delivered(folder / "sink.sqlite") >= enough,
            PROGRESS_TIMEOUT_S,
            "the query to advance",
        )
        return process.poll() is None


def ended_well(cluster: Cluster, folder: Path) -> bool:
    """Let the query read all present records; return whether it succeeded."""
    with query(cluster, folder, "now") as process:
        return process.wait(PROGRESS_TIMEOUT_S) == 0


def produce_some(cluster: Cluster, done: int) -> int:
    records = ({"value": b"event %d" % number} for number in range(done, done + ROUND_RECORDS))
    return produce(cluster, "events", records)


def delivered(sink: Path) -> int:
    [(count,)] = execute(sink, "select count(*) from records")
    return count


def execute(sink: Path, statement: str) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(sink, timeout=60)) as database:
        return database.execute(statement).fetchall()


@contextlib.contextmanager
def query(cluster: Cluster, folder: Path, until: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the streaming query; it and its JVM are killed at the end of the block."""
    options = options_of(cluster)
    argv = [
        sys.executable,
        "-m",
        "tests.spark.source.stream_query",
        options["nats"],
        options["store"],
        str(folder),
        until,
    ]
    with (folder / "query.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
