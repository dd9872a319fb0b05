"""Topics as tables: the same rows that Kafka clients read, with few bytes read from the store."""

from collections.abc import Iterator
from datetime import UTC, datetime

import kafka
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

from penstock.contracts.errors import Conflict, Invalid
from penstock.spark.source.offsets import from_json
from tests.spark.source.source_world import (
    consume,
    create_topics,
    in_order,
    options_of,
    produce,
    reader_of,
    rows_of,
    schema_of,
    stretches_of,
)
from tests.testkit.clusters.cluster import Cluster, running

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with `mixed`, which has every codec and kind of record, and `even`, whose partitions share segments."""
    with running(tmp_path_factory.mktemp("source") / "data", "--compactors", "0", "--flush-ms", "50") as cluster:
        create_topics(cluster, mixed=3, even=4, silent=2)
        for codec in CODECS:
            produce(cluster, "mixed", mixed_records(codec), **{"compression.type": codec})
        xerial = kafka.KafkaProducer(bootstrap_servers=cluster.kafka, compression_type="snappy")
        for number in range(50):
            xerial.send("mixed", b"by kafka-python %d" % number * 20, b"key", [("h", b"x")], 0, START_MS)
        xerial.close()
        for step in range(40):
            produce(cluster, "even", even_records(step))
        yield cluster


def mixed_records(codec: str) -> Iterator[dict]:
    for number in range(300):
        yield {
            "key": None if number % 7 == 0 else f"{codec}-{number}".encode(),
            "value": None if number % 11 == 0 else f"value {number} ".encode() * (number % 40),
            "headers": [("codec", codec.encode()), ("empty", b""), ("null", None)][: number % 4] or None,
            "timestamp": START_MS + 1000 * number,
        }


def even_records(step: int) -> Iterator[dict]:
    for number in range(40):
        yield {"value": b"%d %d" % (step, number), "partition": number % 4, "timestamp": START_MS + 1000 * step}


def test_rows_equal_those_of_a_kafka_client_for_all_codecs_and_kinds_of_records(cluster: Cluster) -> None:
    read = rows_of(reader_of(cluster, topics="mixed"))
    assert in_order(read) == in_order(consume(cluster, "mixed", 3, 300 * len(CODECS) + 50))
    for partition in range(3):
        offsets = [row["offset"] for row in read if row["partition"] == partition]
        assert offsets == list(range(len(offsets)))


def test_patterns_choose_topics_and_silent_ones_have_no_rows(cluster: Cluster) -> None:
    rows = rows_of(reader_of(cluster, topics="ev.*,silent"))
    assert {row["topic"] for row in rows} == {"even"}
    assert len(rows) == 1600
    assert rows_of(reader_of(cluster, topics="nothing.*")) == []


def test_only_wanted_columns_are_made(cluster: Cluster) -> None:
    rows = rows_of(reader_of(cluster, topics="even", columns="value,offset"))
    assert rows[0].keys() == {"offset", "value"}


def test_offsets_limit_a_read(cluster: Cluster) -> None:
    options = {
        "startingOffsets": '{"even": {"0": 395, "1": -1, "2": 7}}',
        "endingOffsets": '{"even": {"2": 9, "3": 1}}',
    }
    rows = rows_of(reader_of(cluster, topics="even", **options))
    assert [(row["partition"], row["offset"]) for row in in_order(rows)] == [
        *((0, offset) for offset in range(395, 400)),
        (2, 7),
        (2, 8),
        (3, 0),
    ]


def test_times_limit_a_read_to_the_record(cluster: Cluster) -> None:
    options = {"startingTimestamp": str(START_MS + 4500), "endingTimestamp": str(START_MS + 7000)}
    rows = rows_of(reader_of(cluster, topics="even", **options))
    assert {row["value"].split()[0] for row in rows} == {b"5", b"6"}
    assert len(rows) == 80
    assert rows_of(reader_of(cluster, topics="even", startingTimestamp=str(START_MS + 40_000))) == []


def test_missing_offsets_are_an_error_or_left_out(cluster: Cluster) -> None:
    beyond = {"topics": "even", "endingOffsets": '{"even": {"0": 500}}'}
    with pytest.raises(Conflict, match=r"even \[0\] has the offsets 0 to 399, but the read needs 0 to 499; the option"):
        reader_of(cluster, **beyond).partitions()
    assert len(rows_of(reader_of(cluster, failOnDataLoss="false", **beyond))) == 1600


def test_a_topic_that_does_not_exist_is_named(cluster: Cluster) -> None:
    with pytest.raises(Invalid, match="no topic 'missing'"):
        reader_of(cluster, topics="even,missing").partitions()


def test_all_partitions_of_a_flushed_segment_are_one_get(cluster: Cluster) -> None:
    everything = stretches_of(reader_of(cluster, topics="even"))
    assert len({stretch.key for stretch in everything}) == len(everything) >= 40
    # The number of partitions in one segment varies, because each partition has its own produce request.
    assert any(len({run.partition for run in stretch.runs}) > 1 for stretch in everything)


def test_predicates_on_partition_offset_and_time_save_gets(cluster: Cluster) -> None:
    """The read with each predicate has the same rows as without it, and reads fewer bytes."""
    everything = stretches_of(reader_of(cluster, topics="even,mixed"))
    noon = datetime.fromtimestamp((START_MS + 35_000) / 1000, UTC)
    cases = {
        "topic": ([EqualTo(("topic",), "even")], lambda row: row["topic"] == "even"),
        "partition": ([In(("partition",), (1,))], lambda row: row["partition"] == 1),
        "offset": (
            [GreaterThanOrEqual(("offset",), 100), LessThan(("offset",), 120)],
            lambda row: 100 <= row["offset"] < 120,
        ),
        "timestamp": ([GreaterThanOrEqual(("timestamp",), noon)], lambda row: row["timestamp"] >= noon),
    }
    rows = rows_of(reader_of(cluster, topics="even,mixed"))
    for name, (filters, keeps) in cases.items():
        reader = reader_of(cluster, filters, topics="even,mixed")
        kept = [row for row in rows_of(reader) if keeps(row)]
        assert in_order(kept) == in_order(row for row in rows if keeps(row)), name
        bytes_read = sum(stretch.length for stretch in stretches_of(reader))
        assert bytes_read < sum(stretch.length for stretch in everything), name
    narrow = stretches_of(reader_of(cluster, [*cases["offset"][0], EqualTo(("topic",), "even")], topics="even,mixed"))
    assert all(run.base_offset < 120 and run.last_offset >= 100 for stretch in narrow for run in stretch.runs)
    assert 0 < len(narrow) < len(everything) // 5
    assert stretches_of(reader_of(cluster, [EqualTo(("topic",), "other")], topics="even")) == []


def test_a_split_has_the_requested_size_or_one_run(cluster: Cluster) -> None:
    produce(cluster, "silent", ({"value": b"x" * 100_000, "partition": 0} for _ in range(100)))
    splits = [each.split for each in reader_of(cluster, topics="silent", maxBytesPerSplit=str(2**21)).partitions()]
    assert len(splits) > 1
    assert all(split.size_bytes <= 2**21 or len(split.stretches[0].runs) == 1 for split in splits)
    assert len(reader_of(cluster, topics="silent").partitions()) == 1


def stream_of(cluster: Cluster, **options: str):
    from penstock.spark.source.data_source import PenstockSource

    return PenstockSource(options_of(cluster, **options)).streamReader(schema_of())


def places(reader, start: dict, end: dict) -> list[tuple]:
    return sorted(
        (row["topic"], row["partition"], row["offset"])
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    )


@pytest.mark.parametrize("limit", [{"maxBytesPerTrigger": "3000"}, {"maxOffsetsPerTrigger": "130"}, {}])
def test_a_stream_reads_every_record_once_in_micro_batches_within_their_limit(cluster: Cluster, limit: dict) -> None:
    reader = stream_of(cluster, topics="even", startingOffsets="earliest", **limit)
    start = reader.initialOffset()
    seen: list[tuple] = []
    count = 0
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batch = places(reader, start, end)
        assert batch == places(reader, start, end), "a repeated micro-batch is the same"
        assert len(batch) <= int(limit.get("maxOffsetsPerTrigger", 10**9))
        seen += batch
        start = end
        count += 1
    assert sorted(seen) == [("even", partition, offset) for partition in range(4) for offset in range(400)]
    assert count >= 10 if limit else count == 1


def test_a_stream_reads_new_topics_and_partitions_from_their_first_record(cluster: Cluster) -> None:
    create_topics(cluster, stream_a=1)
    produce(cluster, "stream_a", [{"value": b"old"}])
    reader = stream_of(cluster, topics="stream_.*")
    start = reader.initialOffset()
    assert start == {"stream_a": {"0": 1}}, "a stream begins with new records"
    create_topics(cluster, stream_b=2)
    produce(cluster, "stream_b", [{"value": b"new", "partition": 1}])
    produce(cluster, "stream_a", [{"value": b"new"}])
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert places(reader, start, end) == [("stream_a", 0, 1), ("stream_b", 1, 0)]


def test_a_query_with_available_now_ends_at_the_present_offsets(cluster: Cluster) -> None:
    create_topics(cluster, now=1)
    produce(cluster, "now", [{"value": b"1"}, {"value": b"2"}, {"value": b"3"}])
    reader = stream_of(cluster, topics="now", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    produce(cluster, "now", [{"value": b"later"}])
    ends = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        ends.append(from_json(end)["now", 0])
        start = end
    assert ends == [2, 3]


def test_a_stream_detects_a_topic_that_was_created_again(cluster: Cluster) -> None:
    create_topics(cluster, again=1)
    produce(cluster, "again", [{"value": b"new"}])
    reader = stream_of(cluster, topics="again")
    with pytest.raises(Conflict, match="ends at offset 1, before 50: it was deleted and created again"):
        reader.latestOffset({"again": {"0": 50}}, reader.getDefaultReadLimit())
    lenient = stream_of(cluster, topics="again", failOnDataLoss="false")
    assert lenient.latestOffset({"again": {"0": 50}}, lenient.getDefaultReadLimit()) == {"again": {"0": 1}}
