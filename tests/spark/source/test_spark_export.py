"""Exports contain every record once, also after failures; other query engines read the same checksums."""

import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pytest
from fastavro import parse_schema, schemaless_writer
from pyiceberg.catalog.sql import SqlCatalog

from penstock.contracts.errors import Conflict, Invalid
from penstock.spark.config import ClusterAddress
from penstock.spark.export.export import ExportReport, ExportRequest, export_topic
from penstock.spark.export.files import ExportedFile, FileTask
from penstock.spark.export.value_schema import ValueSchema
from penstock.spark.source.splits import Split
from tests.spark.source.source_world import consume, create_topics, produce
from tests.testkit.clusters.cluster import Cluster, running

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 3
KINDS = ("parquet", "iceberg")
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"]},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("export") / "data", "--compactors", "0", "--flush-ms", "50") as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic for one test, with 3,000 records."""
    name = request.node.name.replace("[", ".").replace("]", "").replace("_", "-")[-100:]
    create_topics(cluster, **{name: PARTITIONS})
    produce_more(cluster, name, 0)
    return name


def produce_more(cluster: Cluster, topic: str, round_number: int) -> None:
    records = (
        {"key": b"%d" % number, "value": b"round %d, record %d " % (round_number, number) * 9, "headers": [("h", b"x")]}
        for number in range(3000)
    )
    produce(cluster, topic, records, **{"compression.type": "zstd"})


def run_here(task: FileTask, splits: Sequence[Split], report: Callable[[str], None]) -> list[ExportedFile]:
    """Run the tasks in this process, each twice, as Spark may."""
    for split in splits:
        task(split)
    return [task(split) for split in splits]


def request_of(cluster: Cluster, topic: str, folder: Path, kind: str, **more: object) -> ExportRequest:
    address = ClusterAddress("default", cluster.nats_url, "", "", f"file://{cluster.data / 'objects'}")
    return ExportRequest(address, topic, folder, kind, **more)


def export(
    cluster: Cluster, topic: str, folder: Path, kind: str, run: Callable = run_here, **more: object
) -> ExportReport:
    return export_topic(request_of(cluster, topic, folder, kind, **more), run, lambda line: None)


def checksums(rows: list[tuple]) -> set[tuple]:
    places = [(row[0], row[1]) for row in rows]
    assert len(places) == len(set(places)), "a record came twice"
    return {(partition, offset, zlib.crc32(key), zlib.crc32(value)) for partition, offset, key, value in rows}


def consumed(cluster: Cluster, topic: str, wanted: int) -> set[tuple]:
    rows = consume(cluster, topic, PARTITIONS, wanted)
    return checksums([(row["partition"], row["offset"], row["key"], row["value"]) for row in rows])


def in_duckdb(folder: Path, kind: str, topic: str) -> set[tuple]:
    """The records as DuckDB reads them: from all Parquet files of a folder, or from the files of the Iceberg table."""
    files = [str(folder / "*" / "*.parquet")]
    if kind == "iceberg":
        files = [task.file.file_path.removeprefix("file://") for task in table_of(folder, topic).scan().plan_files()]
    connection = duckdb.connect()
    return checksums(
        connection.execute('select partition, "offset", key, value from read_parquet(?)', [files]).fetchall()
    )


def table_of(folder: Path, topic: str):
    catalog = SqlCatalog("penstock", uri=f"sqlite:///{folder / 'catalog.sqlite'}", warehouse=f"file://{folder}")
    return catalog.load_table(f"penstock.{topic.replace('.', '_').replace('-', '_')}")


@pytest.mark.parametrize("kind", KINDS)
def test_each_export_adds_the_new_records_and_other_engines_read_the_same(
    cluster: Cluster, topic: str, tmp_path: Path, kind: str
) -> None:
    report = export(cluster, topic, tmp_path, kind)
    assert (report.rows, report.files) == (3000, 1)
    assert in_duckdb(tmp_path, kind, topic) == consumed(cluster, topic, 3000)

    assert export(cluster, topic, tmp_path, kind).rows == 0
    produce_more(cluster, topic, 1)
    assert export(cluster, topic, tmp_path, kind).rows == 3000
    expected = consumed(cluster, topic, 6000)
    assert in_duckdb(tmp_path, kind, topic) == expected
    if kind == "iceberg":
        table = table_of(tmp_path, topic)
        rows = table.scan().to_arrow().select(["partition", "offset", "key", "value"]).to_pylist()
        assert checksums([tuple(row.values()) for row in rows]) == expected
        assert len(table.metadata.snapshots) == 2
        assert table.scan(row_filter="partition = 1").to_arrow().num_rows == len([r for r in expected if r[0] == 1])


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_export_leaves_no_trace(cluster: Cluster, topic: str, tmp_path: Path, kind: str) -> None:
    class Killed(BaseException):
        """An exception that no code catches."""

    def dies_before_its_last_file(task: FileTask, splits: Sequence[Split], report: object) -> list[ExportedFile]:
        task(splits[0])
        raise Killed

    with pytest.raises(Killed):
        export(cluster, topic, tmp_path, kind, dies_before_its_last_file)
    if kind == "parquet":
        assert list(tmp_path.glob("*/*.parquet")) == []
    assert export(cluster, topic, tmp_path, kind).rows == 3000
    assert in_duckdb(tmp_path, kind, topic) == consumed(cluster, topic, 3000)


