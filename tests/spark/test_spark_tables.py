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
from penstock.spark.source import PUSHDOWN
from tests.spark.source_world import consume, create_topics, options_of, produce
from tests.testkit import debian
from tests.testkit.cluster import Cluster, running, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PARTITIONS = 8
KILLS = 10
KILLED_RECORDS = 40_000
PROGRESS_TIMEOUT_S = 600.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("tables") / "data", "--compactors", "0") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    """A session that knows the source as PySpark finds it, and then as `register` gives it."""
    return spark


def table(session: Any, cluster: Cluster, **options: str) -> Any:
    return session.read.format("penstock").options(**options_of(cluster, **options)).load()


def test_the_package_catalogue_has_the_rows_that_a_kafka_client_reads(session: Any, cluster: Cluster) -> None:
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


def test_predicates_are_pushed_down_once_the_source_is_registered(session: Any, cluster: Cluster) -> None:
    create_topics(cluster, numbers=2)
    for step in range(5):
        produce(cluster, "numbers", ({"value": b"%d" % step, "partition": number % 2} for number in range(100)))
    wanted = "topic = 'numbers' and partition = 1 and offset >= 100 and offset < 103"
    columns = "partition int, offset bigint, topic string"
    unregistered = session.read.format("penstock").schema(columns).options(**options_of(cluster, topics="num.*"))
    expected = [(1, offset, "numbers") for offset in (100, 101, 102)]
    assert [tuple(row) for row in unregistered.load().where(wanted).orderBy("offset").collect()] == expected

    before = session.conf.get(PUSHDOWN)
    try:
        register(session)
        registered = session.read.format("penstock").schema(columns).options(**options_of(cluster, topics="num.*"))
        narrow = registered.load().where(wanted)
        assert [tuple(row) for row in narrow.orderBy("offset").collect()] == expected
        assert narrow.rdd.getNumPartitions() == 1
        nothing = registered.load().where("topic = 'other'")
        assert nothing.count() == 0
    finally:
        session.conf.set(PUSHDOWN, before)


@pytest.mark.timeout(3600)
def test_a_streaming_query_killed_ten_times_delivers_every_record_once(cluster: Cluster, tmp_path: Path) -> None:
    """The query is a process of its own with its JVM, killed at any moment; its sink takes each batch id once."""
    create_topics(cluster, events=4)
    sink = tmp_path / "sink.sqlite"
    with sqlite3.connect(sink) as database:
        database.execute("create table batches (id integer primary key)")
        database.execute("create table records (partition integer, place integer, value text)")
    produced = 0
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(KILLS):
        produced += produce_some(cluster, produced)
        enough = rows_in(sink) + chance.randrange(1, KILLED_RECORDS // (KILLS + 1))
        with query(cluster, tmp_path, "always") as process:
            wait_until(
                lambda: process.poll() is not None or rows_in(sink) >= enough,  # noqa: B023
                PROGRESS_TIMEOUT_S,
                "the query to get on",
                poll_s=0.005,
            )
            assert process.poll() is None, (tmp_path / "query.log").read_text()[-3000:]
    produced += produce_some(cluster, produced)
    with query(cluster, tmp_path, "now") as process:
        assert process.wait(PROGRESS_TIMEOUT_S) == 0, (tmp_path / "query.log").read_text()[-3000:]
    with sqlite3.connect(sink) as database:
        delivered_rows = database.execute("select partition, place, value from records").fetchall()
    expected = [
        (row["partition"], row["offset"], row["value"].decode()) for row in consume(cluster, "events", 4, produced)
    ]
    assert sorted(delivered_rows) == sorted(expected)


def produce_some(cluster: Cluster, done: int) -> int:
    count = KILLED_RECORDS // (KILLS + 1)
    return produce(cluster, "events", ({"value": b"event %d" % number} for number in range(done, done + count)))


def rows_in(sink: Path) -> int:
    with sqlite3.connect(sink, timeout=60) as database:
        count: int = database.execute("select count(*) from records").fetchone()[0]
    return count


@contextlib.contextmanager
def query(cluster: Cluster, folder: Path, until: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the streaming query, killed in the end with its JVM."""
    options = options_of(cluster)
    argv = [sys.executable, "-m", "tests.spark.stream_query", options["nats"], options["store"], str(folder), until]
    with (folder / "query.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