@pytest.mark.parametrize("kind", KINDS)
def test_two_exports_to_one_folder_exclude_each_other(cluster: Cluster, topic: str, tmp_path: Path, kind: str) -> None:
    rejections: list[str] = []

    def export_again(task: FileTask, splits: Sequence[Split], report: Callable[[str], None]) -> list[ExportedFile]:
        with pytest.raises(Conflict, match=r"another export to .* is running") as rejected:
            export(cluster, topic, tmp_path, kind)
        rejections.append(str(rejected.value))
        return run_here(task, splits, report)

    assert export(cluster, topic, tmp_path, kind, export_again).rows == 3000
    assert len(rejections) == 1


def test_a_folder_has_one_topic_in_one_format(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    export(cluster, topic, tmp_path, "parquet")
    create_topics(cluster, other=1)
    with pytest.raises(Invalid, match="has an export of "):
        export(cluster, "other", tmp_path, "parquet")
    with pytest.raises(Invalid, match="has Parquet files"):
        export(cluster, topic, tmp_path, "iceberg")


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "key": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["id"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_json_values_become_columns_and_malformed_ones_are_kept(cluster: Cluster, tmp_path: Path, kind: str) -> None:
    topic = f"json-{kind}"
    create_topics(cluster, **{topic: 1})
    values = [
        b'{"id": 1, "key": "k", "at": "2026-11-21T12:00:00+01:00", "tags": ["a", "b"], "place": {"x": 1.5}}',
        b'{"id": 2, "counts": {"n": 3}, "unknown": true}',
        b'{"id": "3"}',
        b"{",
        None,
        b'{"id": 9223372036854775808}',
        b'\n{"id":\n7}',
    ]
    produce(cluster, topic, ({"value": value, "key": b"key"} for value in values))
    schema = ValueSchema("json", json.dumps(JSON_SCHEMA))
    report = export(cluster, topic, tmp_path, kind, value_schema=schema)
    assert (report.rows, report.malformed) == (7, 3)
    files = [
        str(path) for path in tmp_path.rglob("*.parquet") if kind == "parquet" or path.name in named(tmp_path, topic)
    ]
    rows = duckdb.connect().execute(
        'select id, key, value_key, epoch("at"), tags, place.x, _malformed from read_parquet(?) order by "offset"',
        [files],
    )
    assert rows.fetchall() == [
        (1, b"key", "k", 1_795_258_800, ["a", "b"], 1.5, None),
        (2, b"key", None, None, None, None, None),
        (None, b"key", None, None, None, None, b'{"id": "3"}'),
        (None, b"key", None, None, None, None, b"{"),
        (None, b"key", None, None, None, None, None),
        (None, b"key", None, None, None, None, values[5]),
        (7, b"key", None, None, None, None, None),
    ]


def named(folder: Path, topic: str) -> set[str]:
    return {task.file.file_path.rpartition("/")[2] for task in table_of(folder, topic).scan().plan_files()}


@pytest.mark.parametrize("head", [b"", b"\0\0\0\0\7"])
def test_avro_values_become_columns(cluster: Cluster, tmp_path: Path, head: bytes) -> None:
    import io
    from datetime import UTC, datetime

    topic = f"avro-{len(head)}"
    create_topics(cluster, **{topic: 1})
    values = []
    for number in range(100):
        out = io.BytesIO()
        row = {"name": f"n{number}", "age": number if number % 2 else None, "seen": datetime(2026, 11, 21, tzinfo=UTC)}
        schemaless_writer(out, parse_schema(PERSON), row)
        values.append(head + out.getvalue())
    values += [values[0] + b"more", b"\xff" * 5, b""]
    produce(cluster, topic, ({"value": value} for value in values))
    schema = ValueSchema("avro", json.dumps(PERSON), bool(head))
    report = export(cluster, topic, tmp_path, "iceberg", value_schema=schema)
    assert (report.rows, report.malformed) == (103, 3)
    table = table_of(tmp_path, topic).scan().to_arrow().to_pylist()
    assert [(row["name"], row["age"]) for row in table[:3]] == [("n0", None), ("n1", 1), ("n2", None)]
    assert table[5]["seen"] == datetime(2026, 11, 21, tzinfo=UTC)
    assert [row["_malformed"] for row in table[100:]] == values[100:]


def test_an_export_with_other_columns_than_the_table_is_rejected(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    export(cluster, topic, tmp_path, "iceberg")
    produce_more(cluster, topic, 1)
    with pytest.raises(Invalid, match="has other columns than this export"):
        export(cluster, topic, tmp_path, "iceberg", value_schema=ValueSchema("json", json.dumps(JSON_SCHEMA)))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "penstock.cli", "export", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)


def test_the_command_exports_on_spark_and_reports_the_result(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    where = ["--to", str(tmp_path / "out"), "--format", "parquet", "--data", str(cluster.data), "--master", "local[2]"]
    done = command("--topic", topic, *where)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("exported 3,000 records in 1 files")
    assert in_duckdb(tmp_path / "out", "parquet", topic) == consumed(cluster, topic, 3000)

    again = command("--topic", topic, *where, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["rows"] == 0
    missing = command("--topic", "missing", *where)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "penstock: there is no topic 'missing'; `penstock topic list` lists all\n"
    assert command("--topic", topic, "--to", "x").returncode == 2


def test_the_command_rejects_a_schema_that_no_column_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}')
    where = ["--to", str(tmp_path / "out"), "--format", "parquet", "--nats-url", "nats://x", "--store", "file:///x"]
    done = command("--topic", "t", *where, "--value-schema", str(path))
    assert done.returncode == 1
    assert done.stderr == f"penstock: {path}: 'a' must have one type (or one and null): ['string', 'integer']\n"
